"""The real program, its manifests and the definitions against a real kube-apiserver."""

import asyncio
import json
import re
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from numazones.kubelet import machines
from numazones_apiserver.ports import listening_socket
from numazones_simulator import machine_tree
from numazones_simulator.kubelet.kubelet import SimulatedKubelet
from numazones_simulator.kubelet.podresources import PodResourcesServer
from numazones_simulator.kubelet.state_files import KubeletFiles
from numazones_simulator.node_spec import NodeSpec, configuration, node_object
from tests.places import ROOT
from tests.real_apiserver import RealAPIServer

NAMESPACE, ACCOUNT = "numazones-system", "numazones-exporter"
NODE, OTHER = "real-worker-1", "real-worker-2"

pytestmark = pytest.mark.real_apiserver


def make(server: RealAPIServer, body: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(
        server.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(body))
    )
    return made


def pod(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": NODE, **spec},
    }


def outward_address() -> str:
    """An address of this machine to which an API server proxies, as to a pod: loopback it refuses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.1", 9))  # for documentation; nothing is sent
        except OSError as error:
            pytest.skip(f"this machine has no address but loopback: {error}")
        return str(asked.getsockname()[0])


def free_port(address: str) -> int:
    with listening_socket(address) as held:
        return int(held.getsockname()[1])


class Node:
    """A simulated node that the real API server knows, with the token of its exporter's pod."""

    def __init__(self, server: RealAPIServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        machine = machines.build(machines.MachineShape(cores_per_numa=4))
        config = configuration(machine, topology_manager_policy="restricted", reserved_cpus="0,4")
        self.kubelet = SimulatedKubelet(NodeSpec(NODE, machine, config))
        self.tree = machine_tree.write(machine, folder)
        self.files = KubeletFiles(folder / "kubelet")
        self.files.write(self.kubelet.node)
        (folder / "kubelet.json").write_text(json.dumps(config))
        for name in (NODE, OTHER):
            node = node_object(NodeSpec(name, machine, config), now="2026-01-31T08:00:00Z")
            make(server, node)
            server.kubectl(
                "patch",
                "node",
                name,
                "--subresource=status",
                "--type=merge",
                "-p",
                json.dumps({"status": node["status"]}),
            )
        agent = pod(
            "exporter", NAMESPACE, serviceAccountName=ACCOUNT, containers=[{"name": "e", "image": "e"}]
        )
        make(server, agent)
        token = server.kubectl(
            *("-n", NAMESPACE, "create", "token", ACCOUNT),
            *("--bound-object-kind=Pod", "--bound-object-name=exporter"),
        ).strip()
        self.kubeconfig = server.kubeconfig_for(token, folder / "kubeconfig")

    def admit(self, name: str, *, cpus: int) -> None:
        amounts = {"cpu": str(cpus), "memory": "1Gi"}
        resources = {"requests": amounts, "limits": amounts}
        body = pod(name, "default", containers=[{"name": "app", "image": "x", "resources": resources}])
        assert self.kubelet.admit(make(self.server, body)).rejection is None
        self.files.write(self.kubelet.node)

    @asynccontextmanager
    async def exporting(
        self, node_name: str = NODE, *flags: str, metrics: str = "127.0.0.1:0"
    ) -> AsyncIterator[Path]:
        """Run the program; yields its log."""
        log = self.folder / "exporter.log"
        socket = self.folder / "kubelet" / "pod-resources" / "kubelet.sock"
        async with PodResourcesServer(socket, lambda: (self.kubelet.node, self.kubelet.pods)):
            with log.open("wb") as output:
                process = await asyncio.create_subprocess_exec(
                    str(Path(sys.executable).with_name("numazones-exporter")),
                    f"--node-name={node_name}",
                    f"--sysfs={self.tree.sysfs}",
                    f"--procfs={self.tree.procfs}",
                    f"--kubelet-dir={self.folder / 'kubelet'}",
                    f"--kubelet-config=file:{self.folder / 'kubelet.json'}",
                    f"--kubeconfig={self.kubeconfig}",
                    "--interval=300ms",
                    f"--metrics-address={metrics}",
                    *flags,
                    stderr=output,
                )
            try:
                yield log
            finally:
                if process.returncode is None:
                    process.terminate()
                await process.wait()

    def zones(self, node_name: str = NODE) -> list[dict[str, Any]]:
        found = self.server.kubectl("get", "numazones", "-l", f"numazones.io/node={node_name}", "-o", "json")
        items: list[dict[str, Any]] = json.loads(found)["items"]
        return items

    def versions(self) -> list[tuple[str, str]]:
        return [(zone["metadata"]["name"], zone["metadata"]["resourceVersion"]) for zone in self.zones()]

    async def assigned(self, expected: int) -> None:
        """Wait until the zones agree on so many assigned CPUs."""
        async with asyncio.timeout(30):
            while True:
                zones = [zone["status"] for zone in self.zones() if "status" in zone]
                cpus = [
                    int(resource["assigned"])
                    for zone in zones
                    for resource in zone["resources"]
                    if resource["name"] == "cpu"
                ]
                if len({zone["snapshot"] for zone in zones}) == 1 and sum(cpus) == expected:
                    return
                await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def node(real_cluster: RealAPIServer, tmp_path_factory: pytest.TempPathFactory) -> Node:
    return Node(real_cluster, tmp_path_factory.mktemp("node"))


async def test_zones_are_published_and_shown(node: Node) -> None:
    node.admit("first", cpus=2)
    async with node.exporting():
        await node.assigned(2)
    ours = f"numazones.io/node={NODE}"
    header, *rows = node.server.kubectl("get", "numazones", "-l", ours, "-o", "wide").splitlines()
    assert header.startswith("NAME"), header
    assert header.split()[1:7] == ["POLICY", "CPU", "FREE", "MEM-FREE", "DEVICES", "STATE"]
    assert [row.split()[0] for row in rows] == [f"{NODE}-numa-{number}" for number in (0, 1)]
    assert max(map(len, (header, *rows))) <= 160
    explained = node.server.kubectl("explain", "numazone.status")
    assert "snapshot\t<string>" in explained
    assert "DESCRIPTION:" in explained
    lease = node.server.kubectl("get", "lease", "-n", NAMESPACE, "-o", "name")
    assert f"numazones-exporter-{NODE}" in lease


async def cycles(log: Path, number: int) -> None:
    """Wait until an exporter has published, and has read the node so many times."""
    read = 0.0
    async with asyncio.timeout(120), aiohttp.ClientSession() as http:
        while read < number:
            await asyncio.sleep(0.05)
            found = re.search(r"metrics on port (\d+)", await asyncio.to_thread(log.read_text))
            if found is None:
                continue
            port = found[1]
            async with http.get(f"http://127.0.0.1:{port}/readyz") as answer:
                if answer.status != HTTPStatus.OK:
                    continue
            async with http.get(f"http://127.0.0.1:{port}/metrics") as answer:
                text = await answer.text()
            count = re.search(r"^numazones_exporter_scan_duration_seconds_count (\S+)", text, re.MULTILINE)
            read = float(count[1]) if count else 0.0


async def test_nothing_is_written_when_nothing_changed_not_even_after_restarts(node: Node) -> None:
    async with node.exporting() as log:
        await cycles(log, 2)  # what the last test's exporter was stopped in the middle of is completed
    before = node.versions()
    for _ in range(2):
        async with node.exporting() as log:
            await cycles(log, 10)
    assert node.versions() == before


async def test_a_change_is_published(node: Node) -> None:
    held = 2 * len(node.kubelet.pods)  # those of the tests before it, in whichever process they ran
    async with node.exporting():
        await node.assigned(held)
        node.admit("second", cpus=2)
        await node.assigned(held + 2)


@pytest.mark.parametrize("what", ["a zone", "all zones", "their definition"])
async def test_deleted_zones_of_a_quiet_node_return_within_ten_seconds(node: Node, what: str) -> None:
    server = node.server
    held = 2 * len(node.kubelet.pods)
    async with node.exporting(NODE, "--interval=1h"):
        await node.assigned(held)
        before = {zone["metadata"]["uid"] for zone in node.zones()}
        await asyncio.sleep(1)  # in which it begins to watch its zones; if later, it sees that one is gone
        if what == "their definition":
            server.kubectl("delete", "crd", "numazones.numazones.io")
            await asyncio.sleep(2)  # somebody installs it again
            server.kubectl("apply", "-f", str(ROOT / "crds" / "numazones.yaml"))
            server.kubectl("wait", "--for=condition=Established", "crd/numazones.numazones.io")
        else:
            names = [zone["metadata"]["name"] for zone in node.zones()]
            server.kubectl("delete", "numazones", *names[: 1 if what == "a zone" else None])
        deleted = time.monotonic()
        await node.assigned(held)
        assert time.monotonic() - deleted < 10
        assert {zone["metadata"]["uid"] for zone in node.zones()} != before


async def test_token_of_a_recreated_node_names_the_pod_to_delete(node: Node) -> None:
    server = node.server
    async with node.exporting(NODE, "--interval=1h") as log:
        await node.assigned(2 * len(node.kubelet.pods))
        body = json.loads(server.kubectl("get", "node", NODE, "-o", "json"))
        old = body["metadata"]["uid"]
        server.kubectl("delete", "node", NODE, "--wait=true")
        body["metadata"] = {"name": NODE, "labels": body["metadata"].get("labels", {})}
        new = make(server, body)["metadata"]["uid"]
        server.kubectl(
            "delete", "numazones", "-l", f"numazones.io/node={NODE}"
        )  # as the garbage collector does
        said = f"names Node {NODE} by the uid {old} of one that is gone"
        async with asyncio.timeout(30):
            while said not in log.read_text():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.05)
        text = log.read_text()
        assert f"has the uid {new} now" in text
        assert f"kubectl -n {NAMESPACE} delete pod exporter" in text
        assert "must be the Node" in text


async def test_the_exporter_of_one_node_cannot_publish_another(node: Node) -> None:
    def rejections(log: Path) -> list[str]:
        messages = [json.loads(line)["message"] for line in log.read_text().splitlines()]
        return [message for message in messages if message.startswith("publishing failed")]

    async with node.exporting(OTHER) as log, asyncio.timeout(30):
        while not rejections(log):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)
    message = rejections(log)[0]
    assert f"the exporter of node {NODE} may not write numazones {OTHER}-numa-0" in message
    assert node.zones(OTHER) == []


async def test_rights_in_the_guide_suffice_to_record_a_node(node: Node, tmp_path: Path) -> None:
    address = outward_address()
    port = free_port(address)
    server = node.server
    body = pod(
        "numazones-exporter-x",
        NAMESPACE,
        containers=[{"name": "e", "image": "e", "ports": [{"name": "metrics", "containerPort": port}]}],
    )
    body["metadata"]["labels"] = {"app.kubernetes.io/name": ACCOUNT}
    make(server, body)
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    told = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    server.kubectl("-n", NAMESPACE, "patch", "pod", "numazones-exporter-x", *told)
    server.kubectl("create", "serviceaccount", "recorder", "-n", "default")
    token = server.kubectl("create", "token", "recorder", "-n", "default").strip()
    kubeconfig = server.kubeconfig_for(token, tmp_path / "recorder.kubeconfig")
    account = "--serviceaccount=default:recorder"

    async def record(directory: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("kubectl-numazones")),
            *("record", NODE, "-o", directory, "--kubeconfig", str(kubeconfig)),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return process.returncode, said.decode()

    async with node.exporting(NODE, "--recordings=true", metrics=f"{address}:{port}"):
        async with asyncio.timeout(30):
            while not listening(address, port):  # noqa: ASYNC110 - another process opens it
                await asyncio.sleep(0.05)
        code, said = await record("without-reading")
        assert (code, 'cannot get resource "nodes"' in said) == (2, True), said
        reads = ("--verb=get,list", "--resource=nodes,pods,events")
        server.kubectl("create", "clusterrole", "recorders-reading", *reads)
        server.kubectl("create", "clusterrolebinding", "reading", "--clusterrole=recorders-reading", account)
        code, said = await record("without-proxy")
        assert (code, "--role=numazones-recorder" in said) == (2, True), said
        # The component alone has a DaemonSet to patch, and none to apply.
        rights = ROOT / "manifests" / "components" / "exporter-recordings" / "rbac.yaml"
        server.kubectl("apply", "-f", str(rights))
        role = ("-n", NAMESPACE, "--role=numazones-recorder")
        server.kubectl("create", "rolebinding", "recorders", *role, account)
        code, said = await record("recorded")
        assert (code, said.startswith("recorded: ")) == (0, True), said
    assert recorded_in(tmp_path) == {"recorded": NODE}


def listening(address: str, port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex((address, port)) == 0


def recorded_in(folder: Path) -> dict[str, str]:
    """Recording → name of the node in it."""
    found = folder.glob(f"*/{NODE}/node.json")
    return {path.parts[-3]: json.loads(path.read_text())["metadata"]["name"] for path in found}
