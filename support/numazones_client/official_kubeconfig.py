"""Kubeconfigs as the official client reads them: merged files, contexts, certificates, exec plugins, OIDC.

Imported only where a kubeconfig is used: with the package ``kubernetes`` it costs some 23 MiB and half a
second and more. What is ours is that failures are raised, with the cure, and when a token is renewed.
"""

import asyncio
import os
import re
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger

from numazones.wording import some_of
from numazones_client.config import ClusterConfig, ConfigError

_RENEWAL = 60.0
"""Seconds after which the loader is asked whether its token is still good; it renews what expires."""

_UNUSABLE = (ConfigException, OSError, ValueError, TypeError, AttributeError, KeyError, yaml.YAMLError)


async def read(path: str, context: str | None) -> ClusterConfig:
    """Return the configuration that a context of one or several kubeconfigs names.

    Raises:
        ConfigError: no file can be read, or the content cannot be used.
    """
    loader = _loader(path, context)
    credentials = _Credentials(loader, path)
    await credentials.renew()
    found = credentials.found
    if not found.host.startswith(("http://", "https://")):
        raise ConfigError(f"the kubeconfig {path} has no usable server URL: {found.host!r}")
    namespace = loader.current_context["context"].get("namespace") or "default"
    if not isinstance(namespace, str):
        raise ConfigError(
            f"the kubeconfig {path}: the context's namespace is {namespace!r:.50}, which is not a string; "
            "quote it"
        )
    return ClusterConfig(
        server=found.host,
        ssl_context=_ssl_context(found, path) if found.host.startswith("https://") else None,
        credentials=credentials,
        namespace=namespace,
        proxy=found.proxy,
        tls_server_name=found.tls_server_name,
    )


class _Loader(KubeConfigLoader):
    """The official loader; a plugin that fails is an error instead of a line in the log."""

    async def load_from_exec_plugin(self) -> Any:
        loaded = await super().load_from_exec_plugin()
        user: Any = self._user
        plugin = user["exec"].value
        given = "cert_file" in vars(self) or "token" in vars(self)
        if not loaded or not given:
            hint = plugin.get("installHint") or "is it installed?"
            raise ConfigError(
                f"the credential plugin {plugin.get('command')} returned no credentials; see the log; {hint}"
            )
        return loaded

    @property
    def token_lasts(self) -> bool:
        """Return whether the token is valid until the server rejects it: a plugin gave no expiry."""
        return "exec" in (self._user or ()) and "exec_plugin_expiry" not in vars(self)

    def distrust(self) -> None:
        """Let a plugin be asked again, although its token has not expired."""
        vars(self).pop("exec_plugin_expiry", None)


def _loader(path: str, context: str | None) -> _Loader:
    files = [Path(part).expanduser() for part in path.split(os.pathsep) if part]
    if not any(file.exists() for file in files):
        raise ConfigError(f"the kubeconfig {path!r} does not exist; give another path, or set KUBECONFIG")
    files = [file for file in files if not _is_empty(file)]
    if not files:
        raise ConfigError(f"the kubeconfig {path!r} is empty; give another path, or set KUBECONFIG")
    try:
        merged = KubeConfigMerger(os.pathsep.join(map(str, files))).config
        _check_context(path, merged.value, context)
        return _Loader(config_dict=merged, config_base_path=None, active_context=context)
    except _UNUSABLE as error:
        raise _unusable_error(path, error) from error


def _check_context(path: str, merged: dict[str, Any], context: str | None) -> None:
    names = [str(entry["name"]) for entry in merged.get("contexts") or ()]
    wanted = context or merged.get("current-context")
    if wanted not in names:
        missing = f"there is no context {wanted}" if wanted else "no context is selected"
        raise ConfigError(f"{missing} in {path}; contexts: {some_of(names) or 'none'}")


def _is_empty(file: Path) -> bool:
    """Return whether a file is empty; kubectl skips such files, the official loader fails."""
    try:
        return file.is_file() and yaml.safe_load(file.read_bytes()) is None
    except (OSError, ValueError, yaml.YAMLError):  # the loader says what is wrong with it
        return False


class _Credentials:
    """The token of a kubeconfig's user, kept fresh by the loader."""

    def __init__(self, loader: _Loader, path: str) -> None:
        self._loader = loader
        self._path = path
        self._asked = 0.0
        self.found = SimpleNamespace(
            api_key={},
            host="",
            ssl_ca_cert=None,
            cert_file=None,
            key_file=None,
            verify_ssl=True,
            proxy=None,
            tls_server_name=None,
        )
        """What the loader tells a client of the official package."""

    async def token(self, *, renew: bool = False) -> str:
        """Return the token, empty for none; with ``renew`` the present one is not good enough.

        Raises:
            ConfigError: a plugin, a file or the issuer gives none.
        """
        now = asyncio.get_running_loop().time()
        if renew:
            self._loader.distrust()
        if renew or (now - self._asked > _RENEWAL and not self._loader.token_lasts):
            await self.renew()
        kind, _, token = str(self.found.api_key.get("BearerToken") or "").partition(" ")
        if kind == "Basic":
            raise ConfigError(
                f"the kubeconfig {self._path}: the user has a password, but Kubernetes 1.19 removed "
                "password authentication; use a token, a client certificate or a plugin"
            )
        return token

    async def renew(self) -> None:
        """Let the loader look at everything again."""
        try:
            await self._loader.load_and_set(self.found)
        except _UNUSABLE as error:
            raise _unusable_error(self._path, error) from error
        self._asked = asyncio.get_running_loop().time()


def _ssl_context(found: SimpleNamespace, path: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=found.ssl_ca_cert)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the kubeconfig {path}: certificate-authority is not a PEM certificate") from error
    if not found.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if found.cert_file:
        try:
            context.load_cert_chain(found.cert_file, found.key_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"the kubeconfig {path}: client-certificate and client-key are not a matching PEM pair"
            ) from error
    return context


def _unusable_error(path: str, error: Exception) -> ConfigError:
    # The official client names an entry by all that it holds, tokens included.
    what = re.sub(r"\{.*\}", "{…}", str(error) or type(error).__name__, flags=re.DOTALL)
    return ConfigError(
        f"the kubeconfig {path} cannot be used: {what}; check that kubectl config view can read it"
    )
