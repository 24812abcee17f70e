"""Exporter and operator run as their manifests say: their users, flags, variables, mounts, nothing else.

From the images where `make images` has made them of this commit, and always from this Python, within the
same constraints. The node is a recorded one, the API server the embedded one, behind TLS as in a cluster.
"""

import asyncio
import json
import shutil
import socket
import ssl
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from grpclib.const import Cardinality, Handler
from grpclib.server import Stream

from checks.programs.shipped.containers import (
    FileSystem,
    Network,
    Pod,
    can_isolate,
    confined,
    of_image,
    of_this_python,
    running,
    start,
    tls,
)
from numazones_apiserver import ApiServer
from numazones_client import Client, ClusterConfig
from numazones_client.config import StaticToken
from numazones_client.resources import ADMISSION_PREDICTIONS, NUMAZONES, PODS
from numazones_exporter import landlock
from numazones_node import podresources_pb2 as pb
from numazones_simulator import recorded_nodes, recordings
from numazones_simulator.control_plane import ControlPlane
from numazones_simulator.kubelet.unix_server import UnixServer
from numazones_simulator.recordings import Recording
from tests.manifests.helm import helm
from tests.manifests.kustomizations import composition, rendered
from tests.places import ROOT
from tests.waiting import eventually

IMAGES = ROOT / ".cache" / "images"
SAMPLE = ROOT / "tests" / "data" / "recordings"
TOKEN = "token-of-the-pod"
PATIENCE = 120.0
ATTACK = ROOT / "checks" / "programs" / "exporter" / "attack.py"
HIDDEN = {
    "pods/5d1/volumes/kubernetes.io~secret/database/password",
    "pods/5d1/volumes/kubernetes.io~projected/token/token",
    "plugins/csi.example/credentials",
}
SECRETS = HIDDEN | {"config.json", "kubeconfig", "checkpoints/memory.tar"}
"""What a node has below the kubelet's directory, beside what the exporter reads, and the kubelet's key."""


@dataclass
class Cluster:
    """A recorded node in an API server, and all that the project's pods find there."""

    folder: Path
    kind: str
    """``python`` or ``image``: what the containers are made of."""
    network: Network
    client: Client
    recording: Recording
    pods: Mapping[str, dict[str, Any]]
    """Program → template of its pods, as kustomize renders it."""
    host: dict[str, Path]
    proc: Path

    def files(self, program: str, root: Path) -> FileSystem:
        root.mkdir(exist_ok=True)
        if self.kind == "python":
            return of_this_python(root)
        return of_image(IMAGES / f"numazones-{program}.tar", root)

    def account(self, name: str, namespace: str) -> Path:
        """A folder for a pod, with the files of its service account."""
        folder = self.folder / name / "serviceaccount"
        folder.mkdir(parents=True)
        given = {"token": TOKEN, "namespace": namespace, "ca.crt": (self.folder / "ca.crt").read_text()}
        for file, text in given.items():
            (folder / file).write_text(text)
        return folder.parent

    def pod(self, template: dict[str, Any], name: str, namespace: str, folder: Path) -> Pod:
        return Pod(
            template=template,
            name=name,
            namespace=namespace,
            node=self.recording.name,
            folder=folder,
            host=self.host,
            proc=self.proc,
        )

    @asynccontextmanager
    async def running(self, program: str) -> AsyncIterator[subprocess.Popen[bytes]]:
        """Run a program's pod until the test has seen enough; then it must end in order."""
        namespace = {"exporter": "numazones-system", "operator": "numazones-operator"}[program]
        folder = self.account(program, namespace)
        pod = self.pod(self.pods[program], f"numazones-{program}-x", namespace, folder)
        files = self.files(program, self.folder / f"root-{program}")
        try:
            async with running(pod, files, self.network, f"numazones-{program}") as process:
                yield process
        except BaseException as error:
            error.add_note(f"{program} said:\n{pod.log.read_text()[-4000:]}")
            raise
        assert process.returncode == 0, pod.log.read_text()[-4000:]
        lines = [json.loads(line) for line in pod.log.read_text().splitlines()]
        assert [line for line in lines if line["level"] == "error"] == []

    async def ended(self, template: dict[str, Any]) -> tuple[int, list[str]]:
        """Run a pod of the operator's image to its end; its exit code, and the errors that it found."""
        folder = self.account(f"ended-{len(list(self.folder.iterdir()))}", "numazones-operator")
        pod = self.pod(template, "ended", "numazones-operator", folder)
        process = await start(
            pod.spec(self.files("operator", folder / "root"), "numazones-operator"), self.network, pod.log
        )
        try:
            code = await asyncio.to_thread(process.wait, PATIENCE)
        finally:
            process.kill()
        lines = pod.log.read_text().splitlines()
        return code, [line.removeprefix("ERROR ") for line in lines if line.startswith("ERROR ")]

    async def until(
        self, process: subprocess.Popen[bytes], probe: Callable[[], Awaitable[Any]], what: str
    ) -> Any:
        """Wait for something as long as a process runs."""

        async def seen() -> Any:
            return await probe() or process.poll() is not None

        found = await eventually(seen, patience=PATIENCE, what=what)
        assert process.poll() is None, f"ended by itself before: {what}"
        return found

    async def zones(self) -> list[dict[str, Any]]:
        return [zone for zone in await self.client.list(NUMAZONES) if zone.get("status")]

    async def ready_zones(self) -> list[dict[str, Any]]:
        """The zones, once the node's last one is published and all are sound."""
        zones = await self.zones()
        sound = [
            zone
            for zone in zones
            for condition in zone["status"]["conditions"]
            if condition["type"] == "Ready" and condition["status"] == "True"
        ]
        return zones if zones and len(sound) == zones[0]["status"]["zones"] else []

    async def verdict(self, pod: str) -> str:
        found = {one["metadata"]["name"]: one for one in await self.client.list(ADMISSION_PREDICTIONS)}
        return str(found.get(pod, {}).get("status", {}).get("verdict", ""))


def revision_of(archive: Path) -> str:
    with tarfile.open(archive) as content:

        def read(name: str) -> Any:
            return json.load(content.extractfile(name) or pytest.fail(name))

        manifest = read("blobs/" + read("index.json")["manifests"][0]["digest"].replace(":", "/"))
        config = read("blobs/" + manifest["config"]["digest"].replace(":", "/"))
        return str(config["config"]["Labels"]["org.opencontainers.image.revision"])


def require_images(*programs: str) -> None:
    archives = [IMAGES / f"numazones-{program}.tar" for program in programs]
    if not all(archive.exists() for archive in archives):
        pytest.skip("there are no images: make images, which needs buildah and mmdebstrap, has not been run")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    if {revision_of(archive) for archive in archives} != {head.stdout.strip()}:
        pytest.skip("the images are of another commit: make images")


def certificate(folder: Path, name: str, node: str) -> ssl.SSLContext:
    """A certificate for the node and for loopback, in ``name.crt``."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.DNSName(node), x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    return context


class RecordedPodResources:
    """The kubelet's podresources socket, with the recorded answers."""

    def __init__(self, recording: Recording) -> None:
        folder = recording.directory
        self._list = pb.ListPodResourcesResponse.FromString((folder / "podresources_list.pb").read_bytes())
        self._allocatable = pb.AllocatableResourcesResponse.FromString(
            (folder / "podresources_allocatable.pb").read_bytes()
        )

    async def _answer_list(self, stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        await stream.send_message(self._list)

    async def _answer_allocatable(self, stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        await stream.send_message(self._allocatable)

    def __mapping__(self) -> dict[str, Handler]:
        service, unary = "/v1.PodResourcesLister", Cardinality.UNARY_UNARY
        return {
            f"{service}/List": Handler(
                self._answer_list, unary, pb.ListPodResourcesRequest, pb.ListPodResourcesResponse
            ),
            f"{service}/GetAllocatableResources": Handler(
                self._answer_allocatable,
                unary,
                pb.AllocatableResourcesRequest,
                pb.AllocatableResourcesResponse,
            ),
        }


@asynccontextmanager
async def podresources(recording: Recording, path: Path) -> AsyncIterator[None]:
    async with UnixServer(path, RecordedPodResources(recording)):
        path.chmod(0o600)  # noqa: ASYNC240 - at once
        yield


@asynccontextmanager
async def configz(recording: Recording, network: Network, context: ssl.SSLContext) -> AsyncIterator[None]:
    """The kubelet's own server, which answers who bears the pod's token."""

    async def answer(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=401)
        return web.json_response(json.loads(recording.kubelet_configuration.read_text()))

    application = web.Application()
    application.add_routes([web.get("/configz", answer)])
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.SockSite(runner, await network.listen(10250), ssl_context=context).start()
        yield
    finally:
        await runner.cleanup()


async def apply(folder: Path, server: str, authority: Path) -> None:
    """Apply a folder as the guides tell people to."""
    kubectl = shutil.which("kubectl")
    assert kubectl, "rendered() has skipped already"
    access = [f"--server={server}", f"--certificate-authority={authority}", f"--token={TOKEN}"]
    command = [kubectl, *access, "apply", "--server-side", "-k", str(folder)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def templates(folder: Path) -> dict[str, dict[str, Any]]:
    """Program → template of its pods, as a cluster gets it."""
    found = {}
    for item in rendered(folder):
        if item["kind"] in {"DaemonSet", "Deployment"}:
            found[item["metadata"]["name"].removeprefix("numazones-")] = item["spec"]["template"]
    return found


@pytest.fixture(params=["python", "image"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    if why := can_isolate():
        pytest.skip(f"programs cannot be run as containers here: {why}")
    if request.param == "image":
        require_images("exporter", "operator")
    (recording,) = recordings.find(SAMPLE)
    (tmp_path / "kustomization").mkdir()
    chosen = composition(tmp_path / "kustomization", ["components/operator-admission-gate"])
    pods = templates(chosen)
    node = recordings.lay_out(recording, tmp_path / "node")
    network = Network()
    async with AsyncExitStack() as open_until_the_end:
        open_until_the_end.callback(network.close)
        started = open_until_the_end.enter_async_context
        server = await started(ApiServer(token=TOKEN))
        config = ClusterConfig(server.url, credentials=StaticToken(TOKEN))
        client = await started(Client(config, user_agent="test"))
        context = certificate(tmp_path, "ca", recording.name)
        with socket.create_server(("127.0.0.1", 0)) as here:
            async with tls(here, context, server.url):
                url = f"https://127.0.0.1:{here.getsockname()[1]}"
                await apply(chosen, url, tmp_path / "ca.crt")
        await recorded_nodes._restore(ControlPlane(server, client, tmp_path / "unused"), recording)
        await started(podresources(recording, node.kubelet / "pod-resources" / "kubelet.sock"))
        await started(
            configz(recording, network, certificate(node.kubelet / "pki", "kubelet", recording.name))
        )
        for name in SECRETS:
            (node.kubelet / name).parent.mkdir(parents=True, exist_ok=True)
            (node.kubelet / name).write_text("secret")
        (node.kubelet / "plugins_registry").mkdir()
        for path in (node.kubelet, *node.kubelet.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)  # as on a node: root's alone
        await started(tls(await network.listen(443), context, server.url))
        yield Cluster(
            folder=tmp_path,
            kind=request.param,
            network=network,
            client=client,
            recording=recording,
            pods=pods,
            host={
                "/sys/devices/system": node.sysfs / "devices/system",
                "/var/lib/kubelet": node.kubelet,
                "/proc/meminfo": node.procfs / "meminfo",
                **{f"/proc/{name}": Path(f"/proc/{name}") for name in ("stat", "interrupts", "irq")},
            },
            proc=node.procfs,
        )


def constraints(process: subprocess.Popen[bytes]) -> dict[str, str]:
    """Return the kernel's view of a process's constraints."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def assert_confined(process: subprocess.Popen[bytes], *, user: int) -> None:
    """A process runs as a user without a name, has no capability and gets none, and can write nowhere."""
    said = constraints(process)
    assert said["Uid"].split() == said["Gid"].split() == [str(user)] * 4
    assert said["Groups"] == ""
    assert {said[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert said["NoNewPrivs"] == "1"
    root = Path(f"/proc/{process.pid}/root")
    passwd = root / "etc/passwd"
    named = [line.split(":")[2] for line in passwd.read_text().splitlines()] if passwd.exists() else []
    assert user == 0 or str(user) not in named
    mounts = Path(f"/proc/{process.pid}/mounts").read_text().splitlines()
    (options,) = [fields[3] for fields in map(str.split, mounts) if fields[1] == "/"]
    assert "ro" in options.split(",")
    assert b"HOME=" not in Path(f"/proc/{process.pid}/environ").read_bytes()


@pytest.mark.slow
async def test_exporter_and_operator_run_as_their_manifests_say(cluster: Cluster) -> None:
    network, node = cluster.network, cluster.recording.name

    async def answers(port: int, path: str) -> bool:
        return (await network.get(port, path))[0] == 200

    async with cluster.running("exporter") as exporter:
        zones = await cluster.until(exporter, cluster.ready_zones, "zones of the recorded node")
        assert_confined(exporter, user=0)
        cpus = {
            zone["spec"]["numaID"]: {item["name"]: item for item in zone["status"]["resources"]}["cpu"]
            for zone in zones
        }
        # What the recording's own README says: 12 CPUs of the first zone are given away.
        assert {zone: (cpu["capacity"], cpu["assigned"]) for zone, cpu in cpus.items()} == {
            0: ("24", "12"),
            1: ("24", "0"),
        }
        await cluster.until(exporter, lambda: answers(9416, "/readyz"), "the exporter's readiness")
        assert (
            f"numazones_exporter_landlock_enforced {float(not why_not_landlock())}"
            in (await network.get(9406, "/metrics"))[1]
        )
        assert await answers(9416, "/healthz")

        async with cluster.running("operator") as operator:
            await cluster.until(operator, lambda: answers(9417, "/readyz"), "the operator's readiness")
            assert_confined(operator, user=65532)
            for name, size in (("fits", 20), ("too-large", 200)):
                await cluster.client.create(PODS, guaranteed(name, size), namespace="default")
            for name, verdict in (("fits", "Admissible"), ("too-large", "Inadmissible")):

                async def predicted(name: str = name, verdict: str = verdict) -> bool:
                    return await cluster.verdict(name) == verdict

                await cluster.until(operator, predicted, f"{name} on {node} is {verdict}")
            assert "numazones_" in (await network.get(9407, "/metrics"))[1]


def why_not_landlock() -> str:
    try:
        landlock.version()
    except landlock.LandlockUnavailable as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--landlock=off"], []])
async def test_compromised_exporter_reads_only_needed_files_of_the_kubelet(
    cluster: Cluster, flags: list[str]
) -> None:
    folder = cluster.account("taken-over", "numazones-system")
    pod = cluster.pod(cluster.pods["exporter"], "taken-over", "numazones-system", folder)
    spec = pod.spec(cluster.files("exporter", folder / "root"), "numazones-exporter")
    kubelet = cluster.host["/var/lib/kubelet"]
    files = {str(path.relative_to(kubelet)) for path in kubelet.rglob("*") if path.is_file()}
    python = sys.executable if cluster.kind == "python" else "/usr/bin/python3"
    spec["command"] = [python, "-P", "-c", ATTACK.read_text(), *pod.arguments(), *flags]
    spec["environment"]["PATHS"] = "\n".join(f"/host/kubelet/{name}" for name in sorted(files))
    process = await start(spec, cluster.network, pod.log)
    try:
        assert await asyncio.to_thread(process.wait, PATIENCE) == 0, pod.log.read_text()
    finally:
        process.kill()
    found = json.loads(pod.log.read_text())
    direct, opened = (
        {name.removeprefix("/host/kubelet/") for name in found[way]} for way in ("direct", "opener")
    )
    confined = not flags and not why_not_landlock()
    assert found["enforced"] == confined
    # Mounts alone hide the volumes of pods and the plugins; the rest takes Landlock.
    assert direct == (set() if confined else files - HIDDEN)
    if confined:
        assert found["other"] == []
        assert opened == {
            "cpu_manager_state",
            "memory_manager_state",
            "device-plugins/kubelet_internal_checkpoint",
            "pki/kubelet.crt",
        }
    assert {"pki/kubelet.key", *SECRETS} < files


@pytest.mark.slow
async def test_helm_test_says_whether_an_installation_works(cluster: Cluster) -> None:
    assert await cluster.ended(doctor(cluster.folder)) == (
        1,
        ["zones: NUMAZones", f"exporters: {cluster.recording.name}"],
    )
    async with cluster.running("exporter") as exporter:
        await cluster.until(exporter, cluster.ready_zones, "zones of the recorded node")
        assert await cluster.ended(doctor(cluster.folder)) == (0, [])


def doctor(folder: Path) -> dict[str, Any]:
    """The pod that helm test makes."""
    done = helm("template", "release", str(ROOT / "manifests" / "chart"), home=folder)
    assert done.returncode == 0, done.stderr
    items = yaml.load_all(done.stdout, yaml.CSafeLoader)
    (pod,) = [item for item in items if item["kind"] == "Pod"]
    return {"spec": pod["spec"]}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["python", "image"])
async def test_the_simulator_needs_no_rights_and_one_writable_folder(kind: str, tmp_path: Path) -> None:
    if why := can_isolate():
        pytest.skip(f"programs cannot be run as containers here: {why}")
    if kind == "image":
        require_images("simulator")
    root, scratch = tmp_path / "root", tmp_path / "scratch"
    root.mkdir()
    scratch.mkdir()
    scratch.chmod(0o1777)
    files = of_this_python(root) if kind == "python" else of_image(IMAGES / "numazones-simulator.tar", root)
    story = ["demo"] if kind == "image" else ["cluster", "--nodes=1", "--no-operator", "--publishing=direct"]
    spec = confined(
        files,
        [*files.program("numazones-simulator"), *story],
        user=65532,
        group=65532,
        binds=[(str(scratch), "/tmp", True)],  # noqa: S108 - the one writable folder
        environment={},
    )
    before = set(scratch.rglob("*"))  # mount points, where this project lies in a folder of /tmp
    network = Network()
    try:
        process = await start(spec, network, tmp_path / "log")
        try:
            status = await asyncio.to_thread(process.wait, 240)
        finally:
            process.kill()
            process.wait()
    finally:
        network.close()
    said = (tmp_path / "log").read_text()
    assert status == 0, said[-4000:]
    assert "node-1-numa-0" in said
    assert set(scratch.rglob("*")) == before, "nothing is left behind"


def guaranteed(name: str, cpus: int) -> dict[str, Any]:
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    container = {"name": "main", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], "tolerations": [{"operator": "Exists"}]},
    }
