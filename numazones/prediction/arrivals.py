"""Decide whether a node admits the pods on their way to it, in any selection and order.

Between the choice of a node and its kubelet's decision others may arrive sooner or later than they were
chosen, or go elsewhere. A kubelet serves a pod's containers one after the other with what it finds, so two
pods that fit in one order may not fit in the other, and one that fits beside another may not fit without it.
So a node is looked at in every state that it may be in when the next pod comes: with any of the pods that are
on their way, in any order; with and without pods that are being deleted, and wherever those are that came
while others left; and while the init containers of a pod still hold the memory that they give back when it
starts. Pods of one kind are interchangeable, and states
that decide alike are counted once, so there are few; where there are too many, nothing is promised.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet.config import RESTRICTED, SCOPE_CONTAINER, SINGLE_NUMA_NODE
from numazones.kubelet.demand import ContainerKind
from numazones.kubelet.pod import Pod
from numazones.placement import Placement, Unknown
from numazones.placement.kubelet import KubeletDecision, KubeletPlacement
from numazones.prediction.forecast import NodeAnswer, PodKind, ask, is_open, newcomer
from numazones.prediction.pod_devices import device_answer

MAX_STATES = 32
"""As many states are looked at; each costs a decision for each pod that may come next."""

_REJECTING = frozenset({RESTRICTED, SINGLE_NUMA_NODE})
"""Policies under which a Topology Manager rejects pods."""


@dataclass(frozen=True, slots=True)
class _Change:
    """Change that may still happen to a pod that a node holds."""

    uid: str
    leaves: bool
    """Whether it goes; else its init containers give their memory back."""
    pod: Pod = field(compare=False)

    def applied(self, placement: Placement) -> Placement:
        """Return a placement after it has happened."""
        if self.leaves:
            return placement.remove(self.uid)
        return placement.started(self.pod) if isinstance(placement, KubeletPlacement) else placement

    def matters(self, placement: Placement) -> bool:
        """Return whether it changes the decisions of a placement."""
        after = self.applied(placement)
        return after is not placement and after.key != placement.key


class _Group(NamedTuple):
    """Pods on their way that placement does not tell apart."""

    key: tuple[Any, ...]
    scheduler: str
    sure: bool
    """Whether they are admitted in every state."""
    pods: tuple[Pod, ...]
    """In the order in which they are taken to come, under names that tell them apart."""


class _State(NamedTuple):
    """A node at one moment."""

    arrived: tuple[int, ...]
    """By group, how many of its pods have come."""
    changes: frozenset[_Change]
    """What may still happen."""
    decides: Hashable
    """The key of the placement."""
    placement: Placement

    @property
    def key(self) -> Hashable:
        """States with equal keys decide alike on all that may come."""
        return self[:3]

    @classmethod
    def of(cls, arrived: tuple[int, ...], changes: frozenset[_Change], placement: Placement) -> "_State":
        """Return a state."""
        return cls(arrived, changes, placement.key, placement)

    def arrivals(self, groups: Sequence[_Group], which: Iterable[int]) -> Iterator["_State | None"]:
        """Yield what comes of the next pod of each group; None: one that is to be admitted is not."""
        for at in which:
            group = groups[at]
            if self.arrived[at] == len(group.pods):
                continue
            pod = group.pods[self.arrived[at]]
            after = _decide(self.placement, pod, group.scheduler)
            if after is not None:
                arrived = (*self.arrived[:at], self.arrived[at] + 1, *self.arrived[at + 1 :])
                starts = _Change(pod.uid, leaves=False, pod=pod)
                begins = {starts} if starts.matters(after) else frozenset()
                yield _State.of(arrived, self.changes | begins, after)
            elif group.sure:
                yield None

    def changed(self) -> Iterator["_State"]:
        """Yield what comes of each change."""
        for change in self.changes:
            yield _State.of(self.arrived, self.changes - {change}, change.applied(self.placement))


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A node and the pods on their way to it.

    >>> from numazones import build
    >>> state = build.node(build.machine(numa=2, cores=8, memory="16Gi"))
    >>> node = ClusterNode("worker-1", allocatable={"cpu": 14000, "memory": 15 << 30}).with_state(state)
    >>> pods = [ClusterPod.from_api(build.pod_body(name, cpu=4, memory="1Gi")) for name in "abcd"]
    >>> kind = PodKind.of(pods[3])
    >>> [Arrivals.of(node, pods[:number]).admits(kind) for number in range(4)]
    [True, True, True, False]
    """

    node: ClusterNode
    """With the requests of all pods that are on their way, and the devices that their claims will get."""
    _groups: tuple[_Group, ...]
    _states: tuple[_State, ...]
    """All that it may be in; none: that cannot be told."""
    _others: tuple[ClusterNode, ...] = ()
    """The node as it may be as well, where it is not certain on which NUMA nodes pods are."""
    _alone: bool = False
    """A pod on its way requires alignment: no other pod is promised anything before it has come."""
    _answers: dict[PodKind, bool] = field(default_factory=dict)
    _further: dict[PodKind, tuple[tuple[_Group, ...], tuple[_State, ...]] | None] = field(
        default_factory=dict
    )
    """Groups and states with one more pod of a kind; None: somebody would be rejected."""

    @classmethod
    def of(
        cls,
        node: ClusterNode,
        coming: Iterable[ClusterPod],
        *,
        others: tuple[ClusterNode, ...] = (),
        by_namespace: bool = False,
    ) -> "Arrivals":
        """Return a node with the pods that may come to it.

        Nothing is promised to those among them that it may reject, and nothing to anybody beside one that
        cannot be read. ``others``: the same node in other states that it may be in; ``by_namespace``: as for
        ``Kind.of``.
        """
        found = cls(node, (), _initial_states(node, others), others)
        for pod in coming:
            found = found.with_pod(pod, by_namespace=by_namespace)
        return found

    def with_pod(self, pod: ClusterPod, *, by_namespace: bool = False) -> "Arrivals":
        """Return the node with one more pod on its way."""
        node = self.node.with_pod(pod.placed(self.node.name))
        kind = PodKind.of(pod, by_namespace=by_namespace)
        further = None if kind is None else self._with(kind) or self._explore(kind, sure=False)
        alone = self._alone or (kind is not None and kind.requires_alignment)
        found = None if kind is None else device_answer(kind, node, ())
        if found is not None and found.fits:
            node = replace(node, cluster_devices=found.after)
        return Arrivals(node, *(further or ((), ())), self._others, alone)

    def admits(self, kind: PodKind) -> bool:
        """Return whether a pod of a kind is admitted whenever it comes, and so are those on their way."""
        known = self._answers.get(kind)
        if known is None:
            admits = self.admits_unless_pods_end(kind) and self._admits_without_any(kind)
            known = self._answers[kind] = admits
        return known

    def admits_unless_pods_end(self, kind: PodKind) -> bool:
        """The same as ``admits``, as long as no pod goes that nobody has asked to go yet."""
        if not self._states or not is_open(kind, self.node) or self._with(kind) is None:
            return False
        return self._aligns(kind) if kind.requires_alignment or self._alone else self._has_devices(kind)

    def _has_devices(self, kind: PodKind) -> bool:
        """Return whether those on their way leave devices; not known counts as yes, as without them."""
        found = device_answer(kind, self.node, ())
        return found is None or found.fits is not False

    def _aligns(self, kind: PodKind) -> bool:
        """Return whether a pod finds what it requires on one NUMA node, with no other pod on its way."""
        if self._groups:
            return False
        return all(ask(kind, node).answer is NodeAnswer.ADMITS for node in (self.node, *self._others))

    def _admits_without_any(self, kind: PodKind) -> bool:
        """Return whether it is also admitted if one pod leaves that nobody has asked to leave yet.

        What that frees may lead a kubelet to give a pod's first container CPUs of a NUMA node that has too
        few for the next one; a pod that is served as a whole only gains.
        """
        if len(kind.admission.containers) == 1:
            return True
        return all(self._admits_without_any_on(kind, node) for node in (self.node, *self._others))

    def _admits_without_any_on(self, kind: PodKind, node: ClusterNode) -> bool:
        placement = node.known
        state = None if placement is None else placement.kubelet
        if placement is None or state is None:
            return True
        if (
            state.config.topology_manager_scope != SCOPE_CONTAINER
            or state.config.topology_manager_policy not in _REJECTING
        ):
            return True
        fewer = {less.key: less for less in map(placement.remove, state.pods)}
        return all(
            _decide(less, newcomer(kind.admission), kind.constraints.scheduler_name) is not None
            for less in fewer.values()
        )

    def _with(self, kind: PodKind) -> tuple[tuple[_Group, ...], tuple[_State, ...]] | None:
        """The same as ``_explore`` for a pod that has to be admitted, remembered."""
        if kind not in self._further:
            self._further[kind] = self._explore(kind, sure=True)
        return self._further[kind]

    def _explore(self, kind: PodKind, *, sure: bool) -> tuple[tuple[_Group, ...], tuple[_State, ...]] | None:
        """Return groups and states with one pod more; None where one that is to be admitted may not be."""
        scheduler = kind.constraints.scheduler_name
        key = (kind.needs, kind.marks, scheduler, sure)
        groups, states = self._groups, self._states
        at = next((at for at, group in enumerate(groups) if group.key == key), len(groups))
        if at == len(groups):
            groups = (*groups, _Group(key, scheduler, sure, ()))
            states = tuple(state._replace(arrived=(*state.arrived, 0)) for state in states)
        expected = groups[at].pods
        name = f"arrival-{at}-{len(expected)}"
        newest = replace(kind.admission, uid=name, name=name)
        groups = (*groups[:at], groups[at]._replace(pods=(*expected, newest)), *groups[at + 1 :])
        known = {state.key: state for state in states}
        # In the states so far it has not come; of its kind, those that were expected before come first.
        last = [state for state in states if state.arrived[at] == len(expected)]
        new = [following for state in last for following in state.arrivals(groups, (at,))]
        while new:
            state = new.pop()
            if state is None:
                return None
            if state.key in known:
                continue
            if len(known) == MAX_STATES:
                return None
            known[state.key] = state
            new.extend(state.arrivals(groups, range(len(groups))))
            new.extend(state.changed())
        return groups, tuple(known.values())


def _initial_states(node: ClusterNode, others: tuple[ClusterNode, ...]) -> tuple[_State, ...]:
    """The states of a node that nobody is on the way to; none: that cannot be told."""
    placements = [one.known for one in (node, *others)]
    if None in placements:
        return ()
    possible: list[_Change] = []
    for pod in node.pods.values():
        if pod.admission is None:
            continue
        starts = any(container.kind is ContainerKind.INIT for container in pod.admission.containers)
        if starts or pod.deleting:
            held = replace(pod.admission, uid=pod.kubelet_uid)
            possible += [_Change(held.uid, leaves=False, pod=held)] if starts else []
            possible += [_Change(held.uid, leaves=True, pod=held)] if pod.deleting else []
    known: dict[Hashable, _State] = {}
    new = [
        _State.of((), frozenset(change for change in possible if change.matters(one)), one)
        for one in placements
        if one is not None
    ]
    while new:
        state = new.pop()
        if state.key in known:
            continue
        if len(known) == MAX_STATES:
            return ()
        known[state.key] = state
        new.extend(state.changed())
    return tuple(known.values())


def _decide(placement: Placement, pod: Pod, scheduler: str) -> Placement | None:
    """Return the placement right after a pod came; None where it is not admitted, or nobody knows."""
    decider = placement.for_scheduler(scheduler)
    if isinstance(decider, Unknown):
        return None
    try:
        decision = decider.admit(pod)
    except NumazonesError:
        return None
    if not decision.admitted:
        return None
    if isinstance(decision, KubeletDecision):
        return decision.unstarted
    return placement.after(pod, decision)
