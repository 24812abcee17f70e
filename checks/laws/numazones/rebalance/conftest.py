"""Builders of small clusters, which the exhaustive search shares with the tests of plans."""

from tests.numazones.rebalance.conftest import build, random_cluster

__all__ = ["build", "random_cluster"]
