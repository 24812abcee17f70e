"""Where the API server is and who asks: pods, kubeconfigs, tokens, certificates, plugins."""

import base64
import json
import ssl
import stat
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
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

from numazones_client import Client, ConfigError, RetryPolicy, Unreachable, from_kubeconfig, in_cluster, load
from numazones_client.config import FileToken
from numazones_client.resources import NODES


@dataclass(frozen=True)
class Identity:
    """A certificate, its key and who signed it, as PEM."""

    certificate: bytes
    key: bytes
    authority: bytes


def make_certificate(
    name: str, issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None = None
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer[0].subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.IPAddress(IPv4Address("127.0.0.1")), x509.DNSName("api.example")]
            ),
            critical=False,
        )
    )
    return builder.sign(key if issuer is None else issuer[1], hashes.SHA256()), key


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


@pytest.fixture(scope="session")
def identities() -> dict[str, Identity]:
    authority = make_certificate("authority")
    made = {name: make_certificate(name, authority) for name in ("server", "client")}
    return {
        name: Identity(
            pem(certificate),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
            pem(authority[0]),
        )
        for name, (certificate, key) in made.items()
    }


def kubeconfig(
    path: Path, *, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, **more: Any
) -> Path:
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        **more,
    }
    path.write_text(yaml.safe_dump(content))
    return path


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


# In a pod


@pytest.fixture
def pod_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, identities: dict[str, Identity]) -> Path:
    (tmp_path / "ca.crt").write_bytes(identities["server"].authority)
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "namespace").write_text("numazones")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    return tmp_path


async def test_a_pod_finds_its_api_server(pod_files: Path) -> None:
    config = in_cluster(directory=pod_files)
    assert (config.server, config.namespace) == ("https://10.0.0.1:6443", "numazones")
    assert config.ssl_context is not None
    assert await config.credentials.token() == "secret"


def test_an_ipv6_address_is_bracketed(pod_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    assert in_cluster(directory=pod_files).server == "https://[fd00::1]:6443"


def test_outside_a_pod_there_is_no_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="not in a pod: KUBERNETES_SERVICE_HOST is not set"):
        in_cluster()


def test_a_pod_without_service_account_is_told_so(pod_files: Path) -> None:
    (pod_files / "ca.crt").unlink()
    with pytest.raises(ConfigError, match=r"ca\.crt.*let the pod mount its service account"):
        in_cluster(directory=pod_files)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda token: token.unlink(), "cannot read the token .*: No such file"),
        (lambda token: token.write_text(" \n"), "the token .* is empty"),
    ],
)
async def test_a_token_that_is_gone_is_named(
    tmp_path: Path, damage: Callable[[Path], Any], message: str
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    source = FileToken(token)
    assert await source.token() == "secret"
    damage(token)
    with pytest.raises(ConfigError, match=message):
        await source.token()


async def test_a_token_is_read_again_on_demand_though_its_file_looks_the_same(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    source = FileToken(token)
    assert await source.token() == "one"
    assert await source.token(renew=True) == "one"


# Which configuration


def test_a_named_kubeconfig_wins_then_the_environment_then_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named(name: str) -> Path:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        return kubeconfig(tmp_path / name, cluster={"server": f"http://{Path(name).name}"})

    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(named("environment")))
    named(".kube/config")
    assert load(named("argument")).server == "http://argument"
    assert load().server == "http://environment"
    monkeypatch.delenv("KUBECONFIG")
    assert load().server == "http://config"
    (tmp_path / ".kube" / "config").unlink()
    with pytest.raises(ConfigError, match=r"no API server is configured.*name a kubeconfig"):
        load()


# Kubeconfigs


async def test_a_kubeconfig_gives_server_namespace_and_token(tmp_path: Path) -> None:
    config = from_kubeconfig(kubeconfig(tmp_path / "config", user={"token": "secret"}))
    assert (config.server, config.namespace, config.ssl_context) == ("http://127.0.0.1:1", "n", None)
    assert await config.credentials.token() == "secret"


async def test_a_token_file_is_found_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    config = from_kubeconfig(kubeconfig(tmp_path / "config", user={"tokenFile": "token"}))
    assert await config.credentials.token() == "secret"


async def test_without_credentials_no_token_is_sent(tmp_path: Path) -> None:
    assert await from_kubeconfig(kubeconfig(tmp_path / "config")).credentials.token() == ""


def test_another_context_may_be_named(tmp_path: Path) -> None:
    path = kubeconfig(
        tmp_path / "config",
        contexts=[
            {"name": "here", "context": {"cluster": "c"}},
            {"name": "there", "context": {"cluster": "c", "namespace": "elsewhere"}},
        ],
    )
    assert from_kubeconfig(path, context="there").namespace == "elsewhere"
    assert from_kubeconfig(path).namespace == "default"


def test_several_files_are_read_as_one(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path / "first", clusters=[])
    nowhere: dict[str, Any] = {"current-context": "nowhere"}
    second = kubeconfig(tmp_path / "second", **nowhere)
    assert from_kubeconfig(f"{first}:{second}").server == "http://127.0.0.1:1"


def test_proxy_and_server_name_are_kept(tmp_path: Path) -> None:
    cluster = {"proxy-url": "http://proxy:3128", "tls-server-name": "api.example"}
    config = from_kubeconfig(kubeconfig(tmp_path / "config", cluster=cluster))
    assert (config.proxy, config.tls_server_name) == ("http://proxy:3128", "api.example")


HTTPS = {"server": "https://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"current-context": ""}, "has no current-context; name a context"),
        ({"current-context": "x"}, "there is no context 'x'; known: here"),
        ({"clusters": []}, "there is no cluster 'c'; known: none"),
        ({"users": []}, "there is no user 'u'; known: none"),
        ({"clusters": "c"}, "clusters must be a list"),
        ({"clusters": ["c"]}, "clusters must list mappings with a name and a cluster"),
        ({"users": [{"name": "u", "user": "me"}]}, "users must list mappings with a name and a user"),
        ({"cluster": {"server": "tcp://x"}}, "cluster 'c' has no usable server URL"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "auth-provider, which Kubernetes removed in 1.26"),
        ({"user": {"username": "a"}}, "has a password, which Kubernetes removed in 1.19"),
        (
            {"user": {"exec": {"command": "x"}}},
            "user 'u' lacks a command or a known apiVersion",
        ),
        ({"cluster": HTTPS | {"certificate-authority-data": "?"}}, "certificate-authority-data is no base64"),
        (
            {"cluster": HTTPS | {"certificate-authority-data": encoded(b"x")}},
            "certificate-authority is no PEM certificate",
        ),
        (
            {"cluster": HTTPS | {"certificate-authority": "none.crt"}},
            "cannot read certificate-authority",
        ),
        ({"cluster": HTTPS, "user": {"client-certificate-data": encoded(b"x")}}, "comes without client-key"),
        (
            {
                "cluster": HTTPS,
                "user": {"client-certificate-data": encoded(b"x"), "client-key-data": encoded(b"y")},
            },
            "client-certificate and client-key are no matching PEM pair",
        ),
    ],
)
def test_what_is_wrong_with_a_kubeconfig_is_named(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = kubeconfig(tmp_path / "config", **changes)
    with pytest.raises(ConfigError, match=message):
        from_kubeconfig(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the kubeconfig .*: No such file"),
        (b"a: [", "is no YAML"),
        (b"\xff\xfe\xfd", "is no YAML"),
        (b"a: 2001-99-99", "is no YAML"),
        (b"a: " + b"9" * 5000, "is no YAML"),
        (b"just text", "holds no mapping"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        from_kubeconfig(path)


def test_an_empty_path_is_no_kubeconfig() -> None:
    with pytest.raises(ConfigError, match="the kubeconfig's path is empty"):
        from_kubeconfig("")


# Exec plugins


def plugin(path: Path, body: str) -> dict[str, Any]:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(path),
            "args": ["get-token"],
            "env": [{"name": "REGION", "value": "north"}],
            "provideClusterInfo": True,
            "installHint": "install the cloud's tool",
        }
    }


def credential(token: str, expires: datetime | None = None) -> str:
    status = {"token": token} | ({"expirationTimestamp": expires.isoformat()} if expires else {})
    return json.dumps({"kind": "ExecCredential", "status": status})


async def test_a_plugin_gives_the_token_and_learns_about_the_cluster(tmp_path: Path) -> None:
    body = f"echo \"$1 $REGION $KUBERNETES_EXEC_INFO\" >> {tmp_path}/log; echo '{credential('secret')}'"
    config = from_kubeconfig(kubeconfig(tmp_path / "config", user=plugin(tmp_path / "plugin", body)))
    assert await config.credentials.token() == "secret"
    assert await config.credentials.token() == "secret"
    (line,) = (tmp_path / "log").read_text().splitlines()
    argument, region, information = line.split(" ", 2)
    assert (argument, region) == ("get-token", "north")
    assert json.loads(information)["spec"] == {
        "interactive": False,
        "cluster": {"server": "http://127.0.0.1:1/"},
    }
    assert await config.credentials.token(renew=True) == "secret"
    assert len((tmp_path / "log").read_text().splitlines()) == 2


@pytest.mark.parametrize(("seconds", "runs"), [(5, 2), (3600, 1)])
async def test_a_plugin_is_asked_again_before_its_token_expires(
    tmp_path: Path, seconds: int, runs: int
) -> None:
    answer = credential("secret", datetime.now(UTC) + timedelta(seconds=seconds))
    body = f"echo run >> {tmp_path}/log; echo '{answer}'"
    config = from_kubeconfig(kubeconfig(tmp_path / "config", user=plugin(tmp_path / "plugin", body)))
    await config.credentials.token()
    await config.credentials.token()
    assert len((tmp_path / "log").read_text().splitlines()) == runs


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("echo log in first >&2; exit 1", "the credential plugin .* failed: log in first"),
        ("exit 7", "the credential plugin .* failed: 7"),
        ("echo hello", "printed no ExecCredential with a token"),
        ("echo '{\"status\": {}}'", "use a token"),
    ],
)
async def test_a_plugin_that_fails_is_named(tmp_path: Path, body: str, message: str) -> None:
    config = from_kubeconfig(kubeconfig(tmp_path / "config", user=plugin(tmp_path / "plugin", body)))
    with pytest.raises(ConfigError, match=message):
        await config.credentials.token()


async def test_a_plugin_that_is_not_installed_is_named_with_its_hint(tmp_path: Path) -> None:
    user = plugin(tmp_path / "plugin", "")
    (tmp_path / "plugin").unlink()
    config = from_kubeconfig(kubeconfig(tmp_path / "config", user=user))
    with pytest.raises(ConfigError, match=r"cannot run the credential plugin .*; install the cloud's tool"):
        await config.credentials.token()


# Encrypted connections


async def served(identities: dict[str, Identity], tmp_path: Path) -> TestServer:
    """A server that takes only clients with a certificate, and says who they are."""

    async def who(request: web.Request) -> web.Response:
        assert request.transport is not None
        subject = request.transport.get_extra_info("peercert")["subject"]
        return web.json_response({"name": dict(pair[0] for pair in subject)["commonName"]})

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    (tmp_path / "server.pem").write_bytes(identities["server"].certificate + identities["server"].key)
    context.load_cert_chain(tmp_path / "server.pem")
    context.load_verify_locations(cadata=identities["server"].authority.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    app = web.Application()
    app.router.add_get("/{path:.*}", who)
    server = TestServer(app)
    await server.start_server(ssl=context)
    return server


@pytest.mark.parametrize("insecure", [False, True])
async def test_client_certificates_are_shown_and_the_server_is_checked(
    identities: dict[str, Identity],
    tmp_path: Path,
    insecure: bool,  # noqa: FBT001
) -> None:
    server = await served(identities, tmp_path)
    client = identities["client"]
    (tmp_path / "client.key").write_bytes(client.key)
    trust: dict[str, Any] = {"certificate-authority-data": encoded(client.authority)}
    if insecure:
        trust = {"insecure-skip-tls-verify": True}
    config = from_kubeconfig(
        kubeconfig(
            tmp_path / "config",
            cluster={"server": f"https://127.0.0.1:{server.port}", **trust},
            user={"client-certificate-data": encoded(client.certificate), "client-key": "client.key"},
        )
    )
    async with Client(config) as opened:
        assert await opened.get(NODES, "n") == {"name": "client"}
    await server.close()


async def test_a_server_of_an_unknown_authority_is_unreachable(
    identities: dict[str, Identity], tmp_path: Path
) -> None:
    server = await served(identities, tmp_path)
    stranger = pem(make_certificate("stranger")[0])
    config = from_kubeconfig(
        kubeconfig(
            tmp_path / "config",
            cluster={
                "server": f"https://127.0.0.1:{server.port}",
                "certificate-authority-data": encoded(stranger),
            },
        )
    )
    async with Client(config, retry=RetryPolicy(attempts=1)) as opened:
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await opened.get(NODES, "n")
    await server.close()
