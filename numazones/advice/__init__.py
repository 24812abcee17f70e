"""Changes after which a pod would run, each tried on a copy."""
