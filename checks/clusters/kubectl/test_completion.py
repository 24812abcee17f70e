"""Completion of names: what ``kubectl_complete-numazones`` offers on a cluster."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from numazones_client.resources import NAMESPACES, NODES, PODS, REPLICA_SETS
from numazones_simulator.control_plane import control_plane
from tests import plugin
from tests.operator.pods import pod_body

NOTHING = ":4"


@pytest.fixture
async def kubeconfig(tmp_path: Path) -> AsyncIterator[Path]:
    async with control_plane(tmp_path) as plane:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await plane.client.create(NAMESPACES, body)
        for namespace, name in (("team", "web-0"), ("team", "web-1"), ("default", "db")):
            await plane.client.create(PODS, pod_body(name, namespace=namespace), namespace=namespace)
        for name in ("worker-1", "worker-2"):
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            await plane.client.create(NODES, node)
        labels = {"app": "trainer"}
        template = {"metadata": {"labels": labels}, "spec": pod_body("any")["spec"]}
        replicas = {"selector": {"matchLabels": labels}, "template": template}
        owner = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "trainer"},
            "spec": replicas,
        }
        await plane.client.create(REPLICA_SETS, owner, namespace="team")
        yield plane.kubeconfig


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("why", "-n", "team", ""), ["web-0", "web-1"]),
        (("why", ""), ["db"]),
        (("why", "-n", "team", "web-0", ""), ["web-1"]),
        (("why", "-n", "team", "pod/w"), ["pod/web-0", "pod/web-1"]),
        (("why", "-n", "team", "rs/"), ["rs/trainer"]),
        (("why", "-n", "team", "rs", ""), ["trainer"]),
        (("plan", "-n", "team", "w"), ["web-0", "web-1"]),
        (("gate", "release", "-n", "team", "w"), ["web-0", "web-1"]),
        (("who", ""), ["worker-1", "worker-2"]),
        (("top", "worker-1", ""), ["worker-2"]),
        (("tree", "worker-2"), ["worker-2"]),
        (("why", "db", "--node", ""), ["worker-1", "worker-2"]),
        (("why", "-n", "t"), ["team"]),
        (("why", "-f", "dump.json", "d"), []),
    ],
    ids=" ".join,
)
async def test_names_of_the_cluster_are_offered(
    words: tuple[str, ...], offered: list[str], kubeconfig: Path
) -> None:
    found: list[str] = []
    for _ in range(20):  # on a machine that is busy it offers nothing
        process = await asyncio.create_subprocess_exec(
            plugin.PROGRAM.with_name("kubectl_complete-numazones"),
            *words,
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        found = output.decode().splitlines()
        if found != [NOTHING] or not offered:
            break
    assert found == [*offered, NOTHING]
