"""``live``: a full-screen view that follows the cluster; imported only when it runs."""
