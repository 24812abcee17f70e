"""Verification of predictions: the forecast, compared with what the kubelets did."""
