"""The operator: watches the cluster, says where pods would be admitted, and later whether that was right."""
