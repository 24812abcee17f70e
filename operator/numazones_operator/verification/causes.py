"""Accuracy of a prediction, judged with what is known later.

What a kubelet found when it decided cannot be seen, only what the API server and the zones tell of it, late
and in no common order: a pod's share is free before the API says that it ended, a pod runs long before its
status says so. So a prediction that was wrong is made again on what the kubelet may have found. Where that
gives the kubelet's answer, it was a race; where the zones that came later give it, the zones were stale; what
nothing explains is held against the model.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from itertools import chain, combinations, islice

from numazones.errors import NumazonesError
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.node_admission import admit_to_node
from numazones.kubelet.node_info import NodeInfo, PodInfo
from numazones.kubelet.pod import Pod
from numazones.placement import ADMITTED, Placement
from numazones_operator.mirror.pod_outcomes import PodOutcomes

_MAX_COMBINED = 4
"""More pods that went are only tried one by one, and all together."""
_MAX_PLACEMENTS = 64
"""So many are tried in another model's place; each takes about a millisecond."""


class Accuracy(StrEnum):
    """Accuracy of a prediction."""

    RIGHT = "Right"
    RACE = "Race"
    """Wrong: pods came or went, and the kubelet knew before the API server told."""
    STALE = "Stale"
    """Wrong: the zones were older than the kubelet's decision."""
    MODEL = "Model"
    """Wrong, and nothing that became known explains it."""
    UNKNOWN = "Unknown"
    """Nothing was predicted."""


def cause(
    pod: PodInfo, actual: str, *, found: NodeInfo, otherwise: NodeInfo | None, fates: PodOutcomes
) -> Accuracy:
    """Return why a prediction was wrong.

    ``found``: the node as it was expected to be; ``otherwise``: with the pods that were presumed to have
    gone, or to be rejected; ``fates``: outcomes of the pods on it.
    """
    for info in _possibilities(found, otherwise, fates):
        if _answer(info, pod) == actual:
            return Accuracy.RACE
    if fates.zones is not None:
        later = replace(found, state=remove(fates.zones, pod.pod.uid))
        if _answer(later, pod) == actual:
            return Accuracy.STALE
    return Accuracy.MODEL


def cause_elsewhere(
    pod: Pod, done: str, *, expected: Placement, uncreated: Iterable[Pod] = (), fates: PodOutcomes
) -> Accuracy:
    """Return why a prediction for a node of another model than the kubelet's was wrong.

    Args:
        pod: the pod that was bound.
        done: what became of it, as ``Decision.outcome`` has it.
        expected: what the model was expected to decide from.
        uncreated: pods with containers that had not been created, as far as the API server told. The kubelet
            tries them again and again; of one that it creates and that ends soon nobody ever hears.
        fates: what became of the pods there.
    """
    possible = islice(_possible_placements(expected, tuple(uncreated), fates.gone), _MAX_PLACEMENTS)
    for placement in chain(fates.placements, possible):
        try:
            if placement.remove(pod.uid).admit(pod).outcome == done:
                return Accuracy.RACE
        except NumazonesError:
            continue
    return Accuracy.MODEL


def _possible_placements(
    expected: Placement, uncreated: tuple[Pod, ...], gone: Iterable[str]
) -> Iterator[Placement]:
    """Yield what another model may have decided from: some pods went sooner, some were created after all."""
    for went in _choices(sorted(gone)):
        fewer = expected
        for uid in went:
            fewer = fewer.remove(uid)
        for created in _choices([other.uid for other in uncreated if other.uid not in went]):
            try:
                yield _created(fewer, [other for other in uncreated if other.uid in created])
            except NumazonesError:
                continue


def _created(placement: Placement, pods: Iterable[Pod]) -> Placement:
    """The placement after further attempts at pods that lacked containers."""
    for pod in pods:
        placement = placement.remove(pod.uid).admit(pod).placement
    return placement


def _possibilities(found: NodeInfo, otherwise: NodeInfo | None, fates: PodOutcomes) -> Iterator[NodeInfo]:
    """Yield the node as the kubelet may have found it."""
    known: Mapping[str, PodInfo] = found.pods if otherwise is None else otherwise.pods
    for info in (found,) if otherwise is None else (found, otherwise):
        came = {
            uid: other for uid, other in known.items() if uid in fates.running and not info.state.holds(uid)
        }
        for went in _choices([uid for uid in info.pods if uid in fates.gone]):
            fewer = _without(info, went)
            yield fewer
            if came:
                yield _with(fewer, came)


def _choices(uids: list[str]) -> Iterable[tuple[str, ...]]:
    if len(uids) <= _MAX_COMBINED:
        return chain.from_iterable(combinations(uids, size) for size in range(len(uids) + 1))
    return ((), *((uid,) for uid in uids), tuple(uids))


def _without(info: NodeInfo, uids: Iterable[str]) -> NodeInfo:
    state, pods = info.state, dict(info.pods)
    for uid in uids:
        state = remove(state, uid)
        pods.pop(uid, None)
    return replace(info, state=state, pods=pods)


def _with(info: NodeInfo, others: Mapping[str, PodInfo]) -> NodeInfo:
    state = info.state
    for other in others.values():
        try:
            state = admit(state, other.pod).node
        except NumazonesError:
            continue
    return replace(info, state=state, pods={**info.pods, **others})


def _answer(info: NodeInfo, pod: PodInfo) -> str:
    """The node's decision; empty where the model does not know."""
    try:
        verdict = admit_to_node(info, pod)
    except NumazonesError:
        return ""
    return ADMITTED if verdict.admitted else verdict.reason
