"""A real kube-apiserver with etcd on this machine, for the tests that must not trust the embedded one.

Runs where ``KUBEBUILDER_ASSETS`` names a folder with ``kube-apiserver``, ``etcd`` and ``kubectl``. Loopback
only; the server makes its own certificate, admission plugins are Kubernetes' defaults, authorisation is RBAC.
"""

import os
import secrets
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from ssl import create_default_context

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from numazones_apiserver.ports import listening_socket

ASSETS = os.environ.get("KUBEBUILDER_ASSETS", "")
_START_SECONDS = 120


@dataclass(frozen=True, slots=True)
class RealAPIServer:
    """A running server and how to reach it as its administrator."""

    url: str
    certificate_authority: Path
    kubeconfig: Path
    assets: Path

    def kubectl(self, *arguments: str, stdin: str = "", token: str = "", check: bool = True) -> str:
        """Run kubectl as the administrator, or with another token; return what it printed, errors too."""
        identity = [f"--kubeconfig={self.kubeconfig}"]
        if token:
            identity = [
                "--kubeconfig=/dev/null",
                f"--server={self.url}",
                f"--certificate-authority={self.certificate_authority}",
                f"--token={token}",
            ]
        done = subprocess.run(
            [str(self.assets / "kubectl"), *identity, *arguments],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert not check or done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}"
        return done.stdout

    def kubeconfig_for(self, token: str, path: Path) -> Path:
        """Write a kubeconfig that uses a token."""
        path.write_text(_kubeconfig(self.url, self.certificate_authority, token))
        path.chmod(0o600)
        return path


@contextmanager
def run(folder: Path) -> Iterator[RealAPIServer]:
    """Start etcd and kube-apiserver in an empty folder; stop them at the end."""
    assets = Path(ASSETS)
    etcd_port, peer_port, port = _free_ports(3)
    token = secrets.token_hex(16)
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    (folder / "tokens.csv").chmod(0o600)
    _write_signing_key(folder / "service-accounts.key")
    url = f"https://127.0.0.1:{port}"
    authority = folder / "certificates" / "apiserver.crt"
    with ExitStack() as running:
        running.enter_context(
            _program(
                folder / "etcd.log",
                str(assets / "etcd"),
                f"--data-dir={folder / 'etcd'}",
                f"--listen-client-urls=http://127.0.0.1:{etcd_port}",
                f"--advertise-client-urls=http://127.0.0.1:{etcd_port}",
                f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
                "--unsafe-no-fsync=true",
            )
        )
        running.enter_context(
            _program(
                folder / "kube-apiserver.log",
                str(assets / "kube-apiserver"),
                f"--etcd-servers=http://127.0.0.1:{etcd_port}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--secure-port={port}",
                f"--cert-dir={folder / 'certificates'}",
                f"--token-auth-file={folder / 'tokens.csv'}",
                "--authorization-mode=RBAC",
                "--allow-privileged=true",
                "--endpoint-reconciler-type=none",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={folder / 'service-accounts.key'}",
                f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
                # Nobody makes the ServiceAccounts that this plugin wants for every pod.
                "--disable-admission-plugins=ServiceAccount",
            )
        )
        _wait_until_ready(url, authority, token, folder / "kube-apiserver.log")
        kubeconfig = folder / "admin.kubeconfig"
        kubeconfig.write_text(_kubeconfig(url, authority, token))
        kubeconfig.chmod(0o600)
        yield RealAPIServer(url, authority, kubeconfig, assets)


@contextmanager
def _program(log: Path, *command: str) -> Iterator[None]:
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_ready(url: str, authority: Path, token: str, log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    request = urllib.request.Request(  # noqa: S310 - our own https URL
        f"{url}/readyz", headers={"Authorization": f"Bearer {token}"}
    )
    while time.monotonic() < end:
        try:
            context = create_default_context(cafile=str(authority))
            with urllib.request.urlopen(request, timeout=5, context=context):  # noqa: S310
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.2)
    raise AssertionError(f"kube-apiserver is not ready:\n{log.read_text()[-2000:]}")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(listening_socket("127.0.0.1")) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def _write_signing_key(path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _kubeconfig(url: str, authority: Path, token: str) -> str:
    return f"""\
apiVersion: v1
kind: Config
clusters: [{{name: real, cluster: {{server: "{url}", certificate-authority: "{authority}"}}}}]
users: [{{name: user, user: {{token: "{token}"}}}}]
contexts: [{{name: real, context: {{cluster: real, user: user}}}}]
current-context: real
"""
