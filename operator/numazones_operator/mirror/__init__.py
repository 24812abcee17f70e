"""What is known of the cluster: kept current by watches, the same on every replica."""
