"""Sources that are read over the network: Node, pods, and the kubelet's configuration in both ways."""

import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from numazones_exporter.observation import KUBELET_CONFIG, NODE, PODS, Observation
from numazones_exporter.options import Options
from numazones_exporter.sources.reading import Sources, observe
from numazones_node.problems import Problem
from tests.exporter.sources.sysfs_tree import Tree

CONFIGURATION = {"kubeletconfig": {"kind": "KubeletConfiguration", "topologyManagerPolicy": "restricted"}}
TOKEN = "token-of-the-exporter"


class Cluster:
    """An API server with one node, and (the same routes) that node's kubelet."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.authorizations: set[str] = set()
        self.forbidden: set[str] = set()
        self.capacity = {"cpu": "16"}
        self.configz: Any = CONFIGURATION
        self.application = web.Application(middlewares=[self._watch])
        self.application.add_routes(
            [
                web.get("/api/v1/nodes/{name}", self._node),
                web.get("/api/v1/nodes/worker-1/proxy/configz", self._configz),
                web.get("/api/v1/pods", self._pods),
                web.get("/configz", self._configz),
            ]
        )

    @web.middleware
    async def _watch(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.calls.append(request.path)
        self.authorizations.add(request.headers.get("Authorization", ""))
        if request.path in self.forbidden:
            status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no such right"}
            return web.json_response(status, status=403)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _node(self, request: web.Request) -> web.Response:
        if request.match_info["name"] != "worker-1":
            details = {"kind": "nodes", "name": request.match_info["name"]}
            missing = {"kind": "Status", "code": 404, "reason": "NotFound", "details": details}
            return web.json_response(missing, status=404)
        status = {"nodeInfo": {"kubeletVersion": "v1.36.2"}, "capacity": self.capacity}
        return web.json_response({"metadata": {"name": "worker-1", "uid": "node-uid"}, "status": status})

    async def _pods(self, request: web.Request) -> web.Response:
        assert request.query["fieldSelector"] == "spec.nodeName=worker-1"
        item = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"nodeName": "worker-1"}}
        return web.json_response({"kind": "PodList", "metadata": {}, "items": [item]})

    async def _configz(self, _request: web.Request) -> web.Response:
        return web.json_response(self.configz)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def options(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Options]:
    """Node, pods and configuration from the API server."""
    async with TestServer(cluster.application) as server:
        kubeconfig = {
            "clusters": [{"name": "c", "cluster": {"server": str(server.make_url("")).rstrip("/")}}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        tree = Tree(tmp_path, {0: "0-1"}).write()
        yield Options(
            node_name="worker-1",
            sysfs=tree.sysfs,
            procfs=tree.procfs,
            kubelet_dir=tmp_path,
            podresources="none",
            kubeconfig=tmp_path / "kubeconfig",
        )


async def read(options: Options) -> Observation:
    sources = Sources(options)
    try:
        return await observe(sources)
    finally:
        await sources.close()


def problem(found: Observation, source: str) -> Problem:
    (item,) = [item for item in found.problems if item.source == source]
    return item


async def test_node_pods_and_configuration_come_from_the_api_server(
    options: Options, cluster: Cluster
) -> None:
    found = await read(options)
    assert (found.node_uid, found.kubelet_version) == ("node-uid", "v1.36.2")
    assert [(pod.name, pod.uid) for pod in found.pods or ()] == [("p", "u")]
    assert found.kubelet is not None
    assert found.kubelet.topology_manager_policy == "restricted"
    assert not {PODS, NODE, KUBELET_CONFIG} & {item.source for item in found.problems}
    assert cluster.authorizations == {f"Bearer {TOKEN}"}


async def test_the_nodes_resource_shows_workload_partitioning(options: Options, cluster: Cluster) -> None:
    assert (await read(options)).partitioned is False
    cluster.capacity["management.workload.openshift.io/cores"] = "16k"
    assert (await read(options)).partitioned is True


async def test_a_given_version_wins_over_the_nodes(options: Options) -> None:
    assert (await read(replace(options, kubelet_version="v1.35.0"))).kubelet_version == "v1.35.0"


async def test_node_and_configuration_are_not_asked_for_in_every_cycle(
    options: Options, cluster: Cluster
) -> None:
    sources = Sources(options)
    for _ in range(3):
        await observe(sources)
    asked_once = ["/api/v1/nodes/worker-1", "/api/v1/nodes/worker-1/proxy/configz"]
    assert [cluster.calls.count(path) for path in asked_once] == [1, 1]
    sources.forget()
    await observe(sources)
    assert [cluster.calls.count(path) for path in asked_once] == [2, 2]
    await sources.close()


async def test_a_failure_is_not_remembered(options: Options, cluster: Cluster) -> None:
    sources = Sources(options)
    cluster.forbidden.add("/api/v1/nodes/worker-1")
    assert (await observe(sources)).node_uid is None
    cluster.forbidden.clear()
    assert (await observe(sources)).node_uid == "node-uid"
    await sources.close()


async def test_missing_permission_for_the_node_proxy_names_the_smaller_one(
    options: Options, cluster: Cluster
) -> None:
    cluster.forbidden.add("/api/v1/nodes/worker-1/proxy/configz")
    item = problem(await read(options), KUBELET_CONFIG)
    assert item.reason == "Forbidden"
    assert item.message.endswith(
        "allow get on nodes/proxy, or set --kubelet-address, which needs only get on nodes/configz"
    )


async def test_a_missing_permission_for_pods_is_said(options: Options, cluster: Cluster) -> None:
    cluster.forbidden.add("/api/v1/pods")
    found = await read(options)
    assert found.pods is None
    assert problem(found, PODS).reason == "Forbidden"
    assert "no such right" in problem(found, PODS).message


async def test_a_node_that_does_not_exist_is_said(options: Options) -> None:
    found = await read(replace(options, node_name="worker-2", pods="none", kubelet_config="none"))
    assert problem(found, NODE).reason == "NotFound"
    assert "worker-2" in problem(found, NODE).message


async def test_an_unreachable_api_server_is_said_without_waiting_for_retries(
    options: Options, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    content = yaml.safe_load(kubeconfig.read_text())
    content["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:1"
    kubeconfig.write_text(yaml.safe_dump(content))
    found = await read(replace(options, source_timeout=120.0))
    assert {problem(found, source).reason for source in (NODE, PODS, KUBELET_CONFIG)} == {"Unreachable"}


@pytest.mark.parametrize("answer", [[], "text", {"kubeletconfig": []}])
async def test_an_answer_that_is_no_configuration_is_rejected(
    options: Options, cluster: Cluster, answer: Any
) -> None:
    cluster.configz = answer
    assert problem(await read(options), KUBELET_CONFIG).reason == "InvalidConfiguration"


# The kubelet itself


def certificate(directory: Path, name: str) -> ssl.SSLContext:
    """A certificate that the kubelet made for itself, in ``pki/kubelet.crt`` as it puts it there."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name}@1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "kubelet.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (directory / "kubelet.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "kubelet.crt", directory / "kubelet.key")
    return context


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[tuple[Cluster, str]]:
    """The node's kubelet and its address."""
    answers = Cluster()
    running = TestServer(answers.application, scheme="https")
    await running.start_server(ssl=certificate(tmp_path / "pki", "worker-1"))
    try:
        yield answers, f"127.0.0.1:{running.port}"
    finally:
        await running.close()


async def test_kubelet_is_queried_directly_with_the_exporters_token(
    options: Options, cluster: Cluster, kubelet: tuple[Cluster, str]
) -> None:
    answers, address = kubelet
    found = await read(replace(options, kubelet_address=address))
    assert found.kubelet is not None
    assert found.kubelet.topology_manager_policy == "restricted"
    assert answers.calls == ["/configz"]
    assert answers.authorizations == {f"Bearer {TOKEN}"}
    assert "/api/v1/nodes/worker-1/proxy/configz" not in cluster.calls


async def test_a_kubelet_with_an_unknown_certificate_gets_no_token(
    options: Options, kubelet: tuple[Cluster, str], tmp_path: Path
) -> None:
    answers, address = kubelet
    certificate(tmp_path / "pki", "worker-1")  # the file on disk is now another one
    item = problem(await read(replace(options, kubelet_address=address)), KUBELET_CONFIG)
    assert item.reason == "UntrustedCertificate"
    assert item.message.startswith(f"https://{address}/configz: the kubelet's certificate is not trusted: ")
    assert item.message.endswith("pass its CA with --kubelet-certificate-authority")
    assert answers.calls == []


async def test_public_certificate_authorities_are_not_trusted_for_a_kubelet(
    options: Options, kubelet: tuple[Cluster, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, address = kubelet
    public = tmp_path / "pki/kubelet.crt"
    public.rename(tmp_path / "system.crt")  # the machine trusts it, but nobody named it
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.crt"))
    certificate(tmp_path / "pki", "worker-1")
    found = await read(replace(options, kubelet_address=address))
    assert problem(found, KUBELET_CONFIG).reason == "UntrustedCertificate"
    assert answers.calls == []


async def test_a_certificate_authority_that_does_not_exist_is_named(
    options: Options, kubelet: tuple[Cluster, str], tmp_path: Path
) -> None:
    answers, address = kubelet
    missing = tmp_path / "authority.crt"
    found = await read(
        replace(options, kubelet_address=address, kubelet_certificate_authority=missing),
    )
    item = problem(found, KUBELET_CONFIG)
    assert item.reason == "UntrustedCertificate"
    assert item.message.endswith(
        "the kubelet's certificate cannot be verified, because there is no CA certificate; missing: "
        f"{missing}; pass its CA with --kubelet-certificate-authority"
    )
    assert answers.calls == []


async def test_a_kubelet_of_another_node_gets_no_token(
    options: Options, kubelet: tuple[Cluster, str]
) -> None:
    answers, address = kubelet
    found = await read(replace(options, kubelet_address=address, node_name="worker-2", pods="none"))
    assert problem(found, KUBELET_CONFIG).reason == "UntrustedCertificate"
    assert answers.calls == []


async def test_a_kubelet_that_does_not_allow_it_names_the_permission(
    options: Options, kubelet: tuple[Cluster, str]
) -> None:
    answers, address = kubelet
    answers.forbidden.add("/configz")
    item = problem(await read(replace(options, kubelet_address=address)), KUBELET_CONFIG)
    assert item.reason == "Forbidden"
    assert "allow get on nodes/configz (kubelet 1.33 and newer) or nodes/proxy" in item.message


async def test_an_unreachable_kubelet_is_named(options: Options, tmp_path: Path) -> None:
    certificate(tmp_path / "pki", "worker-1")
    item = problem(await read(replace(options, kubelet_address="127.0.0.1:1")), KUBELET_CONFIG)
    assert item.reason == "Unreachable"
    assert item.message.endswith("is this the node's address?")
