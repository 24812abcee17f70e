"""How pods are kept from nodes whose kubelets would reject them: the admission gate."""
