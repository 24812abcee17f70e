"""Measure what the exporter costs a node and its API server, idle and under change.

The real program runs against a simulated node of 8 NUMA nodes, 256 CPUs and 110 pods: a sysfs tree, the
kubelet's state files, podresources on a unix socket, control groups, and the embedded API server with the
node's pods. This process plays node and API server, so that only the exporter is measured. Idle cycles follow
one another every ``--interval`` seconds instead of every minute. Afterwards pods are admitted, to measure the
time from the changed state file to the changed objects: of three, the shortest, to which others have added
least. Then the same with ``--cgroups``, which has each scrape read where the pods' memory is.

Of the requests that were counted, ``api_of_5000_nodes`` says what as many exporters ask of an API server at
rest, with a cycle a minute, and what 200 changes a second add. Memory is that of the program (``rss``), and
of it and the process that opens files for it, with what they share counted once (``pss``).

    python -m numazones_benchmarks.exporter --json
    python -m numazones_benchmarks.exporter --pods 250 --json
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import yaml
from prometheus_client.parser import text_string_to_metric_families

from numazones.kubelet import machines
from numazones.kubelet.device_manager import Device
from numazones_apiserver import ApiServer
from numazones_apiserver.requests import HTTPRequest, RequestInfo
from numazones_apiserver.responses import HTTPResponse
from numazones_client import Client, ClusterConfig
from numazones_client.resources import DEFINITIONS, NAMESPACES, NODES, NUMAZONES, PODS
from numazones_exporter.lease import RENEWALS_PER_DURATION
from numazones_exporter.options import Options
from numazones_simulator import clock, machine_tree
from numazones_simulator.background import background
from numazones_simulator.kubelet.kubelet import SimulatedKubelet
from numazones_simulator.kubelet.podresources import PodResourcesServer
from numazones_simulator.kubelet.state_files import KubeletFiles
from numazones_simulator.machine_load import MachineLoad
from numazones_simulator.node_spec import NodeSpec, configuration, node_object

NODE = "worker-0"
SHAPE = machines.MachineShape(sockets=2, numa_per_socket=4, cores_per_numa=16)
LATE_PODS = 3
SCRAPES = 20
READS = ("get", "list", "watch")
QUEUES = 1000
"""Interrupts of the machine whose use is measured; they are read once an interval, here at each scrape."""
MANY, CHANGES = 5000, 200
"""For how many nodes the API server's part is computed, and with how many changes a second."""
CYCLE_SECONDS = 60
GOALS = {"rss_mib": 60.0, "cpu_ms_per_idle_cycle": 50.0, "cpu_ms_with_cgroups": 50.0, "zone_writes": 0.0}
NUMA_STAT = """
anon file kernel_stack pagetables sec_pagetables shmem file_mapped file_dirty file_writeback swapcached
anon_thp file_thp shmem_thp inactive_anon active_anon inactive_file active_file unevictable slab_reclaimable
slab_unreclaimable workingset_refault_anon workingset_refault_file workingset_activate_anon
workingset_activate_file workingset_restore_anon workingset_restore_file workingset_nodereclaim
"""
"""Lines of a pod's ``memory.numa_stat`` (kernel 6.18)."""
IMPORTS = (
    "asyncio",
    "click",
    "pydantic",
    "numazones.api.zone_building",
    "aiohttp",
    "numazones_client",
    "google.protobuf.message",
    "grpclib.client",
    "numazones_node.podresources_pb2",
    "prometheus_client",
    "numazones_exporter.daemon",
)
"""What the exporter imports, each with what it needs that those before did not."""
IMPORTING = """
import json, sys
def memory():
    with open("/proc/self/smaps_rollup") as file:
        found = dict(line.split()[:2] for line in file if "Rss" in line or line.startswith("Private"))
    return int(found["Rss:"]), sum(int(found[name]) for name in found if name != "Rss:")
cost, before = {}, memory()
cost["python"] = before
for name in sys.argv[1:]:
    __import__(name)
    after = memory()
    cost[name] = after[0] - before[0], after[1] - before[1]
    before = after
print(json.dumps(cost))
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--cycles", type=int, default=60, help="idle cycles to measure (default 60)")
    parser.add_argument("--pods", type=int, default=110, help="pods on the node (default 110)")
    parser.add_argument("--interval", type=float, default=0.5, help="seconds between cycles (default 0.5)")
    arguments = parser.parse_args()
    figures = asyncio.run(measure(pods=arguments.pods, cycles=arguments.cycles, interval=arguments.interval))
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        print("\n".join(f"{name:>28} {value}" for name, value in figures.items()))
    missed = [name for name, goal in GOALS.items() if figures[name] > goal]
    sys.exit(f"missed: {', '.join(missed)}" if missed else 0)


class CountingServer(ApiServer):
    """An API server that counts what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    async def _answer(self, request: HTTPRequest, info: RequestInfo) -> HTTPResponse:
        answer = await super()._answer(request, info)
        if request.headers.get("User-Agent", "").startswith("numazones-exporter"):
            kind = (
                "lease" if info.resource == "leases" else "zone" if info.resource == "numazones" else "other"
            )
            what = f"{kind} {'reads' if info.verb in READS else 'writes'}"
            self.requests[what] += 1
            self.bytes[what] += len(request.body) + len(answer.body)
        return answer


async def measure(*, pods: int, cycles: int, interval: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        exclusive = pods * 64 // 110
        kubelet = empty_kubelet(pods, exclusive)
        files = KubeletFiles(folder / "kubelet")
        tree = machine_tree.write(kubelet.spec.machine, folder)
        (folder / "kubelet.json").write_text(json.dumps(kubelet.spec.configuration))
        endpoint = folder / "kubelet" / "pod-resources" / "kubelet.sock"
        async with (
            CountingServer() as server,
            PodResourcesServer(endpoint, lambda: (kubelet.node, kubelet.pods)),
            Client(ClusterConfig(server.url)) as client,
            aiohttp.ClientSession() as http,
        ):
            await populate(client, kubelet, pods, exclusive)
            files.write(kubelet.node)
            write_cgroups(folder / "cgroup", kubelet)
            async with exporter(folder, tree, server.url, interval) as (process, url):
                await ready(http, url)
                figures = await idle_figures(process, http, url, server, cycles=cycles, interval=interval)
                before = server.requests.copy(), server.bytes.copy()
                latency = min(
                    [
                        await latency_of_a_change(client, kubelet, files, pods + number)
                        for number in range(LATE_PODS)
                    ]
                )
                churn = {
                    f"{what}{unit}": round((after[what] - then[what]) / LATE_PODS, 1)
                    for unit, after, then in zip(
                        ("", " bytes"), (server.requests, server.bytes), before, strict=True
                    )
                    for what in after
                    if after[what] > then[what]
                }
            cgroups = f"--cgroups={folder / 'cgroup'}"
            async with exporter(folder, tree, server.url, interval, cgroups) as (process, url):
                await ready(http, url)
                reading = await idle_figures(process, http, url, server, cycles=cycles, interval=interval)
            load = MachineLoad(kubelet.spec.machine, folder, queues=QUEUES)
            async with (
                background(load.run(lambda: (kubelet.node, kubelet.pods))),
                exporter(folder, tree, server.url, interval) as (process, url),
            ):
                await ready(http, url)
                using = await idle_figures(process, http, url, server, cycles=cycles, interval=interval)
    return {
        "numa_nodes": len(kubelet.spec.machine.numa_nodes),
        "cpus": len(kubelet.spec.machine.cpus),
        "pods": pods,
        "exclusive_pods": exclusive,
        **figures,
        "seconds_from_file_to_objects": round(latency, 3),
        "with_cgroups": reading,
        "with_usage": using,
        "cpu_ms_with_cgroups": round(reading["cpu_ms_per_idle_cycle"] + reading["cpu_ms_per_scrape"], 2),
        "api_per_change": churn,
        "api_of_5000_nodes": of_many_nodes(figures["api_per_idle_cycle"], churn, server),
        "imports_mib": await imports(),
    }


def of_many_nodes(idle: dict[str, float], churn: dict[str, float], server: CountingServer) -> dict[str, Any]:
    """Requests and bytes a second of many exporters."""
    lease_bytes = server.bytes["lease writes"] / server.requests["lease writes"]
    renewals = MANY / (Options(node_name=NODE).lease_duration / RENEWALS_PER_DURATION)
    return {
        "at_rest": {
            "lease writes": round(renewals, 1),
            "lease writes bytes": round(renewals * lease_bytes),
            **{what: round(MANY * count / CYCLE_SECONDS, 1) for what, count in idle.items()},
        },
        "changes": {what: round(CHANGES * count, 1) for what, count in churn.items()},
    }


async def imports() -> dict[str, dict[str, float]]:
    """Return what each library adds to a new process when it is imported."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", IMPORTING, *IMPORTS, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return {
        name: {"rss": round(rss / 1024, 1), "private": round(private / 1024, 1)}
        for name, (rss, private) in json.loads(output).items()
    }


def empty_kubelet(pods: int, exclusive: int) -> SimulatedKubelet:
    machine = machines.build(SHAPE)
    each = (exclusive + LATE_PODS) // len(machine.numa_nodes) + 1
    nics = tuple(
        Device(f"nic-{node.id}-{number}", (node.id,)) for node in machine.numa_nodes for number in range(each)
    )
    config = configuration(machine, topology_manager_policy="best-effort") | {"maxPods": pods + LATE_PODS}
    return SimulatedKubelet(NodeSpec(NODE, machine, config, {"vendor.example/nic": nics}))


def pod(number: int, *, cpus: int) -> dict[str, Any]:
    """A pod with the bulk that real pods have: Guaranteed with CPUs, memory and a device, or Burstable."""
    resources: dict[str, Any] = {"requests": {"cpu": "100m", "memory": "256Mi"}}
    if cpus:
        amounts = {"cpu": str(cpus), "memory": "1Gi", "vendor.example/nic": "1"}
        resources = {"requests": amounts, "limits": amounts}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number}",
            "namespace": "default",
            "annotations": {"example.com/bulk": "x" * 4000},
        },
        "spec": {
            "nodeName": NODE,
            "containers": [{"name": "app", "image": "app:1", "resources": resources}],
        },
    }


async def populate(client: Client, kubelet: SimulatedKubelet, pods: int, exclusive: int) -> None:
    """Make definitions, namespace, node and pods, and let the kubelet admit the pods."""
    definition = Path(__file__).parents[2] / "crds" / "numazones.yaml"
    await client.create(DEFINITIONS, yaml.safe_load(definition.read_text()))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "numazones-system"}}
    await client.create(NAMESPACES, namespace)
    await client.create(NODES, node_object(kubelet.spec, now=clock.now()))
    cpus = 2 if exclusive <= len(kubelet.spec.machine.cpus) // 3 else 1
    for number in range(pods):
        await admit(client, kubelet, pod(number, cpus=cpus if number < exclusive else 0))


def write_cgroups(root: Path, kubelet: SimulatedKubelet) -> None:
    """Lay out the control groups of the kubelet's pods as systemd and the kernel do (cgroup v2)."""
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids\n")
    numas = " ".join(f"N{node.id}={4096 * 1000 * (node.id + 1)}" for node in kubelet.spec.machine.numa_nodes)
    for uid in (each.uid for each in kubelet.pods):
        name = f"kubepods-pod{uid.replace('-', '_')}.slice"
        group = root / "kubepods.slice" / name
        group.mkdir(parents=True)
        (group / "memory.numa_stat").write_text("".join(f"{line} {numas}\n" for line in NUMA_STAT.split()))
        for size in ("2MB", "1GB"):
            (group / f"hugetlb.{size}.numa_stat").write_text(
                "total=0 " + " ".join(f"N{n.id}=0" for n in kubelet.spec.machine.numa_nodes) + "\n"
            )


async def admit(client: Client, kubelet: SimulatedKubelet, body: Mapping[str, Any]) -> None:
    created = await client.create(PODS, body, namespace="default")
    verdict = kubelet.admit(created)
    if verdict.rejection is not None:
        sys.exit(f"the simulated kubelet rejected {created['metadata']['name']}: {verdict.rejection}")


@asynccontextmanager
async def exporter(
    folder: Path, tree: machine_tree.MachineTree, server: str, interval: float, *more: str
) -> AsyncIterator[tuple[psutil.Process, str]]:
    """Run the real program; yield its process and the address of its metrics."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("numazones-exporter")),
        f"--node-name={NODE}",
        f"--sysfs={tree.sysfs}",
        f"--procfs={tree.procfs}",
        f"--kubelet-dir={folder / 'kubelet'}",
        f"--kubelet-config=file:{folder / 'kubelet.json'}",
        f"--server={server}",
        f"--interval={interval}",
        f"--metrics-address={address}",
        "--landlock=best-effort",
        *more,
        env={**os.environ, **manifest_environment()},
    )
    try:
        yield psutil.Process(process.pid), f"http://{address}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def manifest_environment() -> dict[str, str]:
    """The environment that the DaemonSet gives the exporter, as far as it is fixed."""
    path = Path(__file__).parents[2] / "manifests" / "exporter" / "daemonset.yaml"
    (container,) = yaml.safe_load(path.read_text())["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


async def ready(http: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with http.get(f"{url}/readyz") as answer:
                    if answer.status == HTTPStatus.OK:
                        return
            await asyncio.sleep(0.1)


async def scrape(http: aiohttp.ClientSession, url: str) -> str:
    async with http.get(f"{url}/metrics", headers={"Accept": "text/plain"}) as answer:
        return await answer.text()


async def cycles_done(http: aiohttp.ClientSession, url: str) -> float:
    """Return how often the exporter has read the node."""
    for family in text_string_to_metric_families(await scrape(http, url)):
        for sample in family.samples:
            if sample.name == "numazones_exporter_scan_duration_seconds_count":
                return sample.value
    return 0.0


async def idle_figures(
    process: psutil.Process,
    http: aiohttp.ClientSession,
    url: str,
    server: CountingServer,
    *,
    cycles: int,
    interval: float,
) -> dict[str, Any]:
    await asyncio.sleep(max(2.0, 5 * interval))  # what follows the start is no steady state
    requests, sent = server.requests.copy(), server.bytes.copy()
    before, used = await cycles_done(http, url), processor_seconds(process)
    done = 0.0
    while done < cycles / 2:  # a busy machine needs longer
        await asyncio.sleep(cycles * interval)
        seconds = processor_seconds(process) - used
        done = await cycles_done(http, url) - before
    idle = {what: count - requests[what] for what, count in server.requests.items()}
    idle_bytes = {what: count - sent[what] for what, count in server.bytes.items()}
    used = processor_seconds(process)
    for _ in range(SCRAPES):
        await scrape(http, url)
    scraping = processor_seconds(process) - used
    own = process.memory_full_info()
    openers = [child.memory_full_info() for child in process.children()]
    return {
        "idle_cycles": int(done),
        "rss_mib": mib(own.rss),
        "uss_mib": mib(own.uss),
        "pss_mib": mib(own.pss + sum(child.pss for child in openers)),
        "file_opener_pss_mib": mib(sum(child.pss for child in openers)),
        "file_opener_uss_mib": mib(sum(child.uss for child in openers)),
        "cpu_ms_per_idle_cycle": round(1000 * seconds / done, 2),
        "cpu_ms_per_scrape": round(1000 * scraping / SCRAPES, 2),
        "zone_writes": idle.get("zone writes", 0),
        "lease_writes": idle.get("lease writes", 0),
        "api_per_idle_cycle": {
            what: round(count / done, 3) for what, count in idle.items() if count and what != "lease writes"
        }
        | {
            f"{what} bytes": round(count / done)
            for what, count in idle_bytes.items()
            if count and what != "lease writes"
        },
    }


def processor_seconds(process: psutil.Process) -> float:
    """Return the processor time of a process and its children."""
    return sum(sum(one.cpu_times()[:2]) for one in (process, *process.children()))


def mib(size: int) -> float:
    return round(size / 2**20, 1)


async def latency_of_a_change(
    client: Client, kubelet: SimulatedKubelet, files: KubeletFiles, number: int
) -> float:
    """Admit one more pod; seconds from the written state files until all zones show it."""
    before = {zone["status"]["snapshot"] for zone in await client.list(NUMAZONES)}
    await admit(client, kubelet, pod(number, cpus=1))
    files.write(kubelet.node)
    start = time.perf_counter()
    async with asyncio.timeout(120):
        while True:
            snapshots = {zone["status"]["snapshot"] for zone in await client.list(NUMAZONES)}
            if len(snapshots) == 1 and snapshots != before:
                return time.perf_counter() - start
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    main()
