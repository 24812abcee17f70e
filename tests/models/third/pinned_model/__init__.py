"""A placement model of the tests' own: an agent gives pods whole CPUs, and publishes them in PinnedNodes."""
