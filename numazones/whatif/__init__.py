"""Histories of pods on a node, replayed: against what a real kubelet did, or under other settings."""
