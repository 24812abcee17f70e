"""Sources of answers: a cluster, a dump, or a recording, read into the same values."""
