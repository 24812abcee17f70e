"""Explain why a pod was rejected, and what would help; its kubelet says little of either.

Most pods are bound before anybody could predict for them. Their rejection is explained after the fact, for
the node as it was when they came: hints, the rule that decided, who held what was missing, the nearest miss
in plain words, and what would help. Where nothing was predicted, because the rejection was there first or the
node was not known yet, that is worked out for the node as it is then. Only rejections that the model foresaw,
or understands afterwards, are explained: of others it would not know why.
"""

from collections.abc import Callable, Iterator, Mapping

from numazones import cpuset
from numazones.advice.changes import NodeContext, advise_on
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.kubelet.explanation import Explanation, explain
from numazones.kubelet.machine import name_numas
from numazones.kubelet.node_info import NodeInfo
from numazones.rebalance.filter import protection
from numazones.wording import some_of
from numazones_operator.verification.verifier import Expectation, Verification

_MAX_ADVICE = 3
_MAX_HOLDERS = 5
_LATE = (
    "there was no prediction; this explanation was computed afterwards, from the state of the node at the "
    "time of the rejection"
)


def explanation_of(verification: Verification) -> tuple[str, ...]:
    """Return why the pod was rejected, the plainest sentence last; nothing where the model does not know."""
    expectation = verification.expectation
    decision = expectation.decision
    if verification.hit and decision is not None and not decision.admitted and not expectation.by_kubelet:
        return decision.explain()
    verdict = expectation.verdict
    if verification.hit is False or verdict is None or verdict.admitted:
        return ()
    lines = [] if verification.hit else [_LATE]
    if verdict.managers is not None:
        found = explain(verdict.managers)
        lines += found.lines()
        last = [lines.pop()] if found.shortfall else []
        lines += [*_holders(found, _names(expectation)), *last]
    if verdict.sentence:
        lines.append(verdict.sentence)
    return tuple(lines)


def brief_of(verification: Verification) -> str:
    """Return in few words what was missing; empty where the model does not know."""
    expectation = verification.expectation
    if not verification.hit or expectation.admission is None or expectation.admission.admitted:
        return ""
    found = explain(expectation.admission)
    return "; ".join(map(str, found.shortages)) or found.shortfall


def advice_of(
    verification: Verification, pod_of: Callable[[str], ClusterPod | None] = lambda _uid: None
) -> tuple[str, ...]:
    """Return what would have let the pod in on its node; it takes some hundredths of a second to work out.

    ``pod_of`` finds a pod by UID; of pods that are gone it is not known whether they may be moved.
    """
    expectation, rejection = verification.expectation, verification.expectation.admission
    if verification.hit is False or rejection is None or rejection.admitted or expectation.found is None:
        return ()
    node = _node_of(expectation.found, pod_of)
    found = advise_on(expectation.pod, node, NodeContext(objection=protection))
    return tuple(one.sentence for one in found)[:_MAX_ADVICE]


def _node_of(found: NodeInfo, pod_of: Callable[[str], ClusterPod | None]) -> ClusterNode:
    """Return the node as its kubelet decided on it."""
    pods = [
        pod_of(uid)
        or ClusterPod(
            info.pod.namespace,
            info.pod.name,
            uid,
            constraints=info.constraints,
            requests=info.requests,
            admission=info.pod,
        )
        for uid, info in found.pods.items()
    ]
    bare = ClusterNode(
        found.name,
        labels=found.labels,
        taints=found.taints,
        allocatable=found.allocatable,
        pod_slots=found.pod_slots,
        pressures=found.pressures,
        os=found.os,
    )
    return bare.with_pods(pods).with_state(found.state)


def _names(expectation: Expectation) -> dict[str, str]:
    """Return UID → namespace/name of the pods that were on the node."""
    pods = {} if expectation.found is None else expectation.found.pods
    return {uid: f"{info.pod.namespace}/{info.pod.name}" for uid, info in pods.items()}


def _holders(found: Explanation, names: Mapping[str, str]) -> Iterator[str]:
    """Say who held what was missing, where the pod came nearest."""
    most = [f"{names.get(uid, uid)} ({amount})" for uid, amount in found.holders]
    if most:
        where = name_numas(cpuset.of(found.shortages[0].numas))
        yield f"the missing resources on {where} are held by {some_of(most, most=_MAX_HOLDERS)}"
