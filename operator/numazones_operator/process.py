"""The running operator: what is started, in which order, and how it ends.

kopf owns the process: signals, start-up, clean-up, our own kinds. Its start-up handler
starts our tasks on its loop, its clean-up handler ends them. Every task runs until it is cancelled; one that
ends by itself is a bug that no retry mends, so it is logged, ``/healthz`` fails, and the process stops.
"""

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import repeat
from typing import Any

import aiohttp
import kopf
from prometheus_client import CollectorRegistry
from prometheus_client.process_collector import ProcessCollector

from numazones.api.meta import NODE_LABEL
from numazones.cluster import ClusterNode, ClusterPod
from numazones.kubelet.admission import Admission
from numazones_client import Client, ClusterConfig, Decoder, Pace, Reflector, RetryPolicy, by_uid, load
from numazones_client.resources import (
    LEASES,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    NUMAZONES,
    PODS,
    Resource,
)
from numazones_operator import decoding, health
from numazones_operator.admission_gates import AdmissionGates
from numazones_operator.admission_predictions import ADMISSION_PREDICTIONS, Published, key_of
from numazones_operator.announcements import Announcements
from numazones_operator.cluster_figures import ClusterFigures
from numazones_operator.cluster_state import ClusterState
from numazones_operator.leadership import Leadership, Term
from numazones_operator.live_forecasts import LiveForecasts
from numazones_operator.metrics import FiguresCollector, Metrics
from numazones_operator.options import Options
from numazones_operator.publisher import Publisher
from numazones_operator.rebalance.controller import Rebalancing
from numazones_operator.rebalance.inputs import Inputs
from numazones_operator.rebalance.metrics import RebalanceMetrics
from numazones_operator.truth import Truth
from numazones_operator.work_figures import PredictionFigures, QueueFigures
from numazones_program import logs

NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
LEASE_NAME = "numazones-operator"

_SHUTDOWN_PATIENCE = 3.0
_EXPIRY_PERIOD = 1.0

_log = logging.getLogger(__name__)


def run(options: Options) -> int:
    """Run until a signal arrives; return the exit status."""
    logs.configure(style=options.log_format, level=options.log_level)
    # kopf tells of every step of its own start; only its complaints are news here.
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLogger().level))
    operator = Operator(options, asyncio.run(load(options.kubeconfig)))
    asyncio.run(operator.run())
    return 1 if operator.failed else 0


class Operator:
    """All parts of one operator, put together."""

    def __init__(
        self, options: Options, config: ClusterConfig, *, registry: CollectorRegistry | None = None
    ) -> None:
        self.options = options
        self.config = config
        self.registry = CollectorRegistry() if registry is None else registry
        self.metrics = Metrics(self.registry)
        self.identity = options.identity or f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self.port = 0
        """Where /metrics, /healthz and /readyz are served, once started."""
        self.ready = asyncio.Event()
        """Set once everything was listed."""
        self.failed = ""
        """Which task ended by itself, and why; empty while all is well."""
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._resources = AsyncExitStack()
        self._client = Client(config, user_agent="numazones-operator", retry=RetryPolicy())
        self.state = ClusterState(settle=options.settle)
        self.leadership = self._leadership()
        self.announcements = Announcements(
            self._client,
            identity=self.identity,
            rate=options.event_rate,
            interval=options.event_interval,
            metrics=self.metrics,
        )
        self.publisher = Publisher(
            self._client,
            leading=self.leadership.leading,
            rate=options.write_rate,
            metrics=self.metrics,
            announcements=self.announcements,
            wanted=lambda pod: self.state.pods.get(pod.uid) is not None,
        )
        self.forecasts = LiveForecasts(
            self.state,
            publish=self.publisher.offer,
            metrics=self.metrics,
            debounce=options.debounce,
            candidates=options.candidates,
        )
        self.truth = Truth(metrics=self.metrics, counts=self.leadership.leading.is_set)
        self.gates = AdmissionGates(
            self._client,
            self.state,
            self.forecasts,
            leading=self.leadership.leading,
            timeout=options.admission_gate_timeout,
            metrics=self.metrics,
        )
        self.inputs = Inputs(self.state.namespaces)
        self.rebalancing = self._rebalancing()
        self.reflectors = tuple(self._reflectors())
        leads = self.leadership.leading.is_set
        self.collectors = (
            FiguresCollector(ClusterFigures(self.state, options.target_shapes), shown=leads),
            FiguresCollector(PredictionFigures(self.forecasts), shown=leads),
            FiguresCollector(QueueFigures(self.forecasts, self.publisher)),
        )
        self._connect()

    @property
    def client(self) -> Client:
        """The connection to the API server that all parts share."""
        return self._client

    async def run(self) -> None:
        """Run until ``stop`` is called or a signal arrives; ends every task that the loop got meanwhile."""
        self._loop = asyncio.get_running_loop()
        settings = kopf.OperatorSettings()
        settings.posting.loggers = False
        # Nothing is handled by kopf's watches, so it need not learn of new kinds, and must not give up
        # when the API server is away for longer than it would try.
        settings.scanning.disabled = True
        settings.networking.error_backoffs = _Forever()
        await kopf.operator(
            registry=self._handlers(),
            settings=settings,
            standalone=True,
            clusterwide=True,
            stop_flag=self._stop,
        )

    def stop(self) -> None:
        """Let ``run`` end, gracefully; may be called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)

    def start_task(self, coroutine: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run something for as long as the operator runs; it must not end by itself."""
        task = asyncio.create_task(coroutine, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _leadership(self) -> Leadership:
        options = self.options
        return Leadership(
            self._client,
            name=LEASE_NAME,
            namespace=options.namespace,
            identity=self.identity,
            term=Term(
                options.leader_elect_lease_duration,
                options.leader_elect_renew_deadline,
                options.leader_elect_retry_period,
            ),
        )

    def _rebalancing(self) -> Rebalancing:
        options = self.options
        return Rebalancing(
            self._client,
            self.state,
            self.forecasts,
            self.inputs,
            leading=self.leadership.leading,
            identity=self.identity,
            metrics=RebalanceMetrics(self.registry),
            gates=options.admission_gate,
            period=options.rebalance_period,
            patience=timedelta(seconds=options.rebalance_patience),
        )

    def _reflectors(self) -> Iterator[Reflector[Any]]:
        state = self.state
        pods = Decoder(state.sharing.pod, key=by_uid)
        published = Decoder(Published.from_api)
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
        yield self._reflector(PODS, pods, state.pods)
        yield self._reflector(ADMISSION_PREDICTIONS, published, self.publisher.published)
        if self.options.admission_gate or self.options.rebalance:
            yield self._reflector(NAMESPACES, decoding.NAMESPACES, state.namespaces)
        if self.options.rebalance:
            for resource, decoder, table in self.inputs.mirrored():
                yield self._reflector(resource, decoder, table, optional=True)

    def _reflector(self, resource: Resource, decoder: Any, table: Any, **values: Any) -> Reflector[Any]:
        pace = Pace(self.options.watch_duration, self.options.watch_silence, self.options.page_size)
        return Reflector(
            self._client, resource, decoder=decoder, table=table, metrics=self.metrics, pace=pace, **values
        )

    def _connect(self) -> None:
        """Let the parts hear of each other's news."""
        self.state.on_bound = self._bound
        self.state.on_pod = self._pod_changed
        self.truth.on_verified = self.publisher.verified
        self.leadership.on_change = self._leadership_changed
        self.forecasts.on_batch = self.gates.wake
        self.gates.may_go = self.rebalancing.execution.may_go
        for collector in self.collectors:
            self.registry.register(collector)
        ProcessCollector(namespace="numazones_operator", registry=self.registry)

    def _bound(self, pod: ClusterPod, node: ClusterNode | None) -> Admission | None:
        return self.truth.bound(pod, node) if self.ready.is_set() else None

    def _pod_changed(self, old: ClusterPod | None, new: ClusterPod | None) -> None:
        self.truth.pod_changed(old, new)
        if new is None and old is not None:
            self.publisher.forget(old.uid, key_of(old))

    def _leadership_changed(self, leading: bool) -> None:  # noqa: FBT001 - a callback
        self.metrics.leader.set(leading)
        if leading:
            self.forecasts.announce_all()
        else:
            self.publisher.stand_by()

    def _handlers(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            return kopf.AiohttpSession(
                server=self.config.server, aiohttp_session=_session(self.config), default_namespace=None
            )

        @kopf.on.startup(registry=registry, errors=kopf.ErrorsMode.PERMANENT)
        async def start(**_: Any) -> None:
            await self._start()

        @kopf.on.cleanup(registry=registry)
        async def end(**_: Any) -> None:
            await self._end()

        return registry

    async def _start(self) -> None:
        server = health.application(
            sick=self._sick, unready=self._unready, registry=self.registry, renew=self._renew_figures
        )
        self.port = await self._resources.enter_async_context(
            health.serve(self.options.metrics_address, server)
        )
        await self._resources.enter_async_context(self._client)
        for reflector in self.reflectors:
            self.start_task(reflector.run(), name=f"reflector of {reflector.name}")
        self.start_task(self._watch_over_time(), name="expiry")
        self.start_task(self._predict(), name="predictions")

    async def _predict(self) -> None:
        """Once everything was listed: predict, publish, stand for election."""
        for reflector in self.reflectors:
            await reflector.synced.wait()
        self.ready.set()
        _log.info(
            "synced: %d nodes, %d pods, %d zones",
            len(self.state.nodes),
            len(self.state.pods),
            len(self.state.zones),
        )
        await self.forecasts.renew()
        self.start_task(self.forecasts.run(), name="forecasts")
        self.start_task(self.publisher.run(), name="publisher")
        self.start_task(self.announcements.run(), name="announcements")
        if self.options.admission_gate:
            self.start_task(self.gates.run(), name="admission gates")
        if self.options.rebalance:
            self.start_task(self.rebalancing.run(), name="rebalancing")
        if self.options.leader_elect:
            self.start_task(self.leadership.run(), name="leader election")
        else:
            self.leadership.leading.set()
            self._leadership_changed(True)
        await asyncio.Event().wait()

    async def _watch_over_time(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_PERIOD)
            self.state.expire()

    async def _end(self) -> None:
        """Write what waits, give the leader's Lease back, close everything."""
        if self.leadership.leading.is_set():
            await self.publisher.drained(_SHUTDOWN_PATIENCE)
        for task in self._tasks:
            task.remove_done_callback(self._ended)
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._resources.aclose()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        self.failed = f"task {task.get_name()} ended: {error!r}"
        _log.critical("%s; the operator stops", self.failed, exc_info=error)
        self._stop.set()

    def _renew_figures(self) -> None:
        for collector in self.collectors:
            collector.renew()

    def _sick(self) -> list[str]:
        return [self.failed] if self.failed else []

    def _unready(self) -> list[str]:
        problems = [
            f"{reflector.name}: {reflector.problem}"
            for reflector in self.reflectors
            if not reflector.synced.is_set()
        ]
        return problems or ([] if self.ready.is_set() else ["predictions are being made"])


class _Forever:
    """Delays between kopf's attempts at a request, without an end; seconds."""

    def __iter__(self) -> Iterator[float]:
        yield from (1, 1, 2, 3, 5, 8, 13)
        yield from repeat(20)


def _session(config: ClusterConfig) -> aiohttp.ClientSession:
    """Open kopf's own connections, with credentials that are read anew for every request."""

    async def authenticate(
        request: aiohttp.ClientRequest, handler: Callable[[aiohttp.ClientRequest], Any]
    ) -> aiohttp.ClientResponse:
        token = await config.credentials.token()
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        response: aiohttp.ClientResponse = await handler(request)
        return response

    ssl = config.ssl_context if config.ssl_context is not None else True
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=ssl),
        headers={"User-Agent": "numazones-operator"},
        middlewares=(authenticate,),
        proxy=config.proxy,
    )
