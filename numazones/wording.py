"""Numbers with their nouns, as sentences for people have them.

One place, so that no message says "1 pods".
"""


def counted(number: int, noun: str) -> str:
    """``1 pod``, ``0 pods``, ``2 pods``; for nouns whose plural ends in s alone."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
