"""The HTTP extender of kube-scheduler: one module per verb, their messages, and the server."""
