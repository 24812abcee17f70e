"""Prospects of pods without a node: what is predicted for them, and what else they wait for.

Pods of one kind share an answer, so that a list of a thousand pods asks the nodes once per kind.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from kubectl_numazones.printing import answers
from kubectl_numazones.reading.cluster import ClusterView
from kubectl_numazones.reading.files import Object
from kubectl_numazones.reading.pod_reports import reference_of
from kubectl_numazones.stuck.gated_pods import OPERATOR
from numazones.cluster.cluster import ClusterPod
from numazones.cluster.waiting import PodContext, Wait, lost_nodes, waits
from numazones.prediction import held_room
from numazones.prediction.forecast import ADMISSIBLE, Forecast, PodKind, Prediction
from numazones.prediction.stuck import PodCounts, Waiting

_NAME_LABEL = "app.kubernetes.io/name"


class Outlooks:
    """Prospects of the pods of one cluster, each kind of pod asked about once."""

    def __init__(self, seen: ClusterView) -> None:
        self.seen = seen
        self._forecasts: dict[PodKind, tuple[Forecast, Prediction]] = {}
        self._held: dict[tuple[PodKind | None, int | None], tuple[str, ...]] = {}

    def prediction(self, pod: ClusterPod) -> Prediction:
        """Return what is predicted for a pod, as if it were created now."""
        return self._asked(pod)[1]

    def forecast(self, pod: ClusterPod) -> Forecast | None:
        """Return what each node says of a pod; None if the pod cannot be read."""
        return self._asked(pod)[0]

    def _asked(self, pod: ClusterPod) -> tuple[Forecast | None, Prediction]:
        kind = PodKind.of(answers.unbound_copy(pod))
        if kind is None:
            return None, answers.prediction_of(pod, None)
        if kind not in self._forecasts:
            forecast = Forecast(kind)
            forecast.renew(self.seen.situation.cluster.nodes.values())
            self._forecasts[kind] = forecast, answers.prediction_of(pod, forecast)
        return self._forecasts[kind]

    def waits(
        self, pod: ClusterPod, prediction: Prediction, events: Sequence[Object] = ()
    ) -> tuple[Wait, ...]:
        """Return what a pod waits for, whatever the nodes say.

        ``events``: those about the pod; a dump's are known.
        """
        return waits(
            pod,
            self._context(pod, events or self._events.get((pod.namespace, pod.name), ())),
            admissible=prediction.verdict == ADMISSIBLE,
            held=bool(self.held(pod, prediction)),
            lost=lost_nodes(pod, self.seen.situation.cluster.nodes.values()),
        )

    def held(self, pod: ClusterPod, prediction: Prediction) -> tuple[str, ...]:
        """Say for which pods room is held, if no node would admit the pod next to those on their way."""
        if prediction.verdict != ADMISSIBLE:
            return ()
        key = (PodKind.of(pod), pod.priority)
        if key not in self._held:
            self._held[key] = tuple(self._held_before(pod, prediction))
        return self._held[key]

    def _held_before(self, pod: ClusterPod, prediction: Prediction) -> Iterable[str]:
        cluster = self.seen.situation.cluster
        now = self.seen.situation.context.now.timestamp()
        others = held_room.held(cluster.pending.values(), list(cluster.nodes.values()), now=now, asking=pod)
        return held_room.in_the_way(pod, prediction, cluster.nodes.get, held_room.by_node(others))

    def counts(self, wanted: Callable[[ClusterPod], bool] = lambda _: True) -> PodCounts:
        """Count the stuck and the rejected pods of those that are wanted."""
        return PodCounts.of(self._waiting(wanted), filter(wanted, self.seen.ended))

    def _waiting(self, wanted: Callable[[ClusterPod], bool]) -> Iterator[Waiting]:
        for pod in filter(wanted, self.seen.situation.cluster.pending.values()):
            prediction = self.prediction(pod)
            yield Waiting(pod, prediction, self.waits(pod, prediction))

    def _context(self, pod: ClusterPod, events: Sequence[Object]) -> PodContext:
        known, kinds = self.seen.situation.context, self.seen.kinds
        return PodContext(
            known.namespace_labels.get(pod.namespace) if "Namespace" in kinds else None,
            self._operator_runs,
            self._served,
            self._claims.get(pod.namespace, ()) if "PersistentVolumeClaim" in kinds else None,
            events,
        )

    @cached_property
    def _operator_runs(self) -> bool:
        return any(
            pod.labels.get(_NAME_LABEL) == OPERATOR and pod.phase == "Running" for pod in self.seen.pods
        )

    @cached_property
    def _served(self) -> frozenset[str]:
        """Return the names of the schedulers that were seen at work."""
        return frozenset(
            pod.constraints.scheduler_name
            for pod in self.seen.pods
            if pod.node or (pod.scheduled is not None and not pod.constraints.scheduling_gates)
        )

    @cached_property
    def _events(self) -> dict[tuple[str, str], list[Object]]:
        """Return the events of a dump by namespace and name of the pod that they are about."""
        events: dict[tuple[str, str], list[Object]] = {}
        for item in self.seen.said:
            if item["kind"] == "Event":
                about = reference_of(item)
                events.setdefault((str(about.get("namespace")), str(about.get("name"))), []).append(item)
        return events

    @cached_property
    def _claims(self) -> dict[str, set[str]]:
        """Return the names of the claims by namespace."""
        claims: dict[str, set[str]] = {}
        for namespace, name in self.seen.situation.context.storage_classes:
            claims.setdefault(namespace, set()).add(name)
        return claims
