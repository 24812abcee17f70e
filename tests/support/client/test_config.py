"""Address and credentials of the API server: pods, kubeconfigs, tokens, certificates, plugins."""

import asyncio
import base64
import json
import ssl
import stat
import subprocess
import sys
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

import numazones_client
from numazones_client import (
    Client,
    ConfigError,
    RetryPolicy,
    Unreachable,
    from_kubeconfig,
    in_cluster,
    load,
    official_kubeconfig,
)
from numazones_client.config import FileToken, from_server
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


def base64_of(content: bytes) -> str:
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


def test_a_pod_without_service_account_is_reported(pod_files: Path) -> None:
    (pod_files / "ca.crt").unlink()
    with pytest.raises(ConfigError, match=r"ca\.crt.*let the pod mount its service account token"):
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


async def test_token_is_reread_on_demand_though_its_file_looks_unchanged(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    source = FileToken(token)
    assert await source.token() == "one"
    assert await source.token(renew=True) == "one"


async def test_a_server_that_is_named_needs_nothing_else(tmp_path: Path) -> None:
    config = from_server("http://127.0.0.1:1/", directory=tmp_path)
    assert (config.server, config.ssl_context, config.namespace) == ("http://127.0.0.1:1", None, "default")
    assert await config.credentials.token() == ""


async def test_a_server_that_is_named_gets_the_service_accounts_token(pod_files: Path) -> None:
    config = from_server("https://elsewhere:6443", directory=pod_files)
    assert config.ssl_context is not None
    assert len(config.ssl_context.get_ca_certs()) == 1
    assert await config.credentials.token() == "secret"


def test_a_server_needs_a_scheme() -> None:
    with pytest.raises(ConfigError, match=r"'10\.0\.0\.1' is not a server URL; write it like https://"):
        from_server("10.0.0.1")


# Which configuration


async def test_named_kubeconfig_precedes_environment_and_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named(name: str) -> Path:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        return kubeconfig(tmp_path / name, cluster={"server": f"http://{Path(name).name}"})

    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(named("environment")))
    named(".kube/config")
    assert (await load(named("argument"))).server == "http://argument"
    assert (await load(server="http://server")).server == "http://server"
    assert (await load()).server == "http://environment"
    monkeypatch.delenv("KUBECONFIG")
    assert (await load()).server == "http://config"
    (tmp_path / ".kube" / "config").unlink()
    with pytest.raises(
        ConfigError, match=r"no API server is configured.*use --kubeconfig FILE, or set KUBECONFIG$"
    ):
        await load()
    with pytest.raises(ConfigError, match=r"both a kubeconfig \(k\) and a server \(http://s\) are given"):
        await load("k", server="http://s")


async def test_kubeconfig_without_the_official_client_names_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes.aio.config", None)
    monkeypatch.delitem(sys.modules, "numazones_client.official_kubeconfig", raising=False)
    monkeypatch.delattr(numazones_client, "official_kubeconfig", raising=False)
    with pytest.raises(ConfigError, match=r"needs the package kubernetes.*pip install '\.\[kubeconfig\]'"):
        await load(kubeconfig(tmp_path / "config"))


def test_the_official_client_is_imported_for_kubeconfigs_only() -> None:
    program = (
        "import asyncio, sys, numazones_client as c; "
        "asyncio.run(c.load(server='http://127.0.0.1:1')); "
        "sys.exit('kubernetes' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("kubeconfig_given", "said"), [(True, "http://127.0.0.1:1"), (False, "no API server is configured")]
)
def test_a_user_without_name_and_home_directory_works(
    tmp_path: Path, *, kubeconfig_given: bool, said: str
) -> None:
    path = str(kubeconfig(tmp_path / "config")) if kubeconfig_given else None
    program = f"""
import asyncio, pwd
def nobody(uid): raise KeyError(f"getpwuid(): uid not found: {{uid}}")
pwd.getpwuid = nobody
import numazones_client as c
try:
    print(asyncio.run(c.load({path!r})).server)
except c.ConfigError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env={}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


# Kubeconfigs


async def test_a_kubeconfig_gives_server_namespace_and_token(tmp_path: Path) -> None:
    config = await from_kubeconfig(kubeconfig(tmp_path / "config", user={"token": "secret"}))
    assert (config.server, config.namespace, config.ssl_context) == ("http://127.0.0.1:1", "n", None)
    assert await config.credentials.token() == "secret"


@pytest.mark.parametrize("namespace", [5, ["n"], {"a": "b"}, True])
async def test_a_namespace_that_is_no_text_is_named(tmp_path: Path, namespace: object) -> None:
    context = {"cluster": "c", "user": "u", "namespace": namespace}
    path = kubeconfig(tmp_path / "config", contexts=[{"name": "here", "context": context}])
    with pytest.raises(
        ConfigError, match=f"{path}: the context's namespace is .* which is not a string; quote it"
    ):
        await from_kubeconfig(path)


async def test_token_file_next_to_the_kubeconfig_is_reread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("secret")
    config = await from_kubeconfig(kubeconfig(tmp_path / "config", user={"tokenFile": "token"}))
    assert await config.credentials.token() == "secret"
    (tmp_path / "token").write_text("newer")
    assert await config.credentials.token() == "secret"
    assert await config.credentials.token(renew=True) == "newer"
    (tmp_path / "token").write_text("newest")
    monkeypatch.setattr(official_kubeconfig, "_RENEWAL", -1.0)
    assert await config.credentials.token() == "newest"


async def test_without_credentials_no_token_is_sent(tmp_path: Path) -> None:
    config = await from_kubeconfig(kubeconfig(tmp_path / "config"))
    assert await config.credentials.token() == ""


async def test_another_context_may_be_named(tmp_path: Path) -> None:
    path = kubeconfig(
        tmp_path / "config",
        contexts=[
            {"name": "here", "context": {"cluster": "c"}},
            {"name": "there", "context": {"cluster": "c", "namespace": "elsewhere"}},
        ],
    )
    assert (await from_kubeconfig(path, context="there")).namespace == "elsewhere"
    assert (await from_kubeconfig(path)).namespace == "default"


async def test_several_files_are_read_as_one(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path / "first", clusters=[])
    second = kubeconfig(tmp_path / "second")
    assert (await from_kubeconfig(f"{first}:{second}")).server == "http://127.0.0.1:1"


async def test_proxy_and_server_name_are_kept(tmp_path: Path) -> None:
    cluster = {"proxy-url": "http://proxy:3128", "tls-server-name": "api.example"}
    config = await from_kubeconfig(kubeconfig(tmp_path / "config", cluster=cluster))
    assert (config.proxy, config.tls_server_name) == ("http://proxy:3128", "api.example")


def identity_token(expires: datetime) -> str:
    def part(content: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'exp': int(expires.timestamp())})}.x"


def test_an_openid_token_that_is_good_is_used(tmp_path: Path) -> None:
    token = identity_token(datetime.now(UTC) + timedelta(hours=1))
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": token}}}

    async def given() -> str:
        config = await from_kubeconfig(kubeconfig(tmp_path / "config", user=user))
        return await config.credentials.token()

    assert asyncio.run(given()) == token


async def test_an_openid_token_that_has_expired_needs_a_refresh_token(tmp_path: Path) -> None:
    token = identity_token(datetime.now(UTC) - timedelta(hours=1))
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": token}}}
    with pytest.raises(ConfigError, match="cannot refresh without refresh-token"):
        await from_kubeconfig(kubeconfig(tmp_path / "config", user=user))


HTTPS = {"server": "https://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"current-context": ""}, "no context is selected in .*; contexts: here"),
        ({"current-context": "x"}, "there is no context x in .*; contexts: here"),
        ({"contexts": []}, "there is no context here in .*; contexts: none"),
        ({"clusters": []}, "name c in .*clusters"),
        ({"clusters": "c"}, "cannot be used"),
        ({"clusters": ["c"]}, "cannot be used"),
        ({"cluster": {"server": "tcp://x"}}, "has no usable server URL: 'tcp://x'"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "cannot be used: GoogleAuth"),
        ({"user": {"exec": {"args": ["x"]}}}, "the credential plugin None returned no credentials"),
        (
            {"cluster": HTTPS | {"certificate-authority-data": "?"}},
            "certificate-authority is not a PEM certificate",
        ),
        (
            {"cluster": HTTPS | {"certificate-authority-data": base64_of(b"x")}},
            "certificate-authority is not a PEM certificate",
        ),
        ({"cluster": HTTPS | {"certificate-authority": "none.crt"}}, "none.crt"),
        ({"cluster": HTTPS, "user": {"client-certificate-data": base64_of(b"x")}}, "not a matching PEM pair"),
        (
            {
                "cluster": HTTPS,
                "user": {"client-certificate-data": base64_of(b"x"), "client-key-data": base64_of(b"y")},
            },
            "client-certificate and client-key are not a matching PEM pair",
        ),
    ],
)
async def test_what_is_wrong_with_a_kubeconfig_is_named(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = kubeconfig(tmp_path / "config", **changes)
    with pytest.raises(ConfigError, match=message) as raised:
        await from_kubeconfig(path)
    assert str(path) in str(raised.value) or "plugin" in str(raised.value)


async def test_errors_never_show_tokens(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", users=[{"name": "u", "usr": {"token": "secret"}}])
    with pytest.raises(ConfigError, match="Expected key user in") as raised:
        await from_kubeconfig(path)
    assert "secret" not in str(raised.value)


async def test_passwords_are_rejected(tmp_path: Path) -> None:
    user = {"username": "a", "password": "b"}
    config = await from_kubeconfig(kubeconfig(tmp_path / "config", user=user))
    with pytest.raises(
        ConfigError, match=r"has a password, but Kubernetes 1\.19 removed password authentication; use"
    ):
        await config.credentials.token()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist; give another path, or set KUBECONFIG"),
        (b"a: [", "cannot be used"),
        (b"\xff\xfe\xfd", "cannot be used"),
        (b"a: 2001-99-99", "cannot be used"),
        (b"just text", "cannot be used"),
        (b"", "is empty; give another path, or set KUBECONFIG"),
        (b"# nothing yet\n", "is empty; give another path, or set KUBECONFIG"),
    ],
)
async def test_a_file_that_is_no_kubeconfig_is_named(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        await from_kubeconfig(path)


async def test_empty_file_among_others_is_skipped_as_kubectl_does(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    path = f"{tmp_path / 'empty'}:{kubeconfig(tmp_path / 'config')}"
    assert (await from_kubeconfig(path)).server == (await from_kubeconfig(tmp_path / "config")).server


async def test_an_empty_path_is_no_kubeconfig() -> None:
    with pytest.raises(ConfigError, match="the kubeconfig '' does not exist"):
        await from_kubeconfig("")


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
            "installHint": "install the cloud's tool",
        }
    }


def credential(token: str, expires: datetime | None = None) -> str:
    status = {"token": token} | ({"expirationTimestamp": expires.isoformat()} if expires else {})
    version = "client.authentication.k8s.io/v1"
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})


@pytest.mark.parametrize(
    ("expires", "runs"),
    [
        (None, 1),
        (timedelta(hours=1), 1),
        (timedelta(seconds=5), 2),
    ],
)
async def test_plugin_runs_again_when_its_token_expires_or_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expires: timedelta | None, runs: int
) -> None:
    monkeypatch.setattr(official_kubeconfig, "_RENEWAL", -1.0)
    answer = credential("secret", None if expires is None else datetime.now(UTC) + expires)
    body = f"echo \"$1 $REGION\" >> {tmp_path}/log; echo '{answer}'"
    user = plugin(tmp_path / "plugin", body)
    config = await from_kubeconfig(kubeconfig(tmp_path / "config", user=user))
    assert await config.credentials.token() == "secret"
    assert (tmp_path / "log").read_text().splitlines() == ["get-token north"] * runs
    assert await config.credentials.token(renew=True) == "secret"
    assert (tmp_path / "log").read_text().splitlines() == ["get-token north"] * (runs + 1)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("echo log in first >&2; exit 1", "log in first"),
        ("exit 7", "process returned 7"),
        ("echo hello", "failed to decode process output"),
        (f"echo '{credential('x').replace('token', 'other')}'", "missing token or clientCertificateData"),
    ],
)
async def test_a_plugin_that_fails_is_named(
    tmp_path: Path, body: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = kubeconfig(tmp_path / "config", user=plugin(tmp_path / "plugin", body))
    with pytest.raises(ConfigError, match=r"the credential plugin .* returned no credentials; see the log"):
        await from_kubeconfig(path)
    assert told in caplog.text


async def test_plugin_that_is_not_installed_is_named_with_its_hint(tmp_path: Path) -> None:
    user = plugin(tmp_path / "plugin", "")
    (tmp_path / "plugin").unlink()
    with pytest.raises(ConfigError, match=r"the credential plugin .*; install the cloud's tool"):
        await from_kubeconfig(kubeconfig(tmp_path / "config", user=user))


# Encrypted connections


async def tls_server(identities: dict[str, Identity], tmp_path: Path) -> TestServer:
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
    server = await tls_server(identities, tmp_path)
    client = identities["client"]
    (tmp_path / "client.key").write_bytes(client.key)
    trust: dict[str, Any] = {"certificate-authority-data": base64_of(client.authority)}
    if insecure:
        trust = {"insecure-skip-tls-verify": True}
    config = await from_kubeconfig(
        kubeconfig(
            tmp_path / "config",
            cluster={"server": f"https://127.0.0.1:{server.port}", **trust},
            user={"client-certificate-data": base64_of(client.certificate), "client-key": "client.key"},
        )
    )
    async with Client(config) as opened:
        assert await opened.get(NODES, "n") == {"name": "client"}
    await server.close()


async def test_a_server_of_an_unknown_authority_is_unreachable(
    identities: dict[str, Identity], tmp_path: Path
) -> None:
    server = await tls_server(identities, tmp_path)
    stranger = pem(make_certificate("stranger")[0])
    config = await from_kubeconfig(
        kubeconfig(
            tmp_path / "config",
            cluster={
                "server": f"https://127.0.0.1:{server.port}",
                "certificate-authority-data": base64_of(stranger),
            },
        )
    )
    async with Client(config, retry=RetryPolicy(attempts=1)) as opened:
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await opened.get(NODES, "n")
    await server.close()
