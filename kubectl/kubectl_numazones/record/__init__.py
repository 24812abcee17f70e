"""``record``: a live node as a recording; imported only when it runs."""
