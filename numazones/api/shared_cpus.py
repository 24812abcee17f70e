"""The condition of zones whose kubelet has given exclusive CPUs to more than one pod."""

from collections.abc import Callable, Mapping

from numazones.api.meta import Condition
from numazones.api.numazone import CPUS_EXCLUSIVE
from numazones.cpuset import CPUSet
from numazones.kubelet.shared_cpus import describe, shared_cpus
from numazones.wording import shorten

OF_TWO_PODS = "CPUsOfTwoPods"
IN_SHARED_SET = "CPUsInSharedSet"

_MAX_MESSAGE = 1000
"""Characters; conditions are on every zone, and zones stay small."""


def cpus_exclusive(
    default: CPUSet,
    held: Mapping[str, CPUSet],
    *,
    name: Callable[[str], str],
    created: Callable[[str], str],
    alike: bool = False,
) -> tuple[Condition, ...]:
    """Return the condition that names pods which share exclusive CPUs; none where no pods do.

    Args:
        default: the shared set.
        held: pod → its exclusive CPUs.
        name: how people call a pod.
        created: when a pod was created, in UTC as Kubernetes writes it; empty where that is not known.
        alike: whether the machine's cores and sockets are alike.
    """
    found = shared_cpus(default, held)
    if not found:
        return ()
    reason = OF_TWO_PODS if any(len(group.pods) > 1 for group in found) else IN_SHARED_SET
    message = shorten(describe(found, name=name, created=created, alike=alike), _MAX_MESSAGE)
    return (Condition(type=CPUS_EXCLUSIVE, status="False", reason=reason, message=message),)
