"""Numbers of examples per law: its own in ``make check-laws``, at most 25 in ``make test``."""

from hypothesis import settings

QUICK = "quick"
MOST = 25


def examples(number: int) -> int:
    """Return how many examples a law tries under the profile that is loaded."""
    return min(number, MOST) if settings.get_current_profile_name() == QUICK else number
