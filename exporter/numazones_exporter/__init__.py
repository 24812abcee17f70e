"""Reads one node (hardware, kubelet, pods) and publishes what each of its NUMA zones has and gave away."""
