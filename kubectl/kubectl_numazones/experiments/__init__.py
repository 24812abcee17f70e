"""Experiments on a workload: what-if, sweep and size, run and plotted."""
