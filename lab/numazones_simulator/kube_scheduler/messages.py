"""The sentence that a pod waits with (kube-scheduler 1.36, ``framework/types.go`` FitError.Error)."""

from collections import Counter
from collections.abc import Iterable


def available(nodes: int, reasons: Iterable[Iterable[str]]) -> str:
    """Count equal reasons of all nodes together, sorted as text."""
    counts = Counter(reason for one in reasons for reason in one)
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"0/{nodes} nodes are available:" + (f" {listed}." if listed else "")
