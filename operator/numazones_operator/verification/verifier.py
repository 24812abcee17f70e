"""Compares what was predicted for a pod's node with what its kubelet did.

The prediction is made at the moment the binding is seen, from the state in which the kubelet will find the
node; the outcome is what the kubelet writes into the pod's status. A miss is either a fact the model does
not know or a bug, so it is logged with the model's whole explanation.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field, replace

from numazones.cluster.cluster import ClusterNode, ClusterPod, why_undecided
from numazones.errors import NumazonesError
from numazones.kubelet.admission import Admission, remove
from numazones.kubelet.config import SCOPE_POD, SINGLE_NUMA_NODE
from numazones.kubelet.node import Node
from numazones.kubelet.node_admission import NodeAdmission
from numazones.kubelet.node_info import NodeInfo
from numazones.kubelet.pod import Pod
from numazones.kubelet.rejection import SMT_ALIGNMENT, STATUS_PREFIX, TOPOLOGY_AFFINITY
from numazones.placement import ADMITTED, Decision, Placement, Unknown, models
from numazones.placement.kubelet import KUBELET
from numazones.placement.model import Model, kubelet_verdict
from numazones.prediction import forecast as prediction
from numazones_operator.faults import ObjectFaults, of_pod
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.pod_outcomes import PodOutcomes
from numazones_operator.verification import causes
from numazones_operator.verification.causes import Accuracy

NO_NODE = "NoNode"
TOO_LATE = "TooLate"
APPROXIMATE = Unknown(
    "Approximate", "the node publishes no NUMAZones, only a NodeResourceTopology, which is not exact"
)

_PATIENCE = 30.0
"""Seconds for which facts that explain a wrong prediction may arrive; statuses take up to 15."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Expectation:
    """Prediction for a pod on the node that it was bound to."""

    pod: ClusterPod
    predicted: str
    """Admissible, Inadmissible or Unknown."""
    reason: str = ""
    """The kubelet's reason for a predicted rejection, or why nothing could be predicted."""
    message: str = ""
    found: NodeInfo | None = field(default=None, repr=False)
    """The node that the kubelet decided on; None where nothing was predicted, or another model decided."""
    otherwise: NodeInfo | None = field(default=None, repr=False)
    """The same with the pods that were presumed to have gone, or to be rejected."""
    model: str | None = None
    """Who places pods on the node; None where nothing could be predicted."""
    placement: Placement | None = field(default=None, repr=False)
    """What it was decided from; None where nothing was predicted."""
    other_uids: tuple[str, ...] = field(default=(), repr=False)
    """UIDs, as the kubelet knows them, of the other pods that the node was expected to have."""
    uncreated: tuple[Pod, ...] = field(default=(), repr=False)
    """Those of them with containers that had not been created, as far as their statuses told."""
    decision: Decision | None = field(default=None, repr=False)
    """What was decided; where nothing was predicted, what explains the outcome afterwards, or None."""

    @property
    def rejected(self) -> bool:
        """Return whether the node holds nothing for the pod, since it is rejected as a whole."""
        return self.decision is not None and self.decision.holds_nothing

    @property
    def answer(self) -> str:
        """Return the predicted outcome of the pod; empty if nothing could be predicted."""
        if self.decision is None or self.predicted == prediction.UNKNOWN:  # understood only afterwards
            return ""
        return self.decision.outcome

    @property
    def by_kubelet(self) -> bool:
        """Return whether the kubelet's decision settles it, rather than that of another model."""
        return self.verdict is not None

    @property
    def verdict(self) -> NodeAdmission | None:
        """Return the kubelet's decision, if that settles it."""
        return None if self.decision is None else self.decision.by_kubelet

    @property
    def admission(self) -> Admission | None:
        """Return the resource managers' decision; None if the pod did not come so far, or it is unknown."""
        return None if self.verdict is None else self.verdict.managers


@dataclass(frozen=True, slots=True)
class Verification:
    """A prediction beside its outcome."""

    expectation: Expectation
    actual: str
    """Admitted, or the reason in the pod's status."""
    message: str = ""
    accuracy: Accuracy | None = None
    """None: the prediction was wrong, and it is not known yet why."""
    done: str = ""
    """What became of the pod: ``actual``, and what the model wrote that it gave it."""

    @property
    def hit(self) -> bool | None:
        """Return whether the prediction was right; None if there was none."""
        return self.done == self.expectation.answer if self.expectation.answer else None


@dataclass
class Verifier:
    """Holds expectations until their outcome is seen."""

    _: KW_ONLY
    metrics: Metrics
    counts: Callable[[], bool] = lambda: True
    """Returns whether this replica is the one that counts and reports; all of them expect."""
    fates: Callable[[str, Iterable[str]], PodOutcomes] = lambda _node, _uids: PodOutcomes()
    """Returns what is known now of the pods of these UIDs on a node."""
    faults: ObjectFaults = field(default_factory=ObjectFaults)
    clock: Callable[[], float] = time.monotonic
    _expectations: dict[str, Expectation] = field(init=False, default_factory=dict)
    _wrong: dict[str, tuple[ClusterPod, Verification, float]] = field(init=False, default_factory=dict)
    """UID → pod, wrong prediction, until when it may be explained."""

    def __post_init__(self) -> None:
        self.metrics.expect_accuracies(Accuracy)

    def bound(
        self, pod: ClusterPod, node: ClusterNode | None, otherwise: ClusterNode | None = None
    ) -> Expectation | None:
        """Predict the outcome of a pod that just got a node; None if it is known already.

        ``node`` as its kubelet most likely finds it, ``otherwise`` with all pods that it may still have.
        """
        if kubelet_verdict(pod) is not None or pod.phase != "Pending":
            return None
        expectation = self._predict(pod, node, otherwise)
        # Pods that NUMA placement does not concern fill nodes, too, but nobody is told about them.
        if _is_concerned(pod) or _model(expectation).places_every_pod:
            self._expectations[pod.uid] = expectation
        return expectation

    def expects(self, uid: str) -> bool:
        """Return whether the outcome of a pod is awaited."""
        return uid in self._expectations

    def forget(self, uid: str) -> None:
        """Drop the expectation about a pod that is gone."""
        self._expectations.pop(uid, None)

    def compare(
        self, new: ClusterPod, *, news: bool = False, node: Callable[[], ClusterNode | None] = lambda: None
    ) -> Verification | None:
        """Compare what was expected of a pod with its outcome; None while there is none, or if that was done.

        ``news``: whether a status like this was not seen before; ``node``: as its kubelet most likely has it
        now, for a rejection that nothing was predicted of.
        """
        expectation = self._expectations.get(new.uid)
        if (
            expectation is None
            and news
            and _is_concerned(new)
            and kubelet_verdict(new) not in {None, ADMITTED}
        ):
            expectation = Expectation(
                new, prediction.UNKNOWN, TOO_LATE, "the operator did not see the pod being bound"
            )
        actual = None if expectation is None else _model(expectation).verdict(new)
        if actual is None or expectation is None:
            return None
        self._expectations.pop(new.uid, None)
        if not self.counts():
            return None
        if expectation.predicted == prediction.UNKNOWN and actual != ADMITTED:
            expectation = self._after_the_fact(expectation, actual, node())
        self.metrics.outcomes.labels(expectation.predicted, actual).inc()
        if actual != ADMITTED:
            self.metrics.owner_rejections.count(new, actual)
        done = _model(expectation).outcome(actual, new.annotations)
        message = new.create_error or new.message.removeprefix(STATUS_PREFIX)
        verification = Verification(expectation, actual, message, done=done)
        if verification.hit is False:
            self._wrong[new.uid] = (new, verification, self.clock() + _PATIENCE)
            return verification
        accuracy = Accuracy.UNKNOWN if verification.hit is None else Accuracy.RIGHT
        self.metrics.count_accuracy(accuracy, expectation.model)
        return replace(verification, accuracy=accuracy)

    def judge(self) -> Iterator[tuple[ClusterPod, Verification]]:
        """Yield the wrong predictions whose reason has become known, or never will."""
        now = self.clock()
        for uid, (pod, verification, until) in list(self._wrong.items()):
            judged = None
            try:
                judged = self._judge(pod, verification, is_last=now >= until)
            except Exception as error:  # noqa: BLE001 - it concerns this pod alone
                self.faults.take(of_pod(pod), error)
                del self._wrong[uid]
            if judged is not None:
                del self._wrong[uid]
                yield pod, judged

    def _judge(self, pod: ClusterPod, verification: Verification, *, is_last: bool) -> Verification | None:
        """Return a wrong prediction with its reason; None while that may still become known."""
        expectation = verification.expectation
        why = self._cause(expectation, verification)
        if why is Accuracy.MODEL and not is_last:
            return None
        judged = replace(verification, accuracy=why)
        self.metrics.count_accuracy(why, expectation.model)
        level = logging.WARNING if why is Accuracy.MODEL else logging.INFO
        fields = {"miss": True, "accuracy": why.value, "pod": pod.full_name}
        _log.log(level, "%s", miss_report(judged), extra={"fields": fields})
        return judged

    def _cause(self, expectation: Expectation, verification: Verification) -> Accuracy:
        pod = expectation.pod
        if expectation.decision is not None and expectation.placement and not expectation.by_kubelet:
            why = causes.cause_elsewhere(
                pod.info.pod,
                verification.done,
                expected=expectation.placement,
                uncreated=expectation.uncreated,
                fates=self.fates(pod.node, expectation.other_uids),
            )
            # It was admitted, as foreseen; who came or went meanwhile changed but what it was given.
            as_foreseen = expectation.decision.admitted and verification.actual == ADMITTED
            return Accuracy.RIGHT if why is Accuracy.RACE and as_foreseen else why
        if expectation.found is None:
            return Accuracy.MODEL
        fullest = expectation.otherwise or expectation.found
        return causes.cause(
            pod.info,
            verification.actual,
            found=expectation.found,
            otherwise=expectation.otherwise,
            fates=self.fates(pod.node, fullest.pods),
        )

    def _after_the_fact(self, expectation: Expectation, actual: str, node: ClusterNode | None) -> Expectation:
        """The expectation with what the model says now, where that is what the kubelet said."""
        late = self._predict(expectation.pod, node, None)
        if not late.by_kubelet or late.answer != actual:
            return expectation
        return replace(expectation, decision=late.decision, found=late.found, model=late.model)

    def _predict(
        self, pod: ClusterPod, node: ClusterNode | None, otherwise: ClusterNode | None
    ) -> Expectation:
        if pod.admission is None:
            return Expectation(pod, prediction.UNKNOWN, prediction.UNREADABLE_POD, pod.problem)
        if node is None:
            return Expectation(pod, prediction.UNKNOWN, NO_NODE, f"Node {pod.node} does not exist")
        placement = prediction.deciding(pod.constraints, node)
        if isinstance(placement, Unknown) or placement.approximate:
            unknown = placement if isinstance(placement, Unknown) else APPROXIMATE
            return Expectation(pod, prediction.UNKNOWN, unknown.reason, unknown.message)
        try:
            return self._decide(pod, node, placement, otherwise)
        except NumazonesError as error:
            return Expectation(pod, prediction.UNKNOWN, why_undecided(error), str(error))

    def _decide(
        self, pod: ClusterPod, node: ClusterNode, placement: Placement, otherwise: ClusterNode | None
    ) -> Expectation:
        found: NodeInfo | None = None

        def info(state: Node) -> NodeInfo:
            nonlocal found
            found = node.info(state, beside=pod.uid)
            return found

        started = time.perf_counter()
        # What the node tells may have come sooner than the binding, and show the pod already.
        decision = placement.remove(pod.kubelet_uid).admit_bound(pod.info, info)
        verdict = decision.by_kubelet
        if verdict is not None and verdict.managers is not None and prediction.relevant(pod):
            self._count(verdict.managers, time.perf_counter() - started)
        found_otherwise = None
        if verdict is not None and otherwise is not None and otherwise.state is not None:
            found_otherwise = otherwise.info(remove(otherwise.state, pod.kubelet_uid), beside=pod.uid)
        others = [other for other in node.pods.values() if other.uid != pod.uid]
        return Expectation(
            pod,
            prediction.ADMISSIBLE if decision.admitted else prediction.INADMISSIBLE,
            decision.reason,
            decision.message,
            found=None if verdict is None else found,
            otherwise=found_otherwise,
            model=placement.model.name,
            placement=placement,
            other_uids=tuple(other.kubelet_uid for other in others),
            uncreated=tuple(other.info.pod for other in others if other.uncreated),
            decision=decision,
        )

    def _count(self, admission: Admission, seconds: float) -> None:
        if not self.counts():
            return
        self.metrics.admission_seconds.observe(seconds)
        self.metrics.admission_requests.inc()
        if not admission.admitted:
            self.metrics.admission_errors.labels(admission.reason).inc()
        aligned, failed = alignment(admission)
        for scope, boundary in aligned:
            self.metrics.aligned.labels(scope, boundary).inc()
        for scope, boundary in failed:
            self.metrics.unaligned.labels(scope, boundary).inc()


def _is_concerned(pod: ClusterPod) -> bool:
    """Return whether a pod's outcome matters: NUMA placement concerns it, or may seem to.

    What it makes of resources of a pod as a whole depends on its kubelet, so who writes them wants to know.
    """
    return prediction.relevant(pod) or (pod.admission is not None and pod.admission.resources is not None)


def _model(expectation: Expectation) -> Model:
    """The model that decides on the pod's node; the kubelet's where that is not known."""
    return models.model(expectation.model or KUBELET)


def alignment(admission: Admission) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return what the kubelet would count as aligned and as not, as (scope, boundary) pairs.

    As kubelet 1.36 counts: boundary numa_node under single-numa-node, once per pod or per container by
    scope; physical_cpu under full-pcpus-only and uncore_cache wherever a grant lies within one cache, once
    per container with exclusive CPUs.
    """
    kubelet = admission.before.kubelet
    scope = admission.before.config.topology_manager_scope
    single = admission.before.config.topology_manager_policy == SINGLE_NUMA_NODE
    if not admission.admitted:
        failed = []
        if single and admission.reason == TOPOLOGY_AFFINITY:
            failed.append((scope, "numa_node"))
        if kubelet.cpus.full_cores_only and admission.reason == SMT_ALIGNMENT:
            failed.append(("container", "physical_cpu"))
        return [], failed
    times = 1 if scope == SCOPE_POD else len(admission.containers)
    aligned = [(scope, "numa_node")] * times if single else []
    caches = kubelet.cpus.topology.uncore_caches.values()
    for container in admission.containers.values():
        if not container.cpus:
            continue
        if kubelet.cpus.full_cores_only:
            aligned.append(("container", "physical_cpu"))
        if any(container.cpus & ~cache == 0 for cache in caches):
            aligned.append(("container", "uncore_cache"))
    return aligned, []


def miss_report(verification: Verification) -> str:
    """Return everything that helps to find out why a prediction was wrong."""
    expectation = verification.expectation
    pod = expectation.pod
    lines = [
        f"pod {pod.full_name} on node {pod.node}: predicted {expectation.predicted}"
        + (f" ({expectation.reason}: {expectation.message})" if expectation.reason else "")
        + f", but the outcome was {verification.actual}"
        + (f" ({verification.message})" if verification.message else "")
        + (f"; cause: {verification.accuracy.lower()}" if verification.accuracy else "")
    ]
    if expectation.decision is not None:
        if not expectation.by_kubelet:
            lines.append(f"predicted: {expectation.answer}; observed: {verification.done}")
        lines.extend(expectation.decision.explain())
    return "\n".join(lines)
