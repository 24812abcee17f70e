"""Mirror of the cluster in the operator: kept current by watches, the same on every replica."""
