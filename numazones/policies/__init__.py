"""Placement models beside the kubelet: who else decides where a node's containers run."""
