"""One reading: no bad source spoils the others, and each says what is wrong with it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from numazones_exporter.observation import (
    CPU_MANAGER_STATE,
    DEVICE_CHECKPOINT,
    KUBELET_CONFIG,
    MEMORY_MANAGER_STATE,
    NODE,
    PODRESOURCES,
    PODS,
    Observation,
    PodResourcesAnswer,
)
from numazones_exporter.options import Options
from numazones_exporter.sources.reading import Sources, observe
from numazones_node.problems import SourceError
from numazones_node.sysfs import SYSFS
from tests.event_loop import pass_time
from tests.exporter.sources.sysfs_tree import Tree
from tests.places import DATA

RECORDING = DATA / "recordings/one-node"


@pytest.fixture
def options(tmp_path: Path) -> Options:
    """Every source from files."""
    tree = Tree(tmp_path, {0: "0-1", 1: "2-3"}).write()
    node = RECORDING / "rig-b"
    return Options(
        node_name="rig-b",
        sysfs=tree.sysfs,
        procfs=tree.procfs,
        kubelet_dir=node,
        podresources=f"replay:{node}",
        kubelet_config=f"file:{node}/kubelet-config.yaml",
        kubelet_version="v1.36.2",
        pods=f"file:{RECORDING}/pods.json",
        once=True,
    )


async def read(options: Options) -> Observation:
    sources = Sources(options)
    try:
        return await observe(sources)
    finally:
        await sources.close()


async def test_everything_is_read(options: Options) -> None:
    found = await read(options)
    assert found.problems == ()
    assert None not in (found.hardware, found.kubelet, found.podresources, found.pods)
    assert None not in (found.cpu_manager, found.memory_manager, found.devices)
    assert found.kubelet_version == "v1.36.2"


async def test_openshifts_file_shows_workload_partitioning(options: Options, tmp_path: Path) -> None:
    assert (await read(options)).partitioned is None
    pinning = tmp_path / "etc/kubernetes/openshift-workload-pinning"
    pinning.parent.mkdir(parents=True)
    pinning.touch()
    assert (await read(options)).partitioned is True


async def test_the_same_files_give_the_same_observation(options: Options) -> None:
    first, second = await read(options), await read(options)
    assert replace(first, durations=()) == replace(second, durations=())


async def test_each_source_says_how_long_it_took(options: Options) -> None:
    durations = dict((await read(options)).durations)
    assert durations.keys() == {
        SYSFS,
        KUBELET_CONFIG,
        PODRESOURCES,
        CPU_MANAGER_STATE,
        MEMORY_MANAGER_STATE,
        DEVICE_CHECKPOINT,
        PODS,
    }
    assert min(durations.values()) >= 0


@pytest.mark.parametrize(
    ("change", "source", "reason"),
    [
        ({"sysfs": Path("/nonexistent")}, SYSFS, "NoCPUs"),
        ({"podresources": "unix:/nonexistent"}, PODRESOURCES, "SocketMissing"),
        ({"podresources": "none"}, PODRESOURCES, "NotAsked"),
        ({"kubelet_config": "file:/nonexistent"}, KUBELET_CONFIG, "NotFound"),
        ({"kubelet_config": "none"}, KUBELET_CONFIG, "NotAsked"),
        ({"pods": "file:/nonexistent"}, PODS, "NotFound"),
        ({"kubelet_version": "v2"}, KUBELET_CONFIG, "UnsupportedVersion"),
    ],
)
async def test_bad_source_is_a_problem_and_the_others_are_read(
    options: Options, change: dict[str, Any], source: str, reason: str
) -> None:
    found = await read(replace(options, **change))
    assert [(problem.source, problem.reason) for problem in found.problems] == [(source, reason)]
    missing = [
        name
        for name in ("hardware", "kubelet", "podresources", "pods", "cpu_manager", "devices")
        if getattr(found, name) is None
    ]
    assert len(missing) <= 1


async def test_a_kubelet_directory_that_is_empty_names_every_state_file(
    options: Options, tmp_path: Path
) -> None:
    found = await read(replace(options, kubelet_dir=tmp_path))
    assert [problem.message for problem in found.problems] == [
        f"{tmp_path}/{name} does not exist, although a kubelet creates it when it starts"
        for name in (
            "cpu_manager_state",
            "memory_manager_state",
            "device-plugins/kubelet_internal_checkpoint",
        )
    ]


async def test_a_directory_without_anything_of_a_kubelet_is_named_once(
    options: Options, tmp_path: Path
) -> None:
    changed = replace(options, kubelet_dir=tmp_path, podresources=f"unix:{tmp_path}/kubelet.sock")
    problems = (await read(changed)).problems
    assert {problem.source for problem in problems} == {
        PODRESOURCES,
        CPU_MANAGER_STATE,
        MEMORY_MANAGER_STATE,
        DEVICE_CHECKPOINT,
    }
    (message,) = {problem.message for problem in problems}
    assert message.startswith(f"{tmp_path} has neither state files nor the socket of a kubelet")


@dataclass
class SilentSocket:
    """A socket that accepts connections and never answers."""

    path: Path
    connected: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        writers: list[asyncio.StreamWriter] = []

        async def accept(_incoming: asyncio.StreamReader, outgoing: asyncio.StreamWriter) -> None:
            writers.append(outgoing)
            self.connected.set()

        async with await asyncio.start_unix_server(accept, str(self.path)):
            yield
            for outgoing in writers:
                outgoing.close()


async def test_a_hanging_socket_is_given_up_on_and_named(options: Options, tmp_path: Path) -> None:
    silent = SilentSocket(tmp_path / "kubelet.sock")
    async with silent.listening():
        hanging = replace(options, podresources=f"unix:{silent.path}", source_timeout=100.0)
        reading = asyncio.create_task(read(hanging))
        await silent.connected.wait()
        pass_time(101)
        found = await reading
    assert found.podresources is None
    (problem,) = found.problems
    assert (problem.source, problem.reason) == (PODRESOURCES, "TimedOut")
    assert problem.message == "podresources did not respond within 100s"
    assert found.pods is not None


async def test_state_files_are_read_before_podresources_before_pods(options: Options) -> None:
    """So that a pod that is admitted meanwhile cannot look as if it had ended."""
    sources = Sources(options)
    order: list[str] = []

    def noting(name: str, read: Any) -> Any:
        def noted() -> Any:
            order.append(name)
            return read()

        return noted

    sources.state_files.cpu_manager = noting("files", sources.state_files.cpu_manager)  # type: ignore[method-assign]
    sources.podresources.read = noting("podresources", sources.podresources.read)  # type: ignore[method-assign]
    assert sources.pods is not None
    sources.pods.read = noting("pods", sources.pods.read)  # type: ignore[method-assign]
    await observe(sources)
    assert order == ["files", "podresources", "pods"]


async def test_paths_that_the_system_rejects_are_problems_too(options: Options) -> None:
    long = Path("/" + "x" * 300)
    sources = {"podresources": f"unix:{long}", "pods": f"file:{long}", "kubelet_config": f"file:{long}"}
    found = await read(replace(options, sysfs=long, kubelet_dir=long, **sources))  # type: ignore[arg-type]
    assert {problem.source for problem in found.problems} == {
        SYSFS,
        PODRESOURCES,
        PODS,
        KUBELET_CONFIG,
        CPU_MANAGER_STATE,
        MEMORY_MANAGER_STATE,
        DEVICE_CHECKPOINT,
    }


async def test_a_source_that_recovers_is_read_again(options: Options) -> None:
    class Flaky:
        reads = 0

        async def read(self) -> PodResourcesAnswer:
            self.reads += 1
            if self.reads == 1:
                raise SourceError("ConnectionLost", "gone")
            return PodResourcesAnswer((), 0, (), ())

        async def close(self) -> None:
            pass

    sources = Sources(options)
    sources.podresources = Flaky()
    assert [problem.message for problem in (await observe(sources)).problems] == ["gone"]
    assert (await observe(sources)).problems == ()


async def test_every_source_reports_a_missing_api_server(
    options: Options, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = await read(replace(options, pods="api", kubelet_config="configz"))
    assert {problem.source for problem in found.problems} == {PODS, KUBELET_CONFIG, NODE}
    assert {problem.reason for problem in found.problems} == {"ConfigError"}
    assert all("no API server is configured" in problem.message for problem in found.problems)
