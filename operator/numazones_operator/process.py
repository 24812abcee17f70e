"""The running operator: what is started, in which order, and how it ends.

Every replica mirrors the cluster and predicts (``pipeline``); the one that leads writes, releases gated pods,
rebalances and runs kopf's handlers, for as long as it leads (``leadership``, ``kopf_operator``). Every
task runs until it is cancelled; one that ends by itself is a bug that no retry mends, so it is logged,
``/healthz`` fails, and the process stops.
"""

import asyncio
import contextlib
import gc
import logging
import secrets
import socket
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from numazones.api.meta import NODE_LABEL
from numazones_client import Client, ClusterConfig, Decoder, Pace, Reflector, RetryPolicy, by_uid, load
from numazones_client.resources import (
    ADMISSION_PREDICTIONS,
    DEFINITIONS,
    DEVICE_CLASSES,
    LEASES,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    NUMAZONES,
    PODS,
    REBALANCE_POLICIES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from numazones_operator.events import EventPoster
from numazones_operator.faults import ObjectFaults
from numazones_operator.garbage_collection import GarbageCollection
from numazones_operator.handlers import Memo
from numazones_operator.kopf_operator import run_kopf
from numazones_operator.leadership import Leadership, Term
from numazones_operator.metrics.registry import GaugeCollector, Metrics
from numazones_operator.mirror import decoding
from numazones_operator.mirror.admission_policies import AdmissionPolicies
from numazones_operator.mirror.cluster_gauges import ClusterGauges
from numazones_operator.mirror.definitions import Definition, Definitions
from numazones_operator.notices.shared_cpu_events import SharedCPUEvents
from numazones_operator.notices.stale_exporters import StaleExporters
from numazones_operator.notices.unreadable_objects import UnreadableObjects
from numazones_operator.notices.zone_placements import ZonePlacements
from numazones_operator.options import OperatorOptions
from numazones_operator.page.server import LivePage
from numazones_operator.page.updater import PageUpdater
from numazones_operator.page.usage import PageUsage
from numazones_operator.pipeline import Pipeline
from numazones_operator.predictions.admission_predictions import PublishedPrediction
from numazones_operator.predictions.gauges import PredictionGauges, QueueGauges
from numazones_operator.prevention.admission_gates import AdmissionGates
from numazones_operator.prevention.extender.extender import Extender
from numazones_operator.prevention.extender.metrics import ExtenderMetrics, HeldRoomGauges
from numazones_operator.prevention.extender.server import ExtenderServer
from numazones_operator.prevention.extender.unknown_nodes import UnknownNodes
from numazones_operator.prevention.gate_remover import GateRemover
from numazones_operator.prevention.gauges import GateGauges, WaitingPodsGauges
from numazones_operator.prevention.held_room import HeldRoom
from numazones_operator.prevention.pods_with_lost_nodes import PodsWithLostNodes
from numazones_operator.prevention.preempting_pods import PreemptingPods
from numazones_operator.prevention.removable_gates import RemovableGates
from numazones_operator.rebalance.executor import Executor
from numazones_operator.rebalance.inputs import Inputs
from numazones_operator.rebalance.intent import Intent
from numazones_operator.rebalance.metrics import RebalanceGauges, RebalanceMetrics
from numazones_operator.rebalance.objects import PolicyObject
from numazones_operator.rebalance.proposer import Proposer
from numazones_operator.rebalance.readiness import Readiness
from numazones_operator.rebalance.rebalancing import Rebalancing
from numazones_operator.rebalance.statuses import Statuses
from numazones_operator.rebalance.steps import Steps
from numazones_program import logs, probes
from numazones_program.signals import ending_signals

LEASE_NAME = "numazones-operator"

_SHUTDOWN_PATIENCE = 3.0
_EXPIRY_PERIOD = 1.0
_POLICY_PATIENCE = 2.0
"""Seconds to wait for admission policies, which the operator may not be allowed to read."""
_DEFINITIONS_PER_PAGE = 25
"""Each may be a megabyte."""

_log = logging.getLogger(__name__)


def run(options: OperatorOptions) -> int:
    """Run until a signal arrives; return the exit status."""
    logs.configure(style=options.log_format, level=options.log_level)
    # kopf tells of every step of its own start; only its complaints are news here.
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLogger().level))
    operator = Operator(options, asyncio.run(load(options.kubeconfig)))
    asyncio.run(operator.run())
    return 1 if operator.failed else 0


class Operator:
    """All parts of one operator, put together."""

    def __init__(self, options: OperatorOptions, config: ClusterConfig) -> None:
        self.options = options
        self.config = config
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)
        self.extender_metrics = ExtenderMetrics(self.registry)
        self.identity = options.identity or f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self.port = 0
        """Where /metrics, /healthz and /readyz are served, once started."""
        self.probe_port = 0
        """Where /healthz and /readyz are served apart, once started."""
        self.page_port = 0
        """Where the live page is served, once started."""
        self.extender_port = 0
        """Where the scheduler extender is served, once started."""
        self.ready = asyncio.Event()
        """Set once everything was listed."""
        self.failed = ""
        """Which task ended by itself, and why; empty while all is well."""
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.client = Client(config, user_agent="numazones-operator", retry=RetryPolicy())
        """The connection to the API server that all parts share."""
        self.events = EventPoster(
            self.client, identity=self.identity, rate=options.event_rate, metrics=self.metrics
        )
        self.unreadable = UnreadableObjects(self.events, count=self.metrics.count_object_error)
        self.faults = ObjectFaults(count=self.metrics.count_object_error, tell=self.unreadable.take_undecided)
        self.leadership = self._leadership()
        self.pipeline = Pipeline(
            self.client,
            options,
            events=self.events,
            metrics=self.metrics,
            faults=self.faults,
            counts=lambda: self.leadership.leading,
            recommendation_for=lambda uid: self.intent.made_for.get(uid, ""),
            policies=lambda: self.intent.policies,
        )
        self.intent = Intent(
            self.client, made_for_changed=self.pipeline.publisher.refresh, faults=self.faults
        )
        self.admission_policies = AdmissionPolicies()
        self.inputs = Inputs(self.intent, injected=self.admission_policies.gates, faults=self.faults)
        self.readiness = Readiness(self.client, self.inputs, follows=options.rebalance, faults=self.faults)
        self.steps = self._steps()
        self.rebalancing = self._rebalancing()
        self.held = HeldRoom(self.pipeline.state, proven=self.admission_policies.proves)
        self.gates = self._gates()
        self.pods_with_lost_nodes = self._pods_with_lost_nodes()
        self.definitions = Definitions(known=lambda: not self.definitions_reflector.problem)
        self.definitions_reflector = self._definitions_reflector()
        self.reflectors = tuple(self._reflectors())
        self.policy_reflectors = tuple(self._policy_reflectors())
        self.admission_policies.known = self._admission_policies_known
        self.collectors = self._collectors()
        for collector in self.collectors:
            self.registry.register(collector)

    async def run(self) -> None:
        """Run until ``stop`` is called or a signal arrives."""
        async with AsyncExitStack() as resources:
            resources.enter_context(GarbageCollection())
            self._answer_signals()
            self._open_probes(resources)
            await self._open_page(resources)
            await self._open_extender(resources)
            await resources.enter_async_context(self.client)
            for reflector in (self.definitions_reflector, *self.reflectors, *self.policy_reflectors):
                self.start_task(reflector.run(), name=f"reflector of {reflector.name}")
            self.start_task(self._watch_over_time(), name="expiry")
            self.start_task(self._work(), name="predictions")
            try:
                await self._stop.wait()
            finally:
                await self._end()

    def _open_probes(self, resources: AsyncExitStack) -> None:
        """Serve metrics and, if an address is set for them, probes apart from these."""
        loop = asyncio.get_running_loop()
        health = probes.probes(
            health_problems=self._failures, readiness_problems=self._missing_parts, loop=loop
        )
        answer = probes.metrics(self.registry, health, refresh=self._renew_gauges, loop=loop)
        serve = probes.serve(self.options.probe_address, health, name="probes")
        self.probe_port = resources.enter_context(serve)
        self.port = resources.enter_context(probes.serve(self.options.metrics_address, answer))

    async def _open_page(self, resources: AsyncExitStack) -> None:
        """Serve the live page, if an address is set for it."""
        options = self.options
        if not options.page_address:
            return
        updater = PageUpdater(
            self.pipeline,
            self.inputs,
            self.held,
            usage=PageUsage.of(options, self.client),
            options=options,
            metrics=self.metrics,
            identity=self.identity,
        )
        page = LivePage(updater, viewers=options.page_viewers, title=f"{self.identity} · numazones")
        self.page_port = await resources.enter_async_context(page.serve(options.page_address))
        self.start_task(updater.run(), name="page")

    async def _open_extender(self, resources: AsyncExitStack) -> None:
        """Serve the scheduler extender, if an address is set for it."""
        options = self.options
        if not options.extender_address:
            return
        extender = Extender(
            self.client,
            self.pipeline.state,
            self.held,
            unknown=UnknownNodes(options.extender_unknown_nodes),
            ranking=self.pipeline.ranking,
            metrics=self.extender_metrics,
            ready=self.ready.is_set,
        )
        server = ExtenderServer(
            extender, metrics=self.extender_metrics, certificates=options.extender_certificates
        )
        self.extender_port = await resources.enter_async_context(server.serve(options.extender_address))
        self.extender_metrics.serving.set(1)
        self.start_task(extender.rejected.run(), name="rejected pods")

    def stop(self) -> None:
        """Let ``run`` end, gracefully."""
        self._stop.set()

    def start_task(self, coroutine: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run a coroutine for as long as the operator runs; it must not end by itself."""
        task = asyncio.create_task(coroutine, name=name)
        task.add_done_callback(self._stop_after)
        self._tasks.append(task)

    # What every replica does

    async def _work(self) -> None:
        """Once everything was listed: predict, and stand for election."""
        for reflector in self.reflectors:
            await reflector.synced.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POLICY_PATIENCE):
                for reflector in self.policy_reflectors:
                    await reflector.synced.wait()
        state = self.pipeline.state
        self._note_unreadable_devices()
        _log.info(
            "synced: %d nodes, %d pods, %d NUMAZones", len(state.nodes), len(state.pods), len(state.zones)
        )
        state.all_found()
        self.pipeline.synced = True
        gc.freeze()  # whoever asks from now on does not wait for a walk through the mirror
        self.ready.set()
        if not self.options.lead:
            await self.pipeline.only_mirror()
        await self.pipeline.renew()
        self.start_task(self.pipeline.run(), name="pipeline")
        if self.options.leader_elect:
            await self.leadership.run()
        else:
            await self.leadership.lead_alone()

    async def _watch_over_time(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_PERIOD)
            for _ in self.pipeline.state.expiring():
                await asyncio.sleep(0)
            self._note_unreadable_devices()
            self.pipeline.explain_misses()

    def _note_unreadable_devices(self) -> None:
        """Let predictions say which right is missing to foresee devices."""
        needed = {one.full_name for one in (DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES)}
        missing = [one.name for one in self.reflectors if one.forbidden and one.name in needed]
        self.pipeline.state.devices.take_unreadable(missing)

    # What the leader does

    async def _lead(self) -> None:
        """Write, release, rebalance and let kopf handle what people write, until cancelled."""
        self.metrics.leader.set(1)
        try:
            async with asyncio.TaskGroup() as tasks:
                for name, duty in self._duties():
                    tasks.create_task(duty, name=name)
        finally:
            self.metrics.leader.set(0)

    def _duties(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        yield "publisher", self.pipeline.publisher.run()
        yield "stale exporters", self._stale_exporters().run()
        yield "zone placements", self._zone_placements().run()
        yield "shared CPUs", SharedCPUEvents(self.pipeline.state, events=self.events).run()
        yield "events", self.events.run()
        yield "verdict events", self.pipeline.verdict_events.run()
        yield "misses", self.pipeline.misses.run()
        yield "unreadable objects", self.unreadable.run()
        yield "kopf", run_kopf(self._memo())
        yield "admission gates", self.gates.run()
        if self.options.admission_gate:
            yield "pods with lost nodes", self.pods_with_lost_nodes.run()
        if self.options.rebalance:
            yield "rebalancing", self.rebalancing.run()

    def _stale_exporters(self) -> StaleExporters:
        return StaleExporters(
            self.client,
            self.pipeline.state,
            namespace=self.options.exporter_namespace,
            metrics=self.metrics,
        )

    def _zone_placements(self) -> ZonePlacements:
        return ZonePlacements(
            self.client,
            self.pipeline.state,
            rate=self.options.write_rate,
            events=self.events,
            metrics=self.metrics,
        )

    def _memo(self) -> Memo:
        return Memo(
            main_loop=asyncio.get_running_loop(),
            config=self.config,
            identity=self.identity,
            events=self.events,
            intent=self.intent,
            readiness=self.readiness,
            gates=self.options.admission_gate,
            appearance=self.definitions.appearance,
        )

    # Putting the parts together

    def _leadership(self) -> Leadership:
        options = self.options
        return Leadership(
            self.client,
            name=LEASE_NAME,
            namespace=options.namespace,
            identity=self.identity,
            term=Term(
                options.leader_elect_lease_duration,
                options.leader_elect_renew_deadline,
                options.leader_elect_retry_period,
            ),
            lead=self._lead,
        )

    def _steps(self) -> Steps:
        options = self.options
        return Steps(
            self.client,
            self.pipeline.state,
            self.inputs,
            gates=options.admission_gate,
            patience=timedelta(seconds=options.rebalance_patience),
            leads=lambda: self.leadership.certain,
        )

    def _rebalancing(self) -> Rebalancing:
        state, metrics = self.pipeline.state, RebalanceMetrics(self.registry)
        statuses = Statuses(self.client, self.intent, events=self.events, metrics=metrics)
        proposer = Proposer(
            self.client,
            state,
            self.pipeline.forecasts,
            self.inputs,
            self.steps,
            statuses=statuses,
            metrics=metrics,
        )
        executor = Executor(
            self.intent,
            self.steps,
            statuses,
            metrics=metrics,
            search_early=proposer.search_early,
        )
        return Rebalancing(
            self.intent,
            self.readiness,
            proposer,
            executor,
            statuses=statuses,
            metrics=metrics,
            faults=self.faults,
            period=self.options.rebalance_period,
        )

    def _gates(self) -> AdmissionGates:
        state, forecasts, may_go = self.pipeline.state, self.pipeline.forecasts, self.steps.may_go
        budgets = (lambda: tuple(self.inputs.budgets)) if self.options.rebalance else None
        return AdmissionGates(
            state,
            forecasts,
            self.held,
            RemovableGates(state, self.intent.namespaces, self.events, self.options.admission_gate),
            GateRemover(self.client, state, self.events, self.metrics, leads=lambda: self.leadership.certain),
            PreemptingPods(state, forecasts, budgets=budgets, may_go=may_go),
            may_go=may_go,
            changed=self.pipeline.renewed,
            timeout=self.options.admission_gate_timeout,
        )

    def _pods_with_lost_nodes(self) -> PodsWithLostNodes:
        return PodsWithLostNodes(
            self.client,
            self.pipeline.state,
            self.events,
            replaces=self.options.admission_gate_replace,
            metrics=self.metrics,
            leads=lambda: self.leadership.certain,
        )

    def _reflectors(self) -> Iterator[Reflector[Any]]:
        state = self.pipeline.state
        pods = Decoder(state.sharing.pod, key=by_uid)
        yield self._reflector(NODES, decoding.NODES, state.nodes)
        yield self._reflector(
            LEASES,
            decoding.HEARTBEATS,
            state.heartbeats,
            namespace=self.options.exporter_namespace,
            label_selector=NODE_LABEL,
        )
        yield self._reflector(NUMAZONES, decoding.ZONES, state.zones)
        yield self._reflector(NODE_RESOURCE_TOPOLOGIES, decoding.TOPOLOGIES, state.topologies, optional=True)
        # Roles of release 0.2.0 grant nothing of devices and of other models' objects.
        later = {"optional": True, "needed": False}
        devices = state.devices
        yield self._reflector(DEVICE_CLASSES, decoding.DEVICE_CLASSES, devices.classes, **later)
        yield self._reflector(RESOURCE_SLICES, decoding.RESOURCE_SLICES, devices.slices, **later)
        yield self._reflector(RESOURCE_CLAIMS, decoding.RESOURCE_CLAIMS, devices.claims, **later)
        templates = decoding.RESOURCE_CLAIM_TEMPLATES
        yield self._reflector(RESOURCE_CLAIM_TEMPLATES, templates, devices.templates, **later)
        for kind, table in state.model_objects.items():
            yield self._reflector(
                Resource(kind.group, kind.version, kind.plural, namespaced=kind.namespaced),
                decoding.MODEL_OBJECTS,
                table,
                **later,
            )
        yield self._reflector(PODS, pods, state.pods)
        if not self.options.lead:
            if self.options.collects_shapes:
                policies = Decoder(PolicyObject.from_api)
                yield self._reflector(REBALANCE_POLICIES, policies, self.intent.policies, optional=True)
            return
        published = Decoder(PublishedPrediction.from_api)
        yield self._reflector(ADMISSION_PREDICTIONS, published, self.pipeline.publisher.published)
        if self.options.rebalance:
            for resource, decoder, table in self.inputs.mirrored():
                yield self._reflector(resource, decoder, table, optional=True)

    def _policy_reflectors(self) -> Iterator[Reflector[Any]]:
        """Yield the policies' reflectors; without rights to them, as before an upgrade, there are none."""
        for resource, decoder, table in self.admission_policies.mirrored(
            injection=self.options.rebalance and self.options.lead
        ):
            yield self._reflector(resource, decoder, table, optional=True)

    def _admission_policies_known(self) -> bool:
        return all(one.synced.is_set() and not one.forbidden for one in self.policy_reflectors)

    def _definitions_reflector(self) -> Reflector[Any]:
        """Nobody waits for it: without the right to read definitions, what may be missing is asked for."""
        options = self.options
        return Reflector(
            self.client,
            DEFINITIONS,
            decoder=Decoder(Definition.from_api),
            table=self.definitions.table,
            metrics=self.metrics,
            pace=Pace(options.watch_duration, options.watch_silence, _DEFINITIONS_PER_PAGE),
        )

    def _reflector(self, resource: Resource, decoder: Any, table: Any, **values: Any) -> Reflector[Any]:
        pace = Pace(self.options.watch_duration, self.options.watch_silence, self.options.page_size)

        def failed(item: Any, error: Exception) -> None:
            self.faults.take(_reference(decoder.kind, item), error)

        return Reflector(
            self.client,
            resource,
            decoder=decoder,
            table=table,
            metrics=self.metrics,
            pace=pace,
            appearance=self.definitions.appearance,
            unreadable=self.unreadable.take,
            failed=failed,
            **values,
        )

    def _collectors(self) -> tuple[GaugeCollector, ...]:
        pipeline = self.pipeline
        return (
            GaugeCollector(ClusterGauges(pipeline.state, self.options.target_shapes), visible=self._leads),
            GaugeCollector(
                PredictionGauges(
                    pipeline.forecasts,
                    recommendation_for=lambda uid: self.intent.made_for.get(uid, ""),
                    faults=self.faults,
                ),
                visible=self._leads,
            ),
            GaugeCollector(GateGauges(self.gates, self.pods_with_lost_nodes), visible=self._leads),
            GaugeCollector(WaitingPodsGauges(pipeline.state), visible=self._leads),
            GaugeCollector(HeldRoomGauges(self.held)),
            GaugeCollector(RebalanceGauges(self.intent), visible=self._leads),
            GaugeCollector(QueueGauges(pipeline.forecasts, pipeline.publisher)),
        )

    def _leads(self) -> bool:
        return self.leadership.leading

    # Ending

    def _answer_signals(self) -> None:
        """End in order on the signals that end programs; only the main thread gets them."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
            for number in ending_signals():
                loop.add_signal_handler(number, self.stop)

    async def _end(self) -> None:
        """Write what waits, give the leader's Lease back."""
        if self.leadership.leading:
            await self.pipeline.publisher.wait_until_written(_SHUTDOWN_PATIENCE)
        for task in self._tasks:
            task.remove_done_callback(self._stop_after)
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        gc.unfreeze()
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
            for number in ending_signals():
                asyncio.get_running_loop().remove_signal_handler(number)

    def _stop_after(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        self.failed = f"task {task.get_name()} ended unexpectedly: {error!r}"
        _log.critical("%s; stopping the operator", self.failed, exc_info=error)
        self._stop.set()

    def _renew_gauges(self) -> None:
        for collector in self.collectors:
            collector.renew()

    def _failures(self) -> list[str]:
        return [self.failed] if self.failed else []

    def _missing_parts(self) -> list[str]:
        problems = [
            f"{reflector.name}: {reflector.problem}"
            for reflector in self.reflectors
            if not reflector.synced.is_set()
        ]
        return problems or ([] if self.ready.is_set() else ["still computing the first predictions"])


def _reference(kind: str, item: Any) -> dict[str, str]:
    """Return the reference to a mirrored object, by what is kept of it."""
    name = getattr(item, "name", "") or getattr(item, "node", "")
    uid = name if kind == "Node" else getattr(item, "uid", "")
    about = {"kind": kind, "name": name, "uid": uid}
    namespace = getattr(item, "namespace", "")
    return about | ({"namespace": namespace} if namespace else {})
