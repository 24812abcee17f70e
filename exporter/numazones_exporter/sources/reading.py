"""One reading of the node: every source asked once, in an order that keeps the answers consistent.

State files first, then podresources, then the pods: a pod that a state file mentions was created before
the file was written, so it is in the later answers unless it has ended meanwhile. Asked the other way
round, a pod admitted in between would look as if it had ended.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from numazones.errors import NumazonesError
from numazones_exporter.file_opener import ReadFile, read_file
from numazones_exporter.observation import (
    CPU_MANAGER_STATE,
    DEVICE_CHECKPOINT,
    FILES_MISSING,
    KUBELET_CONFIG,
    KUBELET_FILES,
    MEMORY_MANAGER_STATE,
    NODE,
    NOT_FOUND,
    ORDER,
    PODRESOURCES,
    PODS,
    SOCKET_MISSING,
    NodeObject,
    Observation,
)
from numazones_exporter.options import Options
from numazones_exporter.sources.kubelet_config import (
    FileConfigReader,
    KubeletConfigReader,
    NoConfigReader,
    parse_configuration,
)
from numazones_exporter.sources.node_pods import FilePodsReader, PodsReader
from numazones_exporter.sources.paths import file_of, workload_pinning
from numazones_exporter.sources.podresources import PodResourcesReader, reader_for
from numazones_exporter.sources.state_files import StateFileReader
from numazones_node.problems import Problem, Reading, SourceError
from numazones_node.sysfs import SYSFS, SysfsReader
from numazones_program.settings import format_duration

if TYPE_CHECKING:
    from numazones_client import Client

_Value = TypeVar("_Value")

SLOW_FACTS_SECONDS = 30.0
"""How long the Node and the running kubelet's configuration are kept before they are read again.

They change when the kubelet restarts, while state files may change every second; asking the API server
each time would be most of the exporter's load on it.
"""


class _Cached(Generic[_Value]):
    """A reader that asks again only after a while, or after a failure."""

    def __init__(self, ask: Callable[[], Awaitable[_Value]]) -> None:
        self._ask = ask
        self._answer: tuple[float, _Value] | None = None

    async def read(self) -> _Value:
        now = time.monotonic()
        if self._answer is None or now - self._answer[0] > SLOW_FACTS_SECONDS:
            self._answer = None
            self._answer = (now, await self._ask())
        return self._answer[1]

    def forget(self) -> None:
        self._answer = None


class Sources:
    """One reader per source, with whatever each keeps between readings (connections, CPU topology)."""

    def __init__(
        self, options: Options, *, client: "Client | None" = None, read: ReadFile = read_file
    ) -> None:
        """Build the readers; nothing is read or connected to yet. A given client stays the caller's to close.

        ``read`` reads the kubelet's files, and those that the settings name.

        Raises:
            SourceError: an endpoint in the options is none of the known forms.
        """
        self.options = options
        self.sysfs = SysfsReader(options.sysfs, options.procfs)
        self.state_files = StateFileReader(options.kubelet_dir, read)
        self.podresources: PodResourcesReader = reader_for(options.podresources)
        self.kubelet_config: KubeletConfigReader = NoConfigReader()
        self.pods: PodsReader | None = None
        self.node: _Cached[NodeObject] | None = None
        self._close: list[Callable[[], Awaitable[None]]] = [self.podresources.close]
        if options.asks_api_server:
            self._ask_api_server(client, read)
        if (path := file_of(options.kubelet_config)) is not None:
            self.kubelet_config = FileConfigReader(path, read)
        if (path := file_of(options.pods)) is not None:
            self.pods = FilePodsReader(path, options.node_name, read)

    def _ask_api_server(self, client: "Client | None", read: ReadFile) -> None:
        from numazones_exporter.sources import api  # noqa: PLC0415 - recordings are shown without HTTP

        options = self.options
        lazy = api.LazyClient(options.kubeconfig, client, server=options.server)
        self._close.append(lazy.close)
        self.node = _Cached(lambda: api.read_node(lazy, options.node_name))
        if options.pods == "api":
            self.pods = api.APIPodsReader(lazy, options.node_name)
        if options.kubelet_config == "configz":
            self.kubelet_config = _Cached(api.configz_reader(options, lazy, read).read)

    def forget_node(self) -> None:
        """Ask for the Node anew next time: it may have been deleted and made anew under its name."""
        if self.node is not None:
            self.node.forget()

    def forget(self) -> None:
        """Ask for the Node and the kubelet's configuration anew next time, as after a kubelet restart."""
        for cached in (self.node, self.kubelet_config):
            if isinstance(cached, _Cached):
                cached.forget()

    async def close(self) -> None:
        """Close every connection that is not the caller's."""
        for close in self._close:
            await close()


async def observe(sources: Sources) -> Observation:
    """Read the node once; never raises for a bad source, which becomes a ``Problem`` instead."""
    scan = _Scan(sources.options.source_timeout)
    node, document, local = await asyncio.gather(
        _node(scan, sources),
        scan.ask(KUBELET_CONFIG, sources.kubelet_config.read),
        _local(scan, sources),
    )
    version = sources.options.kubelet_version or node.kubelet_version
    kubelet = None
    if document is not None:
        kubelet = scan.take(KUBELET_CONFIG, lambda: parse_configuration(document, version=version or None))
    problems = _missing_files_as_one(scan.problems, sources.options.kubelet_dir)
    observation: Observation = replace(
        local,
        node_uid=node.uid or None,
        kubelet_version=version or None,
        partitioned=True if workload_pinning(sources.options).exists() else node.partitioned,
        kubelet=kubelet,
        problems=tuple(sorted(problems, key=lambda problem: (ORDER.index(problem.source), problem))),
        durations=tuple(sorted(scan.durations.items())),
    )
    return observation


def _missing_files_as_one(problems: list[Problem], kubelet_dir: Path) -> list[Problem]:
    """Say once that nothing of the kubelet is where it was looked for, instead of naming file by file."""
    missing = {
        problem.source: problem for problem in problems if problem.reason in {NOT_FOUND, SOCKET_MISSING}
    }
    if not missing.keys() >= KUBELET_FILES:
        return problems
    message = (
        f"{kubelet_dir} has neither state files nor the socket of a kubelet; check that it is the root "
        "directory of the kubelet here and that it is mounted. k0s uses /var/lib/k0s/kubelet, MicroK8s "
        "uses /var/snap/microk8s/common/var/lib/kubelet"
    )
    return [
        replace(problem, reason=FILES_MISSING, message=message)
        if missing.get(problem.source) is problem and problem.source in KUBELET_FILES
        else problem
        for problem in problems
    ]


async def _local(scan: "_Scan", sources: Sources) -> Observation:
    """Read the sources whose order matters, one after the other."""
    files = sources.state_files
    hardware = scan.take(SYSFS, sources.sysfs.read)
    cpu_manager = scan.take(CPU_MANAGER_STATE, lambda: Reading(files.cpu_manager()))
    memory_manager = scan.take(MEMORY_MANAGER_STATE, lambda: Reading(files.memory_manager()))
    devices = scan.take(DEVICE_CHECKPOINT, lambda: Reading(files.devices()))
    return Observation(
        node_name=sources.options.node_name,
        hardware=hardware,
        cpu_manager=cpu_manager,
        memory_manager=memory_manager,
        devices=devices,
        podresources=await scan.ask(PODRESOURCES, sources.podresources.read),
        pods=await scan.ask(PODS, sources.pods.read) if sources.pods else None,
    )


async def _node(scan: "_Scan", sources: Sources) -> NodeObject:
    if sources.node is None:
        return NodeObject()
    return await scan.ask(NODE, sources.node.read) or NodeObject()


class _Scan:
    """Collects what goes wrong, and how long each source takes, during one reading."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self.problems: list[Problem] = []
        self.durations: dict[str, float] = {}

    def take(self, source: str, read: Callable[[], Reading[_Value]]) -> _Value | None:
        """Read a local source; ``None`` and a problem where it fails."""
        start = time.perf_counter()
        try:
            reading = read()
        except (NumazonesError, OSError) as error:
            self._add_problem(source, error)
            return None
        finally:
            self.durations[source] = self.durations.get(source, 0.0) + time.perf_counter() - start
        self.problems += reading.problems
        return reading.value

    async def ask(self, source: str, read: Callable[[], Awaitable[_Value]]) -> _Value | None:
        """Ask a source that may hang; ``None`` and a problem where it fails or takes too long."""
        start = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout):
                return await read()
        except TimeoutError:
            self.problems.append(
                Problem(
                    source, "TimedOut", f"{source} did not respond within {format_duration(self._timeout)}"
                )
            )
        except (NumazonesError, OSError) as error:
            self._add_problem(source, error)
        finally:
            self.durations[source] = time.perf_counter() - start
        return None

    def _add_problem(self, source: str, error: Exception) -> None:
        reason = error.reason if isinstance(error, SourceError) else type(error).__name__
        self.problems.append(Problem(source, reason, str(error)))
