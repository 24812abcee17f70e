"""Whether predictions were right: what was expected beside what the kubelets did."""
