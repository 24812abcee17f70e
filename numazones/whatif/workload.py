"""Arrivals and departures of a run: a cluster's pods in random orders, generated pods, or a history.

The same run gives the same events whatever the settings, so that outcomes can be compared run by run. A
recipe is a list of groups, ``20xcpu=2-8,memory=4Gi``, which arrive one after the other, or all mixed. Churn
goes on from there: time and again a pod chosen at random leaves, and comes back when others have left.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, Self

from numazones.apimachinery import quantity
from numazones.apimachinery.resources import CPU, MEMORY
from numazones.cluster.cluster import ClusterPod
from numazones.errors import NumazonesError
from numazones.whatif.random_numbers import RandomNumbers

_LITTLE_MEMORY = "1Mi"  # without memory a pod would not be Guaranteed
_GROUP = re.compile(r"(?P<count>[1-9][0-9]{0,6})x(?P<amounts>.+)", re.DOTALL)
_RANGE = re.compile(r"([0-9]+)-([0-9]+)")


class InvalidGroup(NumazonesError):
    """A text does not describe a group of pods; the message quotes it."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """A pod leaves."""

    uid: str


WorkloadEvent = ClusterPod | Leaving
"""A pod arrives, at the node it names or wherever the scheduler sends it; or one leaves."""


class EventSource(Protocol):
    """Arrivals and departures in each run."""

    def events(self, random: RandomNumbers) -> Iterator[WorkloadEvent]:
        """Yield what happens in one run, in order."""


@dataclass(frozen=True, slots=True)
class RecordedEvents:
    """Events as they were recorded; every run is the same."""

    recorded: tuple[WorkloadEvent, ...]

    def events(self, _random: RandomNumbers) -> Iterator[WorkloadEvent]:
        """Yield what was recorded."""
        yield from self.recorded


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods of one form: a container each, requests equal to limits; 1Mi of memory where none is said."""

    count: int
    amounts: tuple[tuple[str, str], ...]
    """Resource → amount, or ``low-high``: whole numbers of which each pod draws one."""
    pod: ClusterPod | None = None
    """What all its pods are like, instead of amounts."""
    name: str = ""
    """For people, of such a group."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``20xcpu=2-8,memory=4Gi,vendor.example/nic=1``; without ``20x`` it is one pod.

        Raises:
            InvalidGroup: the text is not in this form, or asks for no CPUs.
        """
        match = _GROUP.fullmatch(text.strip())
        count, listed = (int(match["count"]), match["amounts"]) if match else (1, text)
        amounts: dict[str, str] = {}
        for part in listed.split(","):
            name, separator, amount = (piece.strip() for piece in part.partition("="))
            if not separator or not name or not _sensible(amount):
                raise InvalidGroup(
                    f"{text!r} is not a group of pods: {part.strip()!r} is not a resource with an amount; "
                    "use a group such as 20xcpu=4,memory=8Gi or 20xcpu=2-8,memory=8Gi"
                )
            amounts[name] = amount
        if CPU not in amounts:
            raise InvalidGroup(
                f"{text!r} is not a group of pods: it requests no CPUs; add cpu=4, for example"
            )
        return cls(count, tuple(sorted(amounts.items())))

    @property
    def is_drawn(self) -> bool:
        """Return whether amounts are random, so that its pods differ."""
        return any(low != high for low, high in (_bounds(amount) for _, amount in self.amounts))

    @property
    def largest(self) -> ClusterPod:
        """A pod of the group with the highest amounts that can be drawn."""
        return self.pod or _pod({name: _bounds(amount)[1] for name, amount in self.amounts})

    def pods(self, random: RandomNumbers, first: int) -> Iterator[ClusterPod]:
        """Yield its pods, numbered from ``first`` in the run."""
        templates: dict[tuple[tuple[str, str], ...], ClusterPod] = {}
        for index in range(first, first + self.count):
            if self.pod is not None:
                yield _with_name(self.pod, f"pod-{index}")
                continue
            amounts = self._amounts_of(random, index)
            key = tuple(amounts.items())
            if key not in templates:
                templates[key] = _pod(amounts)
            yield _with_name(templates[key], f"pod-{index}")

    def _amounts_of(self, random: RandomNumbers, index: int) -> Mapping[str, str]:
        """Return resource → amount of the pod with this number in the run."""
        drawn = {}
        for name, amount in self.amounts:
            low, high = _bounds(amount)
            drawn[name] = (
                low
                if low == high
                else str(int(low) + random.below(int(high) - int(low) + 1, "amount", name, index))
            )
        return drawn

    def __str__(self) -> str:
        listed = self.name or ",".join(f"{name}={amount}" for name, amount in self.amounts)
        return f"{self.count}x{listed}"


def _bounds(amount: str) -> tuple[str, str]:
    match = _RANGE.fullmatch(amount)
    return (match[1], match[2]) if match else (amount, amount)


def _sensible(amount: str) -> bool:
    low, high = _bounds(amount)
    try:
        return 0 < quantity.parse(low).nanos <= quantity.parse(high).nanos
    except quantity.InvalidQuantity:
        return False


def _pod(amounts: Mapping[str, str]) -> ClusterPod:
    amounts = {MEMORY: _LITTLE_MEMORY, **amounts}
    resources = {"requests": dict(amounts), "limits": dict(amounts)}
    return ClusterPod.from_api(
        {
            "metadata": {"name": "pod", "namespace": "default", "uid": "pod"},
            "spec": {"containers": [{"name": "main", "resources": resources}]},
        }
    )


@dataclass(frozen=True, slots=True)
class Recipe:
    """Groups of pods that arrive, each in random order or all mixed, and churn.

    A group of pods that are given one by one (those of a cluster) stands for itself.
    """

    groups: tuple[PodGroup | tuple[ClusterPod, ...], ...]
    mixed: bool = False
    churn: int = 0
    """How often, once all have arrived, a pod leaves at random; the one away longest comes back."""
    away: int = 1
    """How many are away meanwhile, and at the end."""
    last: tuple[PodGroup, ...] = ()
    """What arrives after that."""
    shuffled: bool = True
    """Whether pods that are given one by one arrive in random order."""

    def events(self, random: RandomNumbers) -> Iterator[WorkloadEvent]:
        """Yield what happens in one run."""
        pods = list(self._arrivals(random))
        yield from pods
        everybody, away = len(pods), deque[ClusterPod]()
        for step in range(self.churn if everybody > self.away else 0):
            leaving = pods.pop(random.below(len(pods), "leaves", step))
            yield Leaving(leaving.kubelet_uid)
            away.append(leaving)
            if len(away) > self.away:
                pods.append(away.popleft())
                yield pods[-1]
        for group in self.last:
            for pod in group.pods(random, everybody):
                yield pod
                everybody += 1

    def _arrivals(self, random: RandomNumbers) -> Iterator[ClusterPod]:
        pods: list[ClusterPod] = []
        for number, group in enumerate(self.groups):
            if isinstance(group, PodGroup):
                pods += group.pods(random, len(pods))
            else:
                pods += random.permutation(group, "order", number) if self.shuffled else group
        yield from random.permutation(pods, "mixed") if self.mixed else pods

    def examples(self) -> list[ClusterPod]:
        """Return one pod of each form, those that draw their amounts with the highest ones."""
        return [
            pod
            for group in (*self.groups, *self.last)
            for pod in ([group.largest] if isinstance(group, PodGroup) else group)
        ]


def _with_name(pod: ClusterPod, name: str) -> ClusterPod:
    admission = pod.admission
    named = (
        None
        if admission is None
        else admission.with_metadata({"name": name, "namespace": "default", "uid": name})
    )
    return replace(pod, name=name, uid=name, admission=named)
