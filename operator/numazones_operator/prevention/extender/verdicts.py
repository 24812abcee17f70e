"""Verdict of each node about a pod at this moment, without the room that is held for others.

A filter call may be the first that is heard of a pod, and it stops the scheduler until it is answered, so the
verdicts of all nodes on each kind of pod are kept, and only nodes that changed since are asked again.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from numazones.apimachinery.resources import DEVICE_CLASS
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import ObjectFault
from numazones.placement import Unknown
from numazones.prediction.device_answer import DeviceAnswer
from numazones.prediction.forecast import (
    UNKNOWN_SOURCE,
    UNREADABLE_POD,
    Forecast,
    NodeAnswer,
    NodeVerdict,
    PodKind,
    ask,
)
from numazones.prediction.held_room import with_held
from numazones.prediction.scheduler_reasons import HELD_ROOM, NOT_MIRRORED, PODS_LEAVE
from numazones_operator.faults import of_node, of_pod
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.prevention.held_room import HeldRoom

_MAX_KINDS = 64
_SLICE = 0.02
"""Seconds of asking after which others have their turn."""

_MISSING = NodeVerdict(
    NodeAnswer.UNKNOWN, UNKNOWN_SOURCE, ((NOT_MIRRORED, "the operator does not know this node"),), model=None
)
_UNSETTLED = NodeVerdict(
    NodeAnswer.UNKNOWN,
    UNKNOWN_SOURCE,
    (
        (
            PODS_LEAVE,
            "too many pods on this node are being deleted; its state is unknown until some of them are gone",
        ),
    ),
    model=None,
    awaited=True,
)
_HELD = NodeVerdict(NodeAnswer.REJECTS, HELD_ROOM, ((HELD_ROOM, ""),), model=None)


_UNREAD = NodeVerdict(NodeAnswer.UNKNOWN, UNKNOWN_SOURCE, model=None, would_reject=True)

NEVER = -(1 << 62)
"""Before all versions."""


@dataclass(slots=True)
class _Known:
    """The verdicts of all nodes on one kind of pod, and the state's version that they were made of."""

    forecast: Forecast
    version: int = NEVER
    alternatives: dict[str, tuple[tuple[ClusterNode, ...], list[NodeVerdict]]] = field(default_factory=dict)
    """Node that pods leave → in every state that its kubelet may have, and its verdicts then."""


class CurrentVerdicts:
    """Asks nodes about pods."""

    def __init__(self, state: ClusterState, held: HeldRoom) -> None:
        self._state = state
        self._held = held
        self._kinds: OrderedDict[PodKind, _Known] = OrderedDict()

    async def of(self, pod: ClusterPod, names: Iterable[str]) -> dict[str, NodeVerdict]:
        """Return node → verdict, for the nodes named; where something raises, it is Unknown."""
        names = list(names)
        try:
            return await self._of(pod, names)
        except Exception as error:  # noqa: BLE001 - it concerns this pod alone
            problem = self._state.faults.take(of_pod(pod), error)
            return dict.fromkeys(names, _raised(problem))

    async def _of(self, pod: ClusterPod, names: Iterable[str]) -> dict[str, NodeVerdict]:
        kind = self._kind(pod)
        if kind is None:
            return dict.fromkeys(names, _unreadable(pod))
        found = await self._of_kind(kind, pod, names)
        devices = self._device_kind(pod)
        if devices is None:
            return found
        foreseen = await self._of_kind(devices, pod, names)
        return {name: _joined(devices, one, foreseen[name]) for name, one in found.items()}

    async def _of_kind(self, kind: PodKind, pod: ClusterPod, names: Iterable[str]) -> dict[str, NodeVerdict]:
        verdicts = (await self._renewed(kind)).verdicts
        found = {name: verdicts.get(name, _MISSING) for name in names}
        held = self._held.by_node(pod)
        for name, pods in held.items():
            if name in found and (node := self._state.node(name)) is not None:
                try:
                    found[name] = self._beside_sound(kind, node, found[name], pods)
                except Exception as error:  # noqa: BLE001 - it concerns this node alone
                    found[name] = _raised(self._state.faults.take(of_pod(pods[0]), error))
        for name in self._state.left_by_pods:
            if name in found:
                try:
                    found[name] = self._in_every_state(kind, name, found[name], held.get(name, ()))
                except Exception as error:  # noqa: BLE001 - it concerns this node alone
                    found[name] = _raised(self._state.faults.take(of_node(name), error))
        return found

    def on(self, pod: ClusterPod, name: str) -> NodeVerdict:
        """Return the verdict of one node, decided now."""
        return self.beside(pod, name, self._held.by_node(pod).get(name, ()))

    def beside(self, pod: ClusterPod, name: str, held: Sequence[ClusterPod]) -> NodeVerdict:
        """Return the verdict of one node with room held for others, decided now."""
        kind, node = self._kind(pod), self._state.node(name)
        verdict = self.at(pod, node, held)
        if kind is None:
            return verdict
        verdict = self._in_every_state(kind, name, verdict, held)
        devices = self._device_kind(pod)
        if node is None or devices is None or not devices.requires_alignment:
            return verdict
        foreseen = _beside(devices, node, ask(devices, node), held)
        return _joined(devices, verdict, self._in_every_state(devices, name, foreseen, held))

    def _in_every_state(
        self, kind: PodKind, name: str, verdict: NodeVerdict, held: Sequence[ClusterPod]
    ) -> NodeVerdict:
        """Return the verdict, or a worse one of another state that the node's kubelet may have.

        What becomes free may lead a kubelet to give a pod's first container CPUs of a NUMA node that has
        none left for the next one, and what became free may have led it to put later pods elsewhere. Pods
        that leave may have gone or not: a node must admit in every case, and one of unknown state must not
        be known to reject in any. A pod of one container only gains by what becomes free.
        """
        if verdict.answer is NodeAnswer.REJECTS or verdict.would_reject:
            return verdict
        nodes = self._state.alternatives(name, apart=len(kind.admission.containers) > 1)
        if nodes is None:
            return _UNSETTLED
        asked = self._known(kind).alternatives
        if name not in asked or asked[name][0] is not nodes:
            asked[name] = (nodes, [ask(kind, node) for node in nodes])
        pairs = zip(nodes, asked[name][1], strict=True)
        verdicts = [self._beside_sound(kind, *pair, held) for pair in pairs]
        if verdict.answer is NodeAnswer.UNKNOWN:
            return replace(verdict, would_reject=any(one.would_reject for one in verdicts))
        return next((one for one in verdicts if one.answer is not NodeAnswer.ADMITS), verdict)

    def at(self, pod: ClusterPod, node: ClusterNode | None, held: Sequence[ClusterPod]) -> NodeVerdict:
        """Return the verdict of a node as it is given, with room held for others."""
        kind = self._kind(pod)
        if node is None or kind is None:
            return _MISSING if node is None else _unreadable(pod)
        return self._beside_sound(kind, node, ask(kind, node), held)

    def _beside_sound(
        self, kind: PodKind, node: ClusterNode, alone: NodeVerdict, held: Sequence[ClusterPod]
    ) -> NodeVerdict:
        """Return the verdict of a node that room is held on; pods about which something raises hold none."""
        while True:
            try:
                return _beside(kind, node, alone, held)
            except ObjectFault as fault:
                held = self._held.without_faulty(held, fault)

    async def passing(self, pod: ClusterPod, passes: Callable[[NodeVerdict], bool]) -> list[str]:
        """Return the nodes of the whole cluster whose verdicts pass, whatever is held there."""
        kind = self._kind(pod)
        if kind is None:
            return []
        verdicts = (await self._renewed(kind)).verdicts
        return [name for name, one in verdicts.items() if passes(one)]

    def _kind(self, pod: ClusterPod) -> PodKind | None:
        # It is asked about nodes that the scheduler's own filters, its allocator's too, have left.
        return PodKind.of(pod, by_namespace=self._state.namespaces_matter, allocated=True)

    def _device_kind(self, pod: ClusterPod) -> PodKind | None:
        """Return the kind with the devices that the scheduler still allocates; None: the pod needs none."""
        asked = pod.resource_claims or any(
            name in self._state.devices.resources or name.startswith(DEVICE_CLASS) for name in pod.requests
        )
        kind = PodKind.of(pod, by_namespace=self._state.namespaces_matter) if asked else None
        return None if kind is None else kind.settled(self._state.devices.current)

    async def _renewed(self, kind: PodKind) -> Forecast:
        """Ask the nodes that changed; those that change while others have their turn, once more."""
        known = self._known(kind)
        while known.version != self._state.version:
            version, started = self._state.version, time.monotonic()
            for name in self._state.changed_since(known.version):
                node = self._state.node(name)
                known.alternatives.pop(name, None)
                if node is None:
                    known.forecast.forget(name)
                else:
                    self._renew_node(known.forecast, node)
                if time.monotonic() - started > _SLICE:
                    await asyncio.sleep(0)
                    started = time.monotonic()
            known.version = version
        return known.forecast

    def _renew_node(self, forecast: Forecast, node: ClusterNode) -> None:
        try:
            forecast.renew((node,))
        except Exception as error:  # noqa: BLE001 - it concerns this node and this kind of pod alone
            problem = self._state.faults.take(of_pod(forecast.kind.admission), error)
            try:
                forecast.leave_open(node.name, problem)
            except Exception:  # noqa: BLE001 - it is known that something raises about it
                forecast.forget(node.name)

    def _known(self, kind: PodKind) -> _Known:
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = _Known(Forecast(kind))
            if len(self._kinds) > _MAX_KINDS:
                self._kinds.popitem(last=False)
        self._kinds.move_to_end(kind)
        return known


def _joined(kind: PodKind, verdict: NodeVerdict, foreseen: NodeVerdict) -> NodeVerdict:
    """Return the verdict of a node that the scheduler's allocator has left, with the devices foreseen there.

    That the node has devices is the scheduler's to say, which knows what it allocated a moment ago; that they
    are not held for others, and where they are, is not.
    """
    if verdict.answer in (NodeAnswer.REJECTS, NodeAnswer.EXCLUDED):
        return verdict
    if kind.requires_alignment or foreseen is _HELD:
        return foreseen
    if verdict.answer is NodeAnswer.UNKNOWN:
        return verdict
    return replace(verdict, devices=foreseen.devices or DeviceAnswer(None))


def _beside(kind: PodKind, node: ClusterNode, alone: NodeVerdict, held: Sequence[ClusterPod]) -> NodeVerdict:
    """Return the verdict of a node that room is held on, given the one without."""
    if held and alone.answer is NodeAnswer.UNKNOWN:
        return _beside_unknown(kind, node, alone, held)
    if not held or alone.answer is not NodeAnswer.ADMITS:
        return alone
    after = with_held(node, held)
    if after is None:
        return _HELD
    verdict = ask(kind, after)
    return verdict if verdict.answer is NodeAnswer.ADMITS else _HELD


def _beside_unknown(
    kind: PodKind, node: ClusterNode, alone: NodeVerdict, held: Sequence[ClusterPod]
) -> NodeVerdict:
    """Return the same for a node of unknown state, by what was known of it last."""
    unknown = node.placement
    if alone.would_reject or not isinstance(unknown, Unknown) or unknown.last_known is None:
        return alone
    last_known = node.with_placement(unknown.last_known)
    beside = _beside(kind, last_known, ask(kind, last_known), held)
    return replace(alone, would_reject=beside.answer is NodeAnswer.REJECTS)


def _raised(problem: str) -> NodeVerdict:
    """Return the verdict where something raises: Unknown, and no pod goes there."""
    return replace(_UNREAD, obstacles=((UNREADABLE_POD, problem),))


def _unreadable(pod: ClusterPod) -> NodeVerdict:
    return NodeVerdict(NodeAnswer.UNKNOWN, UNKNOWN_SOURCE, ((UNREADABLE_POD, pod.problem),), model=None)
