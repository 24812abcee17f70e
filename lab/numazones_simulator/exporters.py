"""Starts one real exporter per node, and waits until they have published."""

import asyncio
from collections.abc import Mapping

import aiohttp

from numazones.errors import NumazonesError
from numazones_client import Client
from numazones_client.resources import NUMAZONES, PODS
from numazones_simulator.control_plane import NAMESPACE, ControlPlane
from numazones_simulator.programs import Programs
from numazones_simulator.recordings import NodeDirectories

NAME = "numazones-exporter"
_POLL = 0.2


class NotPublished(NumazonesError):
    """Zones of a node did not appear in time; the message names node and log."""


def command(
    node_name: str,
    directories: NodeDirectories,
    *,
    server: str,
    podresources: str = "",
    interval: float = 60.0,
    metrics: str = "127.0.0.1:0",
) -> list[str]:
    """Return the command line of the exporter of a node, by the directories of the node's files.

    ``podresources``: as the option takes it; empty: the socket in the kubelet's directory. ``interval``:
    seconds between readings when nothing happens; ``metrics``: where to serve its metrics.
    """
    arguments = {
        "node-name": node_name,
        "sysfs": str(directories.sysfs),
        "procfs": str(directories.procfs),
        "kubelet-dir": str(directories.kubelet),
        "kubelet-config": "configz",
        "pods": "api",
        "server": server,
        "lease-namespace": NAMESPACE,
        "interval": f"{interval:g}s",
        "metrics-address": metrics,
        "log-format": "text",
    } | ({"podresources": podresources} if podresources else {})
    return [NAME, *(f"--{name}={value}" for name, value in arguments.items())]


async def show_pods(plane: ControlPlane, metrics: Mapping[str, str]) -> None:
    """Make the pods that a cluster would show of running exporters, and proxy what they are asked.

    ``metrics``: node → the URL of its exporter's metrics.
    """

    async def answer(_namespace: str, name: str, _port: str, path: str) -> tuple[int, bytes]:
        url = metrics[name.removeprefix(f"{NAME}-")]
        async with aiohttp.ClientSession() as session, session.get(f"{url}/{path.lstrip('/')}") as response:
            return response.status, await response.read()

    plane.server.pod_proxy = answer
    for node in metrics:
        container = {"name": "exporter", "image": NAME, "ports": [{"name": "metrics", "containerPort": 9406}]}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{NAME}-{node}", "labels": {"app.kubernetes.io/name": NAME}},
            "spec": {"nodeName": node, "containers": [container], "tolerations": [{"operator": "Exists"}]},
        }
        await plane.client.create(PODS, pod, namespace=NAMESPACE)


async def wait_for_zones(
    client: Client, nodes: set[str], programs: Programs, *, patience: float = 300.0
) -> None:
    """Wait until every node has a complete set of zones.

    Raises:
        NotPublished: some node has none after ``patience`` seconds.
        ProgramFailed: an exporter ended.
    """
    missing = set(nodes)
    try:
        async with asyncio.timeout(patience):
            while missing:
                await asyncio.sleep(_POLL)
                programs.check()
                missing = nodes - await _nodes_with_all_zones(client)
    except TimeoutError:
        raise NotPublished(
            f"no NUMAZones of {', '.join(sorted(missing))} after {patience:g} s; "
            f"the exporters' logs are in {programs.log_directory}"
        ) from None


async def _nodes_with_all_zones(client: Client) -> set[str]:
    """Nodes all of whose zones are there."""
    counts: dict[str, int] = {}
    expected: dict[str, int] = {}
    for zone in await client.list(NUMAZONES):
        node = zone["spec"]["nodeName"]
        counts[node] = counts.get(node, 0) + 1
        expected[node] = (zone.get("status") or {}).get("zones", 0)
    return {node for node, count in counts.items() if count == expected[node]}
