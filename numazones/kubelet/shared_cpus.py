"""CPUs that a kubelet has given to a pod exclusively, and which that pod yet does not have for itself.

The static CPU Manager takes cores and sockets by their nominal size (``cpu_packing``). Where cores have
different numbers of online threads, or sockets of CPUs, it may therefore give a CPU to two pods. When one of
these ends, the CPU returns to the shared set, while the other still holds it: then other containers run on
it, it may be given to one more pod, and a kubelet that restarts rejects its own state. Where all cores are
alike, only a state file of another moment can say so, as after a crash.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones.wording import enumeration


@dataclass(frozen=True, slots=True)
class SharedCPUs:
    """CPUs that the same pods hold."""

    cpus: CPUSet
    pods: tuple[str, ...]
    """Whoever holds them, sorted."""
    free: bool
    """Whether they are in the shared set, too."""


def shared_cpus(default: CPUSet, held: Mapping[str, CPUSet]) -> tuple[SharedCPUs, ...]:
    """Return the CPUs that more than one pod holds, or that a pod holds and the shared set has; by id.

    ``held``: pod, by any name → its exclusive CPUs.

    >>> shared_cpus(0b0001, {"a": 0b0110, "b": 0b1100})
    (SharedCPUs(cpus=4, pods=('a', 'b'), free=False),)
    """
    once = twice = 0
    for cpus in held.values():
        twice |= once & cpus
        once |= cpus
    groups: dict[tuple[tuple[str, ...], bool], CPUSet] = {}
    for cpu in cpuset.ids(twice | once & default):
        pods = tuple(sorted(pod for pod, cpus in held.items() if cpus >> cpu & 1))
        key = pods, bool(default >> cpu & 1)
        groups[key] = groups.get(key, 0) | 1 << cpu
    return tuple(SharedCPUs(cpus, pods, free) for (pods, free), cpus in groups.items())


def describe(
    found: Iterable[SharedCPUs],
    *,
    name: Callable[[str], str],
    created: Callable[[str], str],
    alike: bool = False,
) -> str:
    """Say who shares which CPUs, and what ends it.

    Args:
        found: what ``shared_cpus`` returned.
        name: how people call a pod.
        created: when a pod was created, in UTC as Kubernetes writes it; empty where that is not known.
        alike: whether the machine's cores and sockets are alike.

    >>> ages = {"a": "2026-01-31T08:00:00Z", "b": "2026-01-31T09:00:00Z"}
    >>> found = shared_cpus(0, {"a": 0b0110, "b": 0b1100})
    >>> print(describe(found, name="default/{}".format, created=ages.__getitem__).partition(":")[0])
    default/a and default/b both hold CPU 2
    """
    cause = "the machine or its kubelet stops while the state file is written"
    if not alike:
        cause = "one of two pods that share CPUs ends"
    return "; ".join(_sentence(group, name, created, cause) for group in found)


def _sentence(
    group: SharedCPUs, name: Callable[[str], str], created: Callable[[str], str], cause: str
) -> str:
    cpus = f"CPU{'s' if group.cpus.bit_count() > 1 else ''} {cpuset.format(group.cpus)}"
    pods = sorted(group.pods, key=lambda pod: (created(pod), name(pod)))
    oldest, *younger = map(name, pods)
    if not younger:
        return (
            f"{oldest} holds {cpus}, but the kubelet considers {cpus} free, which happens when {cause}: "
            f"delete {oldest} as soon as it can be spared; until then other containers run there, another "
            "pod may be given the same CPUs, and the kubelet, if restarted, would reject its state file"
        )
    times = [created(pod) for pod in pods]
    age = ", the younger," if all(times) and times[0] != times[1] else ""
    return (
        f"{enumeration([oldest, *younger])} {'all' if len(younger) > 1 else 'both'} hold {cpus}: delete "
        f"{enumeration(younger)}{age} to resolve this, then {oldest} as soon as it can be spared: the "
        f"kubelet considers {cpus} free until {oldest} is gone"
    )
