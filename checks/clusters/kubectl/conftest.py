"""The small dump that tests of the plugin share, and how they run a command."""

from tests.kubectl.conftest import dump, run

__all__ = ["dump", "run"]
