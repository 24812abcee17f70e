"""What Prometheus is shown of the operator and the cluster."""
