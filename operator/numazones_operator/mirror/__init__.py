"""What the operator knows of the cluster: kept current by watches, the same on every replica."""
