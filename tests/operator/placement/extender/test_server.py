"""The extender's server: who may call it, what it refuses, and the whole of it in a running operator."""

import datetime as dt
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from prometheus_client import CollectorRegistry

from numazones_client.resources import PODS
from numazones_operator.placement.extender import server as server_module
from numazones_operator.placement.extender.certificates import Certificates
from numazones_operator.placement.extender.metrics import ExtenderMetrics
from numazones_operator.placement.extender.server import ExtenderServer
from numazones_program.settings import InvalidSetting
from numazones_simulator import node_kinds
from tests.operator.closed_loop import closed_loop, eventually, metrics
from tests.operator.placement.extender.cluster import Cluster


@asynccontextmanager
async def serving(cluster: Cluster, certificates: Certificates | None = None) -> AsyncIterator[int]:
    server = ExtenderServer(
        cluster.extender, metrics=ExtenderMetrics(CollectorRegistry()), certificates=certificates
    )
    async with server.serve("127.0.0.1:0") as port:
        yield port


async def post(url: str, **options: Any) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.post(url, **options) as answer:
        return answer.status, await answer.text()


def bind_body(name: str = "p", uid: str = "uid-p") -> dict[str, str]:
    return {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": "a"}


async def test_other_addresses_than_loopback_need_client_certificates() -> None:
    server = ExtenderServer(Cluster("a").extender, metrics=ExtenderMetrics(CollectorRegistry()))
    for address in (":0", "0.0.0.0:0", "[::]:0", "host.example:0"):
        with pytest.raises(InvalidSetting, match="--extender-client-ca"):
            async with server.serve(address):
                pass


async def test_a_page_in_a_browser_cannot_bind_pods() -> None:
    cluster = Cluster("a")
    cluster.pod("p")
    async with serving(cluster) as port:
        status, text = await post(
            f"http://127.0.0.1:{port}/bind", json=bind_body(), headers={"Origin": "http://site.example"}
        )
    assert (status, cluster.server.bindings) == (403, [])
    assert "kube-scheduler alone" in text


async def test_a_request_that_makes_no_sense_gets_a_sentence() -> None:
    async with serving(Cluster("a")) as port:
        status, text = await post(f"http://127.0.0.1:{port}/filter", data=b'{"Pod": {}, "NodeNames": 5}')
    assert status == 400
    assert "$.NodeNames" in text


async def test_a_request_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_BODY", 1000)
    async with serving(Cluster("a")) as port:
        status, _ = await post(f"http://127.0.0.1:{port}/filter", data=b" " * 2000)
    assert status == 413


async def test_idle_connections_outlive_the_schedulers() -> None:
    assert server_module.KEEP_ALIVE > 90


@dataclass
class Authority:
    """A certificate authority that lives for one test."""

    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, name: str) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _certificate(subject, subject, key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        ).add_extension(
            x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        return cls(name, key, builder.sign(key, hashes.SHA256()))

    def issue(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write a certificate for 127.0.0.1 and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _certificate(subject, self.certificate.subject, key.public_key())
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        certificate = (
            builder.add_extension(names, critical=False)
            .add_extension(identifier, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        files = folder / f"{name}.crt", folder / f"{name}.key"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files

    def write(self, folder: Path) -> Path:
        file = folder / f"{self.name}.crt"
        file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        return file


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
    )


@pytest.fixture
def authority() -> Authority:
    return Authority.make("schedulers")


async def test_a_scheduler_with_a_certificate_of_the_ca_is_answered_and_nobody_else(
    tmp_path: Path, authority: Authority
) -> None:
    cluster = Cluster("a")
    cluster.pod("p")
    stranger = Authority.make("strangers")
    ca = authority.write(tmp_path)
    certificate, key = authority.issue(tmp_path, "extender")
    clients = {
        "none": None,
        "stranger": stranger.issue(tmp_path, "stranger"),
        "scheduler": authority.issue(tmp_path, "scheduler"),
    }
    answers: dict[str, tuple[int, str] | None] = {}
    async with serving(cluster, Certificates(certificate, key, ca)) as port:
        for name, files in clients.items():
            context = ssl.create_default_context(cafile=str(ca))
            if files is not None:
                context.load_cert_chain(*files)
            try:
                answers[name] = await post(f"https://127.0.0.1:{port}/bind", json=bind_body(), ssl=context)
            except aiohttp.ClientError:
                answers[name] = None
    assert answers == {"none": None, "stranger": None, "scheduler": (200, '{"Error":""}')}


def test_certificates_that_cannot_be_used_are_named_at_the_start(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("tls.crt", "tls.key", "ca.crt")]
    for file in files:
        file.write_text("no PEM")
    with pytest.raises(InvalidSetting, match=r"tls\.crt"):
        Certificates(*files).context()


async def test_a_replica_that_only_answers_the_scheduler(tmp_path: Path) -> None:
    """As in the scheduler's pod: it mirrors, answers and binds, and writes nothing else."""
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node(name, "10.0.0.1") for name in ("a", "b")])
        operator = await loop.start_operator(leads=False, lead=False, extender_address="127.0.0.1:0")
        pod = await loop.create_pod("p", cpu=20)
        pod.pop("kind"), pod.pop("apiVersion")
        url = f"http://127.0.0.1:{operator.extender_port}"
        async with aiohttp.ClientSession() as session:

            async def ask(verb: str, body: dict[str, Any]) -> Any:
                async with session.post(f"{url}/{verb}", json=body) as answer:
                    return await answer.json()

            request = {"Pod": pod, "Nodes": None, "NodeNames": ["a", "b"]}
            assert sorted((await ask("filter", request))["NodeNames"]) == ["a", "b"]
            assert {item["Score"] for item in await ask("prioritize", request)} == {10}
            assert await ask("bind", bind_body(uid=pod["metadata"]["uid"])) == {"Error": ""}

        async def runs() -> bool:
            now = await loop.client.get(PODS, "p", namespace="default")
            return bool(now["spec"].get("nodeName") == "a" and now["status"]["phase"] == "Running")

        await eventually(runs)
        assert await loop.predictions() == {}
        counted = await metrics(operator)
        assert counted['numazones_extender_request_duration_seconds_count{verb="bind"}'] == 1
        assert counted["numazones_operator_leader"] == 0
