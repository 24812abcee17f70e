"""Pods that are stuck or gated: which, and why."""
