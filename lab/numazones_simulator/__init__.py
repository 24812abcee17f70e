"""Stands in for the cluster around numazones: an API server and kubelets in one process."""
