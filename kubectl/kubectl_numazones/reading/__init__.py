"""Where answers come from: a cluster, a dump, or a recording, read into the same values."""
