"""A kube-scheduler that asks HTTP extenders: its configuration, what it sends them, its cycle and queue."""
