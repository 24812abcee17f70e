"""The exporter as it runs on a node: read, publish what changed, and wait for a reason to read again.

One loop does the work; around it run the watch of the kubelet's files, the watch of the node's pods, the
Lease and the HTTP server. What fails is tried again: at the next interval, at the next event, or, where
publishing failed, after a pause that grows and that respects what the API server asked for. Nothing here
reads the wall clock, so that a clock that jumps neither hurries nor stops it.
"""

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import replace

from prometheus_client import CollectorRegistry

from numazones.api.amounts import ResourceAmounts, amounts_of
from numazones.api.numazone import NUMAZone
from numazones.api.snapshot import NodeSnapshot
from numazones.api.workload_partitioning import CONSISTENT
from numazones.errors import NumazonesError
from numazones.wording import pluralize
from numazones_client import APIError, Client, Forbidden, Unauthorized, UndeclaredField, UnknownResource, load
from numazones_exporter import recording, zones
from numazones_exporter.allocatable_devices import AllocatableDevicesWatch
from numazones_exporter.conditions import unexpected_problems
from numazones_exporter.confinement import UNCONFINED, Confinement, enter
from numazones_exporter.file_opener import FileOpener, ReadFile, read_file
from numazones_exporter.health import PUBLISH, SCAN, Health
from numazones_exporter.lease import LeaseKeeper
from numazones_exporter.metrics import ExporterMetrics
from numazones_exporter.observation import (
    CPU_MANAGER_STATE,
    DEVICE_CHECKPOINT,
    FILES_MISSING,
    KUBELET_CONFIG,
    KUBELET_FILES,
    MEMORY_MANAGER_STATE,
    NODE,
    NOT_ASKED,
    NOT_FOUND,
    ORDER,
    PODRESOURCES,
    PODS,
    SOCKET_MISSING,
    Observation,
)
from numazones_exporter.options import NODE_RESOURCE_TOPOLOGIES, NUMAZONES, Options
from numazones_exporter.publishing import MissingOwner, ObjectWriter, Publisher, ZonePublisher
from numazones_exporter.resident_memory import homes
from numazones_exporter.sources.cgroups import CgroupReader
from numazones_exporter.sources.podresources import SocketReader
from numazones_exporter.sources.reading import Sources, observe
from numazones_exporter.terminating_pods import TerminatingPods
from numazones_exporter.token_claims import outdated_token, token_claims
from numazones_exporter.triggers import (
    INTERVAL,
    KUBELET,
    TERMINATING_PODS,
    ZONES,
    KubeletFilesWatch,
    Wakeups,
)
from numazones_exporter.usage_metrics import CPUUsageTracker
from numazones_exporter.watched_pods import WatchedPods
from numazones_exporter.watched_zones import WatchedZones
from numazones_node.problems import Problem
from numazones_node.sysfs import NOTES, SYSFS
from numazones_program import logs, probes, signals

SHUTDOWN_SECONDS = 5.0
"""How long a publish that has begun may take to end when the exporter is stopped."""

REREAD_PAUSES = (0.1, 0.2, 0.4, 0.8)
"""Pauses before contradicting sources are read again, seconds. In the middle of an admission the kubelet's
state files and podresources differ for moments; what still differs after the last pause is published."""

_FIRST_PAUSE = 1.0
_MAX_PAUSE_FOR_MISSING = 6.0
"""Longest pause, in seconds, where a definition, the Node or a token for it is missing: the API server
answers such requests without effort, and zones are to be there within ten seconds after it."""
_METHOD_NOT_ALLOWED = 405
"""How an API server refuses to create an object whose definition is being deleted."""
_START = "start"
_STOP = "stop"

_log = logging.getLogger(__name__)


def run(options: Options, opener: FileOpener | None = None) -> int:
    """Run until a signal ends it, confined where the settings ask for it; return the exit status.

    Raises:
        NumazonesError: it cannot start: no API server is configured, the address is taken, …
    """
    logs.configure(style=options.log_format, level=options.log_level)
    confinement = enter(options, opener)
    if confinement.why_not:
        _log.warning(
            "only file permissions keep the exporter from reading other files in %s: %s",
            options.kubelet_dir,
            confinement.why_not,
        )
    try:
        asyncio.run(_run_until_signalled(options, confinement))
    finally:
        confinement.close()
    return 0


async def _run_until_signalled(options: Options, confinement: Confinement) -> None:
    stop = signals.stop_event()
    config = await load(options.kubeconfig, server=options.server)
    async with Client(config, user_agent="numazones-exporter") as client:
        await serve(options, client, stop=stop, confinement=confinement)
    _log.info("stopped")


async def serve(
    options: Options,
    client: Client,
    *,
    stop: asyncio.Event,
    registry: CollectorRegistry | None = None,
    listening: "asyncio.Future[int] | None" = None,
    confinement: Confinement = UNCONFINED,
) -> None:
    """Export the node until ``stop`` is set; ``listening`` receives the port of the HTTP server."""
    registry = registry or CollectorRegistry()
    cgroups = None if options.cgroups is None else CgroupReader(options.cgroups)
    usage = CPUUsageTracker(options.procfs, options.sysfs, interval=options.interval)
    metrics = ExporterMetrics(registry, cgroups=cgroups, usage=usage)
    metrics.landlock.set(confinement.enforced)
    state = Health(options.interval)
    health = probes.probes(health_problems=state.problems, readiness_problems=state.readiness_problems)
    answer = recording.recordings(options, probes.metrics(registry, health), confinement.read)
    with (
        probes.serve(options.probe_address, health, name="probes"),
        probes.serve(options.metrics_address, answer) as port,
    ):
        if listening is not None:
            listening.set_result(port)
        _log.info("exporting node %s; metrics on port %d", options.node_name, port)
        exporter = Exporter(options, client, metrics=metrics, state=state, read=confinement.read)
        try:
            await exporter.run(stop)
        finally:
            await exporter.close()


class Exporter:
    """Reads one node and keeps its objects current."""

    def __init__(
        self,
        options: Options,
        client: Client,
        *,
        metrics: ExporterMetrics,
        state: Health,
        read: ReadFile = read_file,
    ) -> None:
        """Connect the parts; nothing runs yet. ``read`` reads the kubelet's files."""
        self._client = client
        self._interval = options.interval
        self._metrics = metrics
        self._health = state
        self._wakeups = Wakeups()
        self._files = KubeletFilesWatch(options.kubelet_dir, self._wakeups)
        self._sources = Sources(options, client=client, read=read)
        self._pods: WatchedPods | None = None
        if options.pods == "api" and self._sources.pods is not None:
            self._pods = WatchedPods(client, options.node_name, self._wakeups, otherwise=self._sources.pods)
            self._sources.pods = self._pods
        writer = ObjectWriter(client, metrics)
        self._publishers: list[Publisher] = []
        self._zones: WatchedZones | None = None
        if NUMAZONES in options.publish:
            self._zones = WatchedZones(client, self._wakeups)
            self._publishers.append(ZonePublisher(writer, options.node_name))
        if NODE_RESOURCE_TOPOLOGIES in options.publish:
            # Its models are in memory only where they are needed.
            from numazones_exporter.noderesourcetopology import (  # noqa: PLC0415
                NodeResourceTopologyPublisher,
            )

            self._publishers.append(NodeResourceTopologyPublisher(writer, options.node_name))
        self._lease = LeaseKeeper(
            writer,
            options.node_name,
            namespace=options.lease_namespace,
            duration=options.lease_duration,
            current=lambda: not state.problems(),
        )
        self._last: tuple[Observation, list[NUMAZone]] | None = None
        self._published_contradictions = False
        """Whether the zones of the last reading were published although sources contradict each other."""
        self._problems: frozenset[Problem] = frozenset()
        self._terminating_pods = TerminatingPods()
        self._reread_pause: float | None = None
        """When to read again although nothing happens, because pods leave; seconds."""
        self._pause = 0.0
        self._stopping = False

    async def close(self) -> None:
        """Close the sources' connections."""
        await self._sources.close()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set; a publish that has begun may end."""
        async with asyncio.TaskGroup() as tasks:
            around = [tasks.create_task(self._files.run()), tasks.create_task(self._lease.run())]
            if isinstance(self._sources.podresources, SocketReader):
                devices = AllocatableDevicesWatch(
                    self._sources.podresources.allocatable_devices, self._wakeups
                )
                around.append(tasks.create_task(devices.run()))
            if self._pods is not None:
                around.append(tasks.create_task(self._pods.run()))
            if self._zones is not None:
                around.append(tasks.create_task(self._zones.run()))
            work = tasks.create_task(self._work())
            await stop.wait()
            self._stopping = True
            self._wakeups.wake(_STOP)
            for task in around:
                task.cancel()
            await asyncio.wait((work,), timeout=SHUTDOWN_SECONDS)
            work.cancel()

    async def _work(self) -> None:
        """Read and publish, again and again."""
        clock = asyncio.get_running_loop().time
        reasons = frozenset({_START})
        while not self._stopping:
            due = clock() + self._interval
            for reason in reasons:
                self._metrics.wakeups.labels(reason).inc()
            if KUBELET in reasons:
                self._sources.forget()
            if ZONES in reasons:
                self._forget_published()
            await self._cycle()
            seconds, reason = self._next_wait(due - clock())
            reasons = await self._wakeups.wait(seconds, otherwise=reason)

    def _forget_published(self) -> None:
        """Ask what is published, and for the Node: zones are deleted with it."""
        self._sources.forget_node()
        for publisher in self._publishers:
            publisher.forget()

    def _next_wait(self, left: float) -> tuple[float, str]:
        """For how many seconds to wait, and why to go on if nothing happens; ``left`` of the interval."""
        if self._pause:
            return self._pause, INTERVAL
        if self._reread_pause is not None and self._reread_pause < left:
            return self._reread_pause, TERMINATING_PODS
        return max(0.0, left), INTERVAL

    async def _cycle(self) -> None:
        """Read the node and publish what changed; sets how long to pause where that failed."""
        observation = await self._read()
        try:
            node_zones = self._describe(observation)
            for pause in () if self._published_contradictions else REREAD_PAUSES:
                if not _has_contradictions(node_zones):
                    break
                await asyncio.sleep(pause)
                observation = await self._read()
                node_zones = self._describe(observation)
            self._published_contradictions = _has_contradictions(node_zones)
            self._reread_pause = self._terminating_pods.pause_after(observation)
            if not node_zones:
                return
            writes = 0
            for publisher in self._publishers:
                writes += await publisher.publish(node_zones)
        except NumazonesError as error:
            self._sources.forget_node()
            why = [problem.message for problem in observation.problems if problem.source == NODE]
            outdated = await self._outdated_token(observation, error)
            text = "; ".join(filter(None, [outdated, str(error), *why]))
            self._health.record_failure(PUBLISH, text)
            self._pause = self._pause_after_failure(error, missing=bool(outdated) or _is_missing(error))
            _log.warning("publishing failed; trying again in %.0f s: %s", self._pause, text)
            return
        self._pause = 0.0
        self._health.record_success(PUBLISH)
        self._metrics.published.set_to_current_time()
        self._lease.set_owner(node_zones[0].metadata.owner_references[0].uid)
        if self._zones is not None:
            self._zones.follow([zone.metadata.name for zone in node_zones])
        if writes:
            _log.info("published %s with %s", pluralize(len(node_zones), "zone"), pluralize(writes, "write"))

    async def _read(self) -> Observation:
        started = time.perf_counter()
        observation = await observe(self._sources)
        self._metrics.scan_seconds.observe(time.perf_counter() - started)
        for source, seconds in observation.durations:
            self._metrics.source_seconds.labels(source).observe(seconds)
        problems = unexpected_problems(observation)
        failures = [problem for problem in problems if _is_failure(observation, problem)]
        for problem in failures:
            self._metrics.source_errors.labels(problem.source).inc()
        curable = [problem for problem in failures if not _is_absent(problem)]
        if curable:
            self._health.record_failure(SCAN, "; ".join(problem.message for problem in curable))
        else:
            self._health.record_success(SCAN)
        self._log_changes(frozenset(problems))
        return observation

    def _describe(self, observation: Observation) -> list[NUMAZone]:
        """Build the zones, unless the node looks exactly as the last time."""
        facts = replace(observation, durations=())
        if self._last is None or self._last[0] != facts:
            snapshot = zones.snapshot_of(facts)
            self._last = (facts, [] if snapshot is None else zones.build(snapshot))
            if self._metrics.usage is not None:
                self._metrics.usage.follow(snapshot)
            if snapshot is None:
                self._metrics.show(facts.node_name, {})
            else:
                pods = homes(snapshot.holders, snapshot.machine)
                cpus = snapshot.machine.cpus_of_numa
                self._metrics.show(facts.node_name, _amounts(snapshot), pods, cpus)
        return self._last[1]

    def _log_changes(self, problems: frozenset[Problem]) -> None:
        """Log the problems that are new, and those that are gone."""
        new: dict[tuple[str, str], list[str]] = {}
        for problem in sorted(problems - self._problems, key=lambda problem: ORDER.index(problem.source)):
            new.setdefault((problem.reason, problem.message), []).append(problem.source)
        for (reason, message), sources in new.items():
            level = logging.INFO if reason in NOTES else logging.WARNING
            _log.log(level, "%s: %s: %s", ", ".join(dict.fromkeys(sources)), reason, message)
        for problem in sorted(self._problems - problems, key=lambda problem: problem.source):
            _log.info("%s: resolved: %s", problem.source, problem.reason)
        self._problems = problems

    async def _outdated_token(self, observation: Observation, error: NumazonesError) -> str:
        """Say that the token is refused because the Node was made anew; empty where it is not."""
        refused = isinstance(error, Forbidden | Unauthorized) or any(
            problem.source == NODE and problem.reason == Unauthorized.__name__
            for problem in observation.problems
        )
        if not refused:
            return ""
        try:
            claims = token_claims(await self._client.config.credentials.token())
        except NumazonesError:  # the token cannot be read; whatever was asked with it has said so
            return ""
        return outdated_token(claims, node_name=observation.node_name, node_uid=observation.node_uid)

    def _pause_after_failure(self, error: NumazonesError, *, missing: bool) -> float:
        asked = error.retry_after or 0.0 if isinstance(error, APIError) else 0.0
        longest = min(_MAX_PAUSE_FOR_MISSING, self._interval) if missing else self._interval
        grown = min(max(_FIRST_PAUSE, 2 * self._pause), longest)
        return max(asked, grown * random.uniform(0.5, 1.0))


_OBSERVATION_FIELDS = {
    SYSFS: "hardware",
    PODRESOURCES: "podresources",
    KUBELET_CONFIG: "kubelet",
    CPU_MANAGER_STATE: "cpu_manager",
    MEMORY_MANAGER_STATE: "memory_manager",
    DEVICE_CHECKPOINT: "devices",
    PODS: "pods",
    NODE: "node_uid",
}


def _is_missing(error: NumazonesError) -> bool:
    """Return whether the published definition, or the Node that owns the zones, is missing or too old."""
    going = isinstance(error, APIError) and error.code == _METHOD_NOT_ALLOWED
    return going or isinstance(error, MissingOwner | UndeclaredField | UnknownResource)


_NOT_THERE = frozenset({SOCKET_MISSING, FILES_MISSING, NOT_FOUND})


def _is_absent(problem: Problem) -> bool:
    """Return whether a file of the kubelet does not exist; zones report it, and a restart does not help."""
    return problem.source in KUBELET_FILES and problem.reason in _NOT_THERE


def _is_failure(observation: Observation, problem: Problem) -> bool:
    """Return whether a source that is not switched off could not be read at all."""
    return problem.reason != NOT_ASKED and getattr(observation, _OBSERVATION_FIELDS[problem.source]) is None


def _has_contradictions(node_zones: Sequence[NUMAZone]) -> bool:
    """Return whether sources disagree about the node; all of its zones report the same."""
    return any(
        condition.type == CONSISTENT and condition.status == "False"
        for zone in node_zones[:1]
        if zone.status is not None
        for condition in zone.status.conditions
    )


def _amounts(snapshot: NodeSnapshot) -> dict[int, tuple[ResourceAmounts, ...]]:
    return {node.id: amounts_of(snapshot, node) for node in snapshot.machine.numa_nodes}
