"""What the exporter costs a node when nothing happens: memory, CPU time per idle cycle, writes.

The real program runs against a simulated node of 8 NUMA nodes, 256 CPUs and 110 pods: a sysfs tree, the
kubelet's state files, podresources on a unix socket, and the embedded API server with the node's pods. This
process plays node and API server, so that only the exporter is measured. Idle cycles follow one another
every ``--interval`` seconds instead of every minute. Afterwards pods are admitted, to measure the time from
the changed state file to the changed objects: of three, the shortest, to which others have added least.

    python benchmarks/exporter.py --json
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
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import yaml
from prometheus_client.parser import text_string_to_metric_families

from numazones import machines
from numazones.kubelet.device_manager import Device
from numazones_apiserver import ApiServer
from numazones_client import Client, ClusterConfig
from numazones_client.resources import DEFINITIONS, NAMESPACES, NODES, NUMAZONES, PODS
from numazones_simulator import clock, machine_tree
from numazones_simulator.kubelet.kubelet import Kubelet
from numazones_simulator.kubelet.podresources import PodResourcesServer
from numazones_simulator.kubelet.state_files import StateFiles
from numazones_simulator.node_spec import NodeSpec, configuration, node_object

NODE = "worker-0"
SHAPE = machines.Shape(sockets=2, numa_per_socket=4, cores_per_numa=16)
EXCLUSIVE_PODS, SHARED_PODS, LATE_PODS = 64, 46, 3
GOALS = {"rss_mib": 60.0, "cpu_ms_per_idle_cycle": 50.0, "zone_writes": 0.0}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--cycles", type=int, default=60, help="idle cycles to measure (default 60)")
    parser.add_argument("--interval", type=float, default=0.5, help="seconds between them (default 0.5)")
    arguments = parser.parse_args()
    figures = asyncio.run(measure(cycles=arguments.cycles, interval=arguments.interval))
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        print("\n".join(f"{name:>28} {value}" for name, value in figures.items()))
    missed = [name for name, goal in GOALS.items() if figures[name] > goal]
    sys.exit(f"missed: {', '.join(missed)}" if missed else 0)


async def measure(*, cycles: int, interval: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kubelet = empty_kubelet()
        files = StateFiles(folder / "kubelet")
        tree = machine_tree.write(kubelet.spec.machine, folder)
        (folder / "kubelet.json").write_text(json.dumps(kubelet.spec.configuration))
        endpoint = folder / "kubelet" / "pod-resources" / "kubelet.sock"
        async with (
            ApiServer() as server,
            PodResourcesServer(endpoint, lambda: (kubelet.node, kubelet.pods)),
            Client(ClusterConfig(server.url)) as client,
            aiohttp.ClientSession() as http,
        ):
            await populate(client, kubelet)
            files.write(kubelet.node)
            async with exporter(folder, tree, server.url, interval) as (process, url):
                await ready(http, url)
                figures = await idle_figures(process, http, url, cycles=cycles, interval=interval)
                latency = min(
                    [await latency_of_a_change(client, kubelet, files, number) for number in range(LATE_PODS)]
                )
    return {
        "numa_nodes": len(kubelet.spec.machine.numa_nodes),
        "cpus": len(kubelet.spec.machine.cpus),
        "pods": EXCLUSIVE_PODS + SHARED_PODS,
        **figures,
        "seconds_from_file_to_objects": round(latency, 3),
    }


def empty_kubelet() -> Kubelet:
    machine = machines.build(SHAPE)
    nics = tuple(Device(f"nic-{numa}-{number}", (numa,)) for numa in range(8) for number in range(9))
    config = configuration(machine, topology_manager_policy="best-effort") | {"maxPods": 250}
    return Kubelet(NodeSpec(NODE, machine, config, {"vendor.example/nic": nics}))


def pod(number: int, *, exclusive: bool) -> dict[str, Any]:
    """A pod with the bulk that real pods have: Guaranteed with CPUs, memory and a device, or Burstable."""
    resources: dict[str, Any] = {"requests": {"cpu": "100m", "memory": "256Mi"}}
    if exclusive:
        amounts = {"cpu": "2", "memory": "2Gi", "vendor.example/nic": "1"}
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


async def populate(client: Client, kubelet: Kubelet) -> None:
    """Make definitions, namespace, node and pods, and let the kubelet admit the pods."""
    definition = Path(__file__).parents[1] / "crds" / "numazones.yaml"
    await client.create(DEFINITIONS, yaml.safe_load(definition.read_text()))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "numazones-system"}}
    await client.create(NAMESPACES, namespace)
    await client.create(NODES, node_object(kubelet.spec, now=clock.now()))
    for number in range(EXCLUSIVE_PODS + SHARED_PODS):
        await admit(client, kubelet, pod(number, exclusive=number < EXCLUSIVE_PODS))


async def admit(client: Client, kubelet: Kubelet, body: Mapping[str, Any]) -> None:
    created = await client.create(PODS, body, namespace="default")
    verdict = kubelet.admit(created)
    if verdict.rejection is not None:
        sys.exit(f"the simulated kubelet rejected {created['metadata']['name']}: {verdict.rejection}")


@asynccontextmanager
async def exporter(
    folder: Path, tree: machine_tree.MachineTree, server: str, interval: float
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
    path = Path(__file__).parents[1] / "manifests" / "exporter" / "daemonset.yaml"
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


async def samples(http: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """The exporter's own counts: cycles, writes by kind."""
    async with http.get(f"{url}/metrics", headers={"Accept": "text/plain"}) as answer:
        text = await answer.text()
    found = {"cycles": 0.0, "NUMAZone": 0.0, "Lease": 0.0}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "numazones_exporter_scan_duration_seconds_count":
                found["cycles"] = sample.value
            elif sample.name == "numazones_exporter_api_writes_total":
                found[sample.labels["kind"]] += sample.value
    return found


async def idle_figures(
    process: psutil.Process, http: aiohttp.ClientSession, url: str, *, cycles: int, interval: float
) -> dict[str, Any]:
    await asyncio.sleep(max(2.0, 5 * interval))  # what follows the start is no steady state
    before, used = await samples(http, url), process.cpu_times()
    done = 0.0
    while done < cycles / 2:  # a busy machine needs longer
        await asyncio.sleep(cycles * interval)
        times = process.cpu_times()
        after = await samples(http, url)
        done = after["cycles"] - before["cycles"]
    seconds = times.user + times.system - used.user - used.system
    return {
        "idle_cycles": int(done),
        "rss_mib": round(process.memory_info().rss / 2**20, 1),
        "uss_mib": round(process.memory_full_info().uss / 2**20, 1),
        "cpu_ms_per_idle_cycle": round(1000 * seconds / done, 2),
        "zone_writes": int(after["NUMAZone"] - before["NUMAZone"]),
        "lease_writes": int(after["Lease"] - before["Lease"]),
    }


async def latency_of_a_change(client: Client, kubelet: Kubelet, files: StateFiles, number: int) -> float:
    """Admit one more pod; seconds from the written state files until all zones show it."""
    before = {zone["status"]["snapshot"] for zone in await client.list(NUMAZONES)}
    await admit(client, kubelet, pod(EXCLUSIVE_PODS + SHARED_PODS + number, exclusive=True))
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
