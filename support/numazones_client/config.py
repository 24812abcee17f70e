"""Address of the API server, and the credentials to connect to it.

In a pod the service account's files say so
(https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/); elsewhere a kubeconfig does.
Tokens on disk are renewed by the kubelet, so they are read again whenever the file changes.
"""

import os
import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from numazones.errors import NumazonesError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ConfigError(NumazonesError):
    """No usable configuration for an API server; the message names the file or variable and the cure."""

    def __init__(self, message: str, *, unnamed: bool = False) -> None:
        """Keep the message; ``unnamed``: nothing names an API server."""
        super().__init__(message)
        self.unnamed = unnamed


class TokenSource(Protocol):
    """Gives the bearer token for the next request."""

    async def token(self, *, renew: bool = False) -> str:
        """Return the token, empty for none; ``renew`` asks for a new one instead of a cached one."""
        ...


@dataclass(frozen=True, slots=True)
class StaticToken:
    """A token that never changes; empty for access without one."""

    value: str = field(default="", repr=False)

    async def token(self, *, renew: bool = False) -> str:  # noqa: ARG002 - there is nothing newer
        """Return the token."""
        return self.value


class FileToken:
    """A token in a file, read again when the file changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._seen: tuple[int, int, int] | None = None

    async def token(self, *, renew: bool = False) -> str:
        """Return the file's content.

        Raises:
            ConfigError: the file cannot be read or is empty.
        """
        try:
            stat = self._path.stat()
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if renew or seen != self._seen:
                self._token = self._path.read_text().strip()
                self._seen = seen
        except OSError as error:
            raise ConfigError(
                f"cannot read the token {self._path}: {error.strerror}; mount a service account token there"
            ) from error
        if not self._token:
            raise ConfigError(f"the token {self._path} is empty; mount a service account token there")
        return self._token


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """One API server and the credentials for it."""

    server: str
    """Base URL, such as https://10.96.0.1:443."""
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    """None for plain HTTP."""
    credentials: TokenSource = StaticToken()
    namespace: str = "default"
    """Namespace of the pod, or of the kubeconfig's context."""
    proxy: str | None = None
    tls_server_name: str | None = None
    """Name the server's certificate is checked against where it isn't the URL's host."""
    user: str = ""
    """Whom to act as, as ``kubectl --as`` does; empty: oneself."""
    groups: tuple[str, ...] = ()
    """Groups to act as a member of; they need a user."""


def from_server(server: str, *, directory: Path = SERVICE_ACCOUNT) -> ClusterConfig:
    """Return the configuration for a server's URL, with the credentials that ``directory`` holds, if any.

    Raises:
        ConfigError: the text is not a URL, or the certificate authority cannot be read.
    """
    if not server.startswith(("http://", "https://")):
        raise ConfigError(f"{server!r} is not a server URL; write it like https://10.96.0.1:443")
    token, namespace, authority = directory / "token", directory / "namespace", directory / "ca.crt"
    context = None
    if server.startswith("https://"):
        context = _ssl_context(authority) if authority.exists() else ssl.create_default_context()
    return ClusterConfig(
        server=server.rstrip("/"),
        ssl_context=context,
        credentials=FileToken(token) if token.exists() else StaticToken(),
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
    )


def in_cluster(*, directory: Path = SERVICE_ACCOUNT) -> ClusterConfig:
    """Return the configuration of the pod this program runs in.

    Raises:
        ConfigError: not in a pod, or the service account is not mounted.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError("not in a pod: KUBERNETES_SERVICE_HOST is not set; use a kubeconfig instead")
    if ":" in host:
        host = f"[{host}]"
    _ssl_context(directory / "ca.crt")  # without it the pod has no service account
    found = from_server(f"https://{host}:{port}", directory=directory)
    return replace(found, credentials=FileToken(directory / "token"))


def _ssl_context(authority: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(authority))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot read the cluster's certificate authority {authority}: {error}; "
            "let the pod mount its service account token (automountServiceAccountToken)"
        ) from error
