"""Takes each change through the operator's parts, in this order.

    event → predict the binding → record → compare with the outcome → forecast → publish

Reflectors put objects into the tables of ``ClusterState``. A pod's change is taken through ``pod_changed``,
synchronously, so that each binding is predicted for the node as its kubelet will find it: before the node
counts the pod, after it counts all earlier ones. Nodes, zones and Leases only change the state. Changes are
collected for a moment, then the forecasts that they touch are renewed, and the predictions that changed are
offered to the publisher, which writes them on the replica that leads.
"""

import asyncio
import time
from collections.abc import Callable, Iterable

from numazones.cluster.cluster import ClusterPod
from numazones.dra.claims import DeviceClaim
from numazones.dra.devices import Slice
from numazones.prediction.forecast import Prediction
from numazones_client import Client
from numazones_operator.events import EventPoster
from numazones_operator.faults import ObjectFaults, of_pod, of_subject
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.cluster_state import Clock, ClusterState
from numazones_operator.options import OperatorOptions
from numazones_operator.predictions.admission_predictions import holders_of
from numazones_operator.predictions.live_forecasts import LiveForecasts
from numazones_operator.predictions.publisher import PredictionPublisher
from numazones_operator.predictions.verdict_events import VerdictEvents
from numazones_operator.prevention.current_ranking import CurrentRanking
from numazones_operator.rebalance.objects import PolicyObject
from numazones_operator.verification.device_verifier import DeviceVerifier
from numazones_operator.verification.misses import Misses
from numazones_operator.verification.verifier import Expectation, Verifier

NOT_BY_PREEMPTION = (
    "kube-scheduler does not preempt pods to make room on a NUMA node; a RebalancePolicy with pendingPods "
    "can make room"
)
"""Whose business such room is."""


class Pipeline:
    """The parts that a change passes, in the order in which it passes them."""

    def __init__(
        self,
        client: Client,
        options: OperatorOptions,
        *,
        events: EventPoster,
        metrics: Metrics,
        faults: ObjectFaults | None = None,
        counts: Callable[[], bool] = lambda: True,
        recommendation_for: Callable[[str], str] = lambda _uid: "",
        policies: Callable[[], Iterable[PolicyObject]] = tuple,
        clock: Clock = time.monotonic,
        wall: Clock = time.time,
    ) -> None:
        """``counts``: whether this replica is the one that counts outcomes; all of them expect them.

        ``recommendation_for`` names the recommendation in force that makes room for the waiting pod of a UID;
        ``policies``: the RebalancePolicies, whose shapes may matter for where pods go.
        """
        self._debounce = options.debounce
        self.faults = faults or ObjectFaults()
        self._recommendation_for = recommendation_for
        self.state = ClusterState(
            settle=options.settle,
            pod_changed=self.pod_changed,
            settings=options.settings_of_models,
            faults=self.faults,
            clock=clock,
            wall=wall,
        )
        self.verifier = Verifier(
            metrics=metrics, counts=counts, fates=self.state.fates, faults=self.faults, clock=clock
        )
        self.device_verifier = DeviceVerifier(
            metrics=metrics,
            devices=lambda: self.state.devices.current,
            pod=self.state.pods.get,
            node=self.state.node,
            counts=counts,
            faults=self.faults,
            clock=clock,
        )
        self.state.devices.claim_changes = self._claim_changes
        self.state.devices.slice_changes = self._slice_changes
        self.ranking = CurrentRanking(
            options.ranking, self.state, policies, collects=options.collects_shapes, clock=clock
        )
        self.forecasts = LiveForecasts(
            self.state,
            metrics=metrics,
            candidates=options.candidates,
            ranking=self.ranking,
            faults=self.faults,
        )
        self.verdict_events = VerdictEvents(
            events, interval=options.event_interval, detail=self._detail, faults=self.faults, clock=clock
        )
        self.publisher = PredictionPublisher(
            client,
            rate=options.write_rate,
            metrics=metrics,
            verdict_events=self.verdict_events,
            pod_of=self.state.pods.get,
            expects=self.verifier.expects,
            name_of=self.state.name_of,
            recommendation_for=recommendation_for,
            faults=self.faults,
            clock=clock,
        )
        self.misses = Misses(client, namespace=options.namespace, faults=self.faults, wall=wall)
        self.synced = False
        """Whether everything was listed; bindings that were not seen to happen are not predicted."""
        self.idle = asyncio.Event()
        """Set while no forecasts are being renewed; what can wait waits for it."""
        self.idle.set()
        self.renewed = asyncio.Event()
        """Set after each batch of forecasts; cleared by who waits for it."""

    def _detail(self, pod: ClusterPod, prediction: Prediction) -> str:
        """Return who holds what a pod lacks, and the recommendation that might make room for it."""
        held = [name for reason in prediction.reasons[:1] for name in holders_of(reason, self.state.name_of)]
        there = f"; the missing resources there are held by {', '.join(held)}" if held else ""
        if recommendation := self._recommendation_for(pod.uid):
            return f"{there}; RebalanceRecommendation {recommendation} would make room for it"
        return f"{there}; {NOT_BY_PREEMPTION}" if held and prediction.possible else there

    def pod_changed(self, old: ClusterPod | None, new: ClusterPod | None) -> None:
        """Take in a change of a pod; ``old`` is None for a new pod, ``new`` is None for one that is gone."""
        pod = new or old
        if pod is None:
            return
        about = of_pod(pod)
        with self.faults.of(about):
            self.state.let_go(old, new)
        expectation = None
        if new is not None:
            with self.faults.of(about):
                expectation = self._predict_binding(new)
        with self.faults.of(about):
            self.state.record_pod(old, new, rejected=expectation is not None and expectation.rejected)
        with self.faults.of(about):
            if new is not None:
                self._compare(old, new)
            else:
                self.verifier.forget(pod.uid)
                self.publisher.forget(pod)

    def _claim_changes(self, old: DeviceClaim | None, new: DeviceClaim | None) -> None:
        """Foresee devices when a claim is allocated, and compare them with those that it got."""
        claim = new or old
        if claim is not None and self.synced:
            with self.faults.of(of_subject(claim)):
                self.device_verifier.claim_changes(old, new)

    def _slice_changes(self, old: Slice | None, new: Slice | None) -> None:
        for one in (new or old,):
            if one is not None:
                with self.faults.of(of_subject(one)):
                    self.device_verifier.slice_changes(old, new)

    def _predict_binding(self, pod: ClusterPod) -> Expectation | None:
        """Predict what the kubelet will do with a pod that just got its node."""
        if not self.synced or not self.state.is_binding(pod):
            return None
        return self.verifier.bound(pod, self.state.as_found(pod.node), self.state.node(pod.node))

    def _compare(self, old: ClusterPod | None, pod: ClusterPod) -> None:
        """Publish a prediction's outcome as soon as the kubelet has written it."""
        news = self.synced and (old is None or not old.terminal)
        verification = self.verifier.compare(pod, news=news, node=lambda: self.state.as_found(pod.node))
        if verification is not None:
            self.publisher.take_outcome(pod, verification)
        elif pod.node:
            self.publisher.complete(pod)

    def explain_misses(self) -> None:
        """Publish why predictions were wrong, where that has become known; call it now and then."""
        self.device_verifier.judge()
        for pod, verification in self.verifier.judge():
            with self.faults.of(of_pod(pod)):
                self.publisher.take_outcome(pod, verification)
                self.misses.take(verification)

    async def run(self) -> None:
        """Forecast and publish until cancelled."""
        while True:
            await self.state.changed.wait()
            await asyncio.sleep(self._debounce)
            self.state.changed.clear()
            await self.renew()

    async def only_mirror(self) -> None:
        """Take changes in until cancelled, and predict nothing: for a replica that publishes nothing."""
        while True:
            await self.state.changed.wait()
            self.state.changed.clear()
            self.state.changed_nodes.clear()
            self.state.changed_pods.clear()

    async def renew(self) -> None:
        """Renew the forecasts that changes touch; publish the predictions that changed."""
        self.idle.clear()
        try:
            async for pods, prediction, since in self.forecasts.renew():
                for pod in pods[:1]:  # all of them are of one kind
                    with self.faults.of(of_pod(pod)):
                        self.publisher.offer(pods, prediction, since)
        finally:
            self.idle.set()
        self.renewed.set()
