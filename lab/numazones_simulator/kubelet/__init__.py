"""Simulated kubelets: they admit pods by the library's admission model and show what real ones show."""
