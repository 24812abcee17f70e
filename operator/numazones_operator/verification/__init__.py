"""Whether predictions were right: what was expected, compared with what the kubelets did."""
