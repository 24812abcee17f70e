"""Alignment of running pods' CPUs, memory and devices, and whether it could be better."""
