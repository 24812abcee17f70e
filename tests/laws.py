"""Numbers of examples per law: its own in ``make check-laws``, few where that is not the point."""

from hypothesis import settings

QUICK, COVERING = "quick", "covering"
MOST = {QUICK: 25, COVERING: 12}
"""Profile → the most examples of a law."""


def examples(number: int) -> int:
    """Return how many examples a law tries under the profile that is loaded."""
    return min(number, MOST.get(settings.get_current_profile_name(), number))
