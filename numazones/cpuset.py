"""CPU sets (and NUMA node masks) as plain integers: bit *n* stands for CPU *n*.

Integers make union, intersection, difference and counting single machine-level operations, which
the admission's speed rests on. The text form is the kernel's list format as sysfs, the kubelet's
checkpoints and its configuration write it (cpuset(7), "List format": ``0-3,8``).

>>> format(parse("0-3,8") & of((2, 8, 9)))
'2,8'
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TypeAlias, TypeVar

from numazones.errors import NumazonesError

CPUSet: TypeAlias = int
_Key = TypeVar("_Key")

# A guard against typing errors such as 0-40000000000, which would otherwise eat the memory;
# Linux itself is built for at most 8192 CPUs.
MAX_ID = (1 << 16) - 1

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


class InvalidCPUSet(NumazonesError):
    """A text is not a CPU list; the message quotes it."""


def parse(text: str) -> CPUSet:
    """Read a list such as ``0-3,8``; the empty text is the empty set.

    Args:
        text: in the kernel's list format; blanks around parts do no harm.

    Raises:
        InvalidCPUSet: the text is not in the list format, or a range runs backwards.

    >>> parse("0-3,8").bit_count()
    5
    """
    stripped = text.strip()
    return _parse_list(stripped) if stripped else 0


@lru_cache(maxsize=4096)  # the same few lists come again and again, with every node of a model
def _parse_list(text: str) -> CPUSet:
    cpus = 0
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InvalidCPUSet(
                f"{text!r:.100} is not a CPU list: {part!r:.100} is neither a CPU nor a range such as 0-3"
            )
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if first > last:
            raise InvalidCPUSet(f"{text!r:.100} is not a CPU list: the range {part!r} runs backwards")
        if last > MAX_ID:
            raise InvalidCPUSet(
                f"{text!r:.100} is not a CPU list: CPU {last} is beyond the largest supported CPU {MAX_ID}"
            )
        cpus |= (1 << last + 1) - (1 << first)
    return cpus


def format(cpus: CPUSet) -> str:  # noqa: A001 - reads cpuset.format(…)
    """Write the canonical list: ascending, neighbours joined into ranges, ``""`` for the empty set.

    Args:
        cpus: the set.

    >>> format(0b1_0000_1111)
    '0-3,8'
    """
    parts = []
    base = 0
    while cpus:
        skip = (cpus & -cpus).bit_length() - 1
        cpus >>= skip
        base += skip
        run = (~cpus & (cpus + 1)).bit_length() - 1
        parts.append(str(base) if run == 1 else f"{base}-{base + run - 1}")
        cpus >>= run
        base += run
    return ",".join(parts)


def of(ids: Iterable[int]) -> CPUSet:
    """Return the set of some ids.

    Args:
        ids: none of them negative; in any order.

    >>> format(of([8, 2, 3]))
    '2-3,8'
    """
    cpus = 0
    for cpu in ids:
        cpus |= 1 << cpu
    return cpus


def union(sets: Iterable[CPUSet]) -> CPUSet:
    """Return the union of sets.

    Args:
        sets: any number of them; of none the union is the empty set.

    >>> format(union([parse("0-1"), parse("4")]))
    '0-1,4'
    """
    cpus = 0
    for members in sets:
        cpus |= members
    return cpus


def ids(cpus: CPUSet) -> Iterator[int]:
    """Yield the members in ascending order.

    Args:
        cpus: the set.

    >>> list(ids(parse("8,0-1")))
    [0, 1, 8]
    """
    while cpus:
        lowest = cpus & -cpus
        yield lowest.bit_length() - 1
        cpus ^= lowest


def sets_by_key(pairs: Iterable[tuple[_Key, int]]) -> dict[_Key, CPUSet]:
    """Return key → set of its CPUs.

    Args:
        pairs: (key, CPU), in any order.

    >>> {socket: format(cpus) for socket, cpus in sets_by_key([(0, 0), (1, 2), (0, 1)]).items()}
    {0: '0-1', 1: '2'}
    """
    groups: dict[_Key, CPUSet] = {}
    for key, cpu in pairs:
        groups[key] = groups.get(key, 0) | 1 << cpu
    return groups
