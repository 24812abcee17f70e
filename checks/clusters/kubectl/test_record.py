"""``record``: a node, fetched through the real exporter on it, replays; its pseudonyms name nobody."""

import gzip
import io
import json
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.record import directory, pseudonyms
from kubectl_numazones.record.recorded_node import NodeRecording, node_of, pod_of
from numazones_client.resources import CONFIG_MAPS, PODS
from numazones_simulator import node_kinds, simulated_cluster
from numazones_simulator.screen import Screen
from numazones_simulator.simulated_cluster import SimulatedCluster
from tests import plugin
from tests.kubectl.small_cluster import node_body, pod_body
from tests.waiting import eventually

SYSTEM = "numazones-system"
NODE = "secret-host"
SECRETS = ("secret", "acme", "trainer", "9d7f", "topsecret", "registry.example")
"""Parts of every name that is given below."""


@dataclass
class Setting:
    """A cluster and its exporter, as a user's kubectl sees it."""

    cluster: SimulatedCluster
    instead: tuple[int, bytes] | None = None
    """What is answered instead of what the exporter says."""

    async def proxied(self, _namespace: str, _name: str, _port: str, path: str) -> tuple[int, bytes]:
        """Ask the exporter, as the API server does."""
        if self.instead is not None:
            return self.instead
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.cluster.exporters[NODE]}/{path}") as response,
        ):
            return response.status, await response.read()

    async def record(self, *arguments: str | Path) -> tuple[int, str, str]:
        """Record with the cluster's kubeconfig."""
        return await plugin.streams("record", "--kubeconfig", self.cluster.plane.kubeconfig, *arguments)


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[Setting]:
    """One node with a real exporter, and its pod as the DaemonSet would have made it."""
    screen = Screen(io.StringIO(), io.StringIO())
    spec = node_kinds.single_numa_node(NODE, "10.0.0.1")
    async with simulated_cluster.running([spec], directory, screen, operator=None) as running:
        setting = Setting(running)
        running.plane.server.pod_proxy = setting.proxied
        client = running.plane.client
        await client.create(PODS, exporter_pod(), namespace=SYSTEM)
        # Anything may own pods, and nobody replaces what a ConfigMap owns.
        owner = await client.create(CONFIG_MAPS, {"metadata": {"name": "acme-9d7f"}}, namespace="default")
        for number, cpus in enumerate((3, 2, 90)):
            body = guaranteed(number, cpus, owner["metadata"]["uid"])
            await client.create(PODS, body, namespace="default")
        await eventually(lambda: settled(running), what="all pods have settled")
        yield setting


def exporter_pod() -> dict[str, Any]:
    return {
        "metadata": {
            "name": "numazones-exporter-x",
            "labels": {"app.kubernetes.io/name": "numazones-exporter"},
        },
        "spec": {
            "nodeName": NODE,
            "containers": [
                {
                    "name": "exporter",
                    "image": "registry.example/exporter",
                    "ports": [{"name": "metrics", "containerPort": 9406}],
                    "env": [{"name": "PASSWORD", "value": "topsecret"}],
                }
            ],
        },
    }


def guaranteed(number: int, cpus: int, owner: str) -> dict[str, Any]:
    amounts = {"cpu": str(cpus), "memory": "1Gi", node_kinds.GPU: "1"}
    return {
        "metadata": {
            "name": f"acme-trainer-{number}",
            "labels": {"app": "acme-trainer", "acme.example/team": "secret-team"},
            "annotations": {"acme.example/note": "topsecret"},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "name": "acme-9d7f",
                    "uid": owner,
                    "controller": True,
                }
            ],
        },
        "spec": {
            "nodeName": NODE,
            "containers": [
                {
                    "name": "acme-main",
                    "image": "registry.example/secret:1",
                    "command": ["run", "topsecret"],
                    "resources": {"requests": amounts, "limits": amounts},
                }
            ],
        },
    }


async def settled(running: SimulatedCluster) -> bool:
    pods = await running.plane.client.list(PODS)
    phases = {pod["metadata"]["name"]: pod["status"].get("phase") for pod in pods}
    return len(phases) == 4 and set(phases.values()) == {"Running", "Failed"}


def contents(directory: Path) -> Iterator[tuple[str, bytes]]:
    """Every file's name and bytes, those in archives too."""
    for path in directory.rglob("*"):
        yield str(path.relative_to(directory)), b""
        if path.suffix == ".gz":
            yield path.name, gzip.decompress(path.read_bytes())
            with tarfile.open(path) as archive:
                yield path.name, "\n".join(archive.getnames()).encode()
        elif path.is_file():
            yield path.name, path.read_bytes()


async def test_a_node_is_recorded_replays_and_under_pseudonyms_names_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMAZONES_EXPORTER_RECORDINGS", "true")
    async with cluster(tmp_path / "c") as setting:
        plain, hidden = tmp_path / "plain", tmp_path / "hidden"
        code, said, errors = await setting.record(NODE, "-o", plain)
        assert (said, code) == (f"{plain}: 4 pods, 2 NUMA nodes of {NODE}\n", 0), errors
        code, said, errors = await setting.record(f"node/{NODE}", "-o", hidden, "--pseudonyms")
        assert (said, code) == (f"{hidden}: 4 pods, 2 NUMA nodes of node-1\n", 0), errors
        for directory, node in ((plain, NODE), (hidden, "node-1")):
            code, said, errors = await plugin.streams("replay", directory, "-o", "json")
            counts = {name: figure for name, figure in json.loads(said).items() if isinstance(figure, int)}
            # The exporter's pod and two trainers are held; the third was rejected before.
            assert (counts, code) == ({"outcomes": 3, "agree": 3, "outside": 1}, 0), said
            code, said, errors = await plugin.streams("who", node, "-f", directory)
            assert said.count("trainer" if node == NODE else "pod-") == 2, said + errors
            assert said.count("gpu:00-") == 2, said
            code, said, errors = await plugin.streams("tree", node, "-f", directory)
            assert ("socket 0" in said, code) == (True, 0), errors
        assert not any(b"topsecret" in content for _, content in contents(plain))
        leaks = [
            (name, secret)
            for name, content in contents(hidden)
            for secret in SECRETS
            if secret in name or secret.encode() in content
        ]
        assert leaks == []

        # A difference is told: the kubelet says that a pod holds other CPUs than its state file.
        history = hidden / "replay.jsonl"
        lines = [json.loads(line) for line in history.read_text().splitlines()]
        line = next(it for it in lines if "cpu_ids" in str(it.get("observed")))
        (held,) = line["observed"]["podresources_list"].values()
        held["cpu_ids"] = [0]
        history.write_text("".join(f"{json.dumps(it)}\n" for it in lines))
        code, said, errors = await plugin.streams("replay", hidden)
        assert "CPUs: observed container-" in said
        assert code == 1

        code, said, errors = await setting.record(NODE, "-o", plain)
        assert errors == f"error: {plain} already exists; use another directory, or remove it\n"
        code, said, errors = await setting.record("nobody", "-o", tmp_path / "x")
        assert errors == f"error: there is no node nobody; existing nodes: {NODE}\n"
        for status, told, cure in (
            (403, b'cannot get resource "pods/proxy"', "--role=numazones-recorder"),
            (403, b"recordings are switched off", "switch them on: component exporter-recordings"),
            (404, b"not found; use /metrics, /healthz or /readyz", "older than this program"),
            (200, b"<html>", "is truncated or not an archive"),
            (200, archive_of("state/../../elsewhere"), "not a recording: it names 'state/../../elsewhere'"),
            (200, archive_of("/etc/elsewhere"), "not a recording: it names '/etc/elsewhere'"),
        ):
            setting.instead = status, told
            code, said, errors = await setting.record(NODE, "-o", tmp_path / "x")
            assert (cure in errors, code) == (True, 2), errors
        await setting.cluster.plane.client.delete(PODS, "numazones-exporter-x", namespace=SYSTEM)
        await eventually(lambda: gone(setting), what="the exporter's pod is gone")
        code, said, errors = await setting.record(NODE, "-o", tmp_path / "x")
        assert f"is running on node {NODE}, so its files cannot be read; install the exporter" in errors
        assert names_in(tmp_path) == ["c", "hidden", "plain"]


def archive_of(name: str) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return written.getvalue()


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def gone(setting: Setting) -> bool:
    return not await setting.cluster.plane.client.list(PODS, namespace=SYSTEM)


def found(**changes: Any) -> NodeRecording:
    empty = NodeRecording(
        name="n",
        node=node_of(node_body("n")),
        pods=(),
        events=(),
        zones=(),
        configuration={},
        devices={},
        podresources=(),
        problems=(),
        tree={"sys/a": b"1", "sys/b/": b""},
        state={},
    )
    return replace(empty, **changes)


def test_ctrl_c_while_a_recording_is_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_found: NodeRecording) -> Iterator[Any]:
        assert len(list(tmp_path.iterdir())) == 1  # something has been written
        raise KeyboardInterrupt

    monkeypatch.setattr(directory, "_operations", interrupted)
    with pytest.raises(KeyboardInterrupt):
        directory.write(found(), tmp_path / "recording")
    assert list(tmp_path.iterdir()) == []


def test_recording_overwrites_no_empty_directory_or_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("empty", "link"):
        with pytest.raises(BadDump, match="already exists"):
            directory.write(found(), tmp_path / name)
    with pytest.raises(BadDump, match="No such file or directory"):
        directory.write(found(), tmp_path / "none" / "recording")


def test_what_selects_nodes_is_renamed_as_the_nodes_labels_are() -> None:
    node = node_body("host-a")
    node["metadata"]["labels"] |= {"acme.example/rack": "r7", "kubernetes.io/os": "linux"}
    node["spec"] = {"taints": [{"key": "acme.example/only", "value": "r7", "effect": "NoSchedule"}]}
    term = {"key": "acme.example/rack", "operator": "In", "values": ["r7", "r8"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    spec = {
        "nodeSelector": {"acme.example/rack": "r7", "kubernetes.io/hostname": "host-a"},
        "tolerations": [{"key": "acme.example/only", "operator": "Equal", "value": "r7"}],
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required},
            "podAffinity": {"any": "acme"},
        },
        "containers": [{"name": "c", "env": [{"name": "A", "value": "acme"}]}],
    }
    pod = pod_body("p", 1, spec=spec, message="acme is not there")
    before = found(name="host-a", node=node_of(node), pods=(pod_of(pod),))
    after, left_out = pseudonyms.with_pseudonyms(replace(before, state={"cpu_manager_state": b"acme"}))
    assert "cpu_manager_state" in left_out[0]
    assert after.state == {}
    labels, taint = after.node["metadata"]["labels"], after.node["spec"]["taints"][0]
    assert (labels["kubernetes.io/os"], labels["kubernetes.io/hostname"]) == ("linux", "node-1")
    (renamed,) = after.pods
    assert renamed["spec"]["nodeSelector"].items() <= labels.items()
    toleration = renamed["spec"]["tolerations"][0]
    assert (toleration["key"], toleration["value"]) == (taint["key"], taint["value"])
    node_affinity = renamed["spec"]["affinity"]["nodeAffinity"]
    (selects,) = node_affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (expression,) = selects["matchExpressions"]
    assert labels[expression["key"]] == expression["values"][0] != expression["values"][1]
    text = json.dumps([after.node, after.pods])
    assert [name for name in ("acme", "host-a", "r7", "r8") if name in text] == []
