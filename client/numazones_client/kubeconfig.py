"""Kubeconfig files: which server, which certificate authority, which credentials.

Format: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/. Tokens, token files, client
certificates and exec plugins (https://kubernetes.io/docs/reference/access-authn-authz/authentication/
#client-go-credential-plugins) are understood; the auth-provider form was removed from Kubernetes in
1.26 and is rejected with the cure, as are user names with passwords, removed in 1.19.
"""

import asyncio
import base64
import binascii
import json
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from numazones_client.config import (
    SERVICE_ACCOUNT,
    ClusterConfig,
    ConfigError,
    FileToken,
    StaticToken,
    TokenSource,
    in_cluster,
)

_EXEC_TIMEOUT = 60.0
# A token that is about to expire is renewed early, so that it does not expire on the way.
_EXPIRY_MARGIN = timedelta(seconds=10)


def load(kubeconfig: str | Path | None = None, *, context: str | None = None) -> ClusterConfig:
    """Return the configuration kubectl users expect.

    A kubeconfig that is named wins, then ``KUBECONFIG``, then the pod's service account, then
    ``~/.kube/config``.

    Raises:
        ConfigError: nothing usable was found.
    """
    if kubeconfig:
        return from_kubeconfig(kubeconfig, context=context)
    if named := os.environ.get("KUBECONFIG"):
        return from_kubeconfig(named, context=context)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists():
        return in_cluster()
    default = Path.home() / ".kube" / "config"
    if default.exists():
        return from_kubeconfig(default, context=context)
    raise ConfigError(
        f"no API server is configured: this is not a pod, KUBECONFIG is not set, {default} does not exist; "
        "name a kubeconfig"
    )


def from_kubeconfig(path: str | Path, *, context: str | None = None) -> ClusterConfig:
    """Return the configuration that a context of a kubeconfig names, the current one by default.

    ``path`` may list several files the way ``KUBECONFIG`` does; the first to name a thing wins.

    Raises:
        ConfigError: a file cannot be read, or its content cannot be used.
    """
    files = [_File.read(Path(part).expanduser()) for part in str(path).split(os.pathsep) if part]
    if not files:
        raise ConfigError("the kubeconfig's path is empty; name a file")
    wanted = context or next((name for file in files if (name := file.text("current-context"))), "")
    if not wanted:
        raise ConfigError(f"{path} has no current-context; name a context or run kubectl config use-context")
    _, chosen = _find(files, "contexts", wanted, "context")
    cluster_file, cluster = _find(files, "clusters", str(chosen.get("cluster") or ""), "cluster")
    user_name = str(chosen.get("user") or "")
    user_file, user = _find(files, "users", user_name, "user") if user_name else (cluster_file, {})
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("http://", "https://")):
        raise ConfigError(f"{cluster_file.path}: cluster {chosen.get('cluster')!r} has no usable server URL")
    credentials = _credentials(user_file, user, user_name, cluster)
    return ClusterConfig(
        server=server,
        ssl_context=_ssl_context(cluster_file, cluster, user_file, user) if server[4] == "s" else None,
        credentials=credentials,
        namespace=str(chosen.get("namespace") or "default"),
        proxy=cluster.get("proxy-url") or None,
        tls_server_name=cluster.get("tls-server-name") or None,
    )


@dataclass(frozen=True, slots=True)
class _File:
    """One kubeconfig file; relative paths in it start at its folder."""

    path: Path
    content: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> "_File":
        import yaml  # noqa: PLC0415 - programs in a pod read no kubeconfig

        try:
            content = yaml.safe_load(path.read_bytes())
        except OSError as error:
            raise ConfigError(f"cannot read the kubeconfig {path}: {error.strerror}") from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:  # such as dates that cannot be
            raise ConfigError(f"the kubeconfig {path} is no YAML: {error}") from error
        if not isinstance(content, Mapping):
            raise ConfigError(f"the kubeconfig {path} holds no mapping; is it the right file?")
        return cls(path, content)

    def text(self, key: str) -> str:
        return str(self.content.get(key) or "")

    def named(self, key: str) -> dict[str, Mapping[str, Any]]:
        """Return name → content of a section (clusters, users, contexts)."""
        section = self.content.get(key) or []
        if not isinstance(section, list):
            raise ConfigError(f"{self.path}: {key} must be a list")
        inner = key.removesuffix("s")
        found = {}
        for entry in section:
            content = (entry.get(inner) or {}) if isinstance(entry, Mapping) else None
            if not isinstance(content, Mapping):
                raise ConfigError(f"{self.path}: {key} must list mappings with a name and a {inner}")
            found[str(entry.get("name"))] = content
        return found

    def resolve(self, relative: str) -> Path:
        return self.path.parent / Path(relative).expanduser()


def _find(files: list[_File], section: str, name: str, noun: str) -> tuple[_File, Mapping[str, Any]]:
    for file in files:
        found = file.named(section).get(name)
        if found is not None:
            return file, found
    paths = ", ".join(str(file.path) for file in files)
    known = sorted({known for file in files for known in file.named(section)})
    raise ConfigError(f"{paths}: there is no {noun} {name!r}; known: {', '.join(known) or 'none'}")


def _credentials(file: _File, user: Mapping[str, Any], name: str, cluster: Mapping[str, Any]) -> TokenSource:
    if user.get("auth-provider"):
        raise ConfigError(
            f"{file.path}: user {name!r} uses auth-provider, which Kubernetes removed in 1.26; "
            "let your provider's tool write an exec plugin instead"
        )
    if user.get("username") or user.get("password"):
        raise ConfigError(
            f"{file.path}: user {name!r} has a password, which Kubernetes removed in 1.19; "
            "use a token or a client certificate"
        )
    if plugin := user.get("exec"):
        return ExecPlugin.from_config(file.path, plugin, name, cluster)
    if user.get("token"):
        return StaticToken(str(user["token"]))
    if user.get("tokenFile"):
        return FileToken(file.resolve(str(user["tokenFile"])))
    return StaticToken()


def _ssl_context(
    cluster_file: _File, cluster: Mapping[str, Any], user_file: _File, user: Mapping[str, Any]
) -> ssl.SSLContext:
    if cluster.get("insecure-skip-tls-verify"):
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        authority = _content(cluster_file, cluster, "certificate-authority")
        try:
            context = ssl.create_default_context(cadata=authority.decode() if authority else None)
        except (ssl.SSLError, UnicodeDecodeError) as error:
            raise ConfigError(f"{cluster_file.path}: certificate-authority is no PEM certificate") from error
    certificate, key = (
        _content(user_file, user, "client-certificate"),
        _content(user_file, user, "client-key"),
    )
    if certificate and not key:
        raise ConfigError(f"{user_file.path}: client-certificate comes without client-key")
    if certificate and key:
        _load_client_certificate(context, certificate, key, where=str(user_file.path))
    return context


def _content(file: _File, section: Mapping[str, Any], key: str) -> bytes | None:
    """Return what ``<key>-data`` holds or ``<key>`` points to."""
    if data := section.get(f"{key}-data"):
        try:
            return base64.b64decode(str(data), validate=True)
        except (binascii.Error, ValueError) as error:
            raise ConfigError(f"{file.path}: {key}-data is no base64") from error
    if not section.get(key):
        return None
    path = file.resolve(str(section[key]))
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file.path}: cannot read {key} {path}: {error.strerror}") from error


def _load_client_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes, *, where: str) -> None:
    """Load a certificate with its key; the ssl module reads them from files only."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "client.pem")
        path.touch(mode=0o600)
        path.write_bytes(certificate + b"\n" + key)
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            raise ConfigError(
                f"{where}: client-certificate and client-key are no matching PEM pair"
            ) from error


class ExecPlugin:
    """A program that prints an ExecCredential with a token, run again when the token expires."""

    def __init__(self, *, command: list[str], environment: dict[str, str], hint: str) -> None:
        self._command = command
        self._environment = environment
        self._hint = hint
        self._token = ""
        self._expires: datetime | None = None

    @classmethod
    def from_config(
        cls, path: Path, plugin: Mapping[str, Any], user: str, cluster: Mapping[str, Any]
    ) -> "ExecPlugin":
        """Read the ``exec`` part of a user."""
        version = str(plugin.get("apiVersion") or "")
        if not plugin.get("command") or not version.startswith("client.authentication.k8s.io/"):
            raise ConfigError(
                f"{path}: the exec plugin of user {user!r} lacks a command or a known apiVersion"
            )
        spec: dict[str, Any] = {"interactive": False}
        if plugin.get("provideClusterInfo"):
            spec["cluster"] = {
                key: cluster[key] for key in ("server", "certificate-authority-data") if cluster.get(key)
            }
        information = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
        return cls(
            command=[str(plugin["command"]), *(str(argument) for argument in plugin.get("args") or [])],
            environment={str(item["name"]): str(item["value"]) for item in plugin.get("env") or []}
            | {"KUBERNETES_EXEC_INFO": json.dumps(information)},
            hint=str(plugin.get("installHint") or "is it installed?"),
        )

    async def token(self, *, renew: bool = False) -> str:
        """Return the plugin's token.

        Raises:
            ConfigError: the program is missing, fails, or gives no token.
        """
        fresh = self._expires is None or datetime.now(UTC) < self._expires - _EXPIRY_MARGIN
        if not self._token or renew or not fresh:
            self._token, self._expires = self._parse(await self._run())
        return self._token

    async def _run(self) -> bytes:
        name = self._command[0]
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**os.environ, **self._environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise ConfigError(
                f"cannot run the credential plugin {name}: {error.strerror}; {self._hint}"
            ) from error
        try:
            output, errors = await asyncio.wait_for(process.communicate(), _EXEC_TIMEOUT)
        except TimeoutError as error:
            process.kill()
            await process.wait()
            raise ConfigError(
                f"the credential plugin {name} did not end within {_EXEC_TIMEOUT:g} s"
            ) from error
        if process.returncode != 0:
            said = errors.decode(errors="replace").strip()
            raise ConfigError(f"the credential plugin {name} failed: {said or process.returncode}")
        return output

    def _parse(self, output: bytes) -> tuple[str, datetime | None]:
        try:
            status = json.loads(output)["status"]
            expires = status.get("expirationTimestamp")
            return str(status["token"]), datetime.fromisoformat(expires) if expires else None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"the credential plugin {self._command[0]} printed no ExecCredential with a token; "
                "plugins that give client certificates are not supported, use a token"
            ) from error
