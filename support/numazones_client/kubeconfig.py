"""API server that a program talks to: the one in its settings, in a kubeconfig, or its pod's."""

import os
from pathlib import Path

from numazones_client.config import SERVICE_ACCOUNT, ClusterConfig, ConfigError, from_server, in_cluster


async def load(
    kubeconfig: str | Path | None = None, *, server: str = "", context: str | None = None
) -> ClusterConfig:
    """Return the configuration kubectl users expect.

    What is named wins, a kubeconfig or a server's URL, then ``KUBECONFIG``, then the pod's service account,
    then ``~/.kube/config``.

    Raises:
        ConfigError: nothing usable was found.
    """
    if kubeconfig and server:
        raise ConfigError(f"both a kubeconfig ({kubeconfig}) and a server ({server}) are given; omit one")
    if server:
        return from_server(server)
    if named := kubeconfig or os.environ.get("KUBECONFIG"):
        return await from_kubeconfig(named, context=context)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists():
        return in_cluster()
    _ensure_home()
    default = Path.home() / ".kube" / "config"
    if default.exists():
        return await from_kubeconfig(default, context=context)
    raise ConfigError(
        f"no API server is configured: this program does not run in a pod, KUBECONFIG is not "
        f"set, and {default} does not exist; "
        "use --kubeconfig FILE, or set KUBECONFIG",
        unnamed=True,
    )


async def from_kubeconfig(path: str | Path, *, context: str | None = None) -> ClusterConfig:
    """Return the configuration that a context of a kubeconfig names, the current one by default.

    ``path`` may list several files the way ``KUBECONFIG`` does; the first to name a thing wins.

    Raises:
        ConfigError: no file can be read, its content cannot be used, or ``kubernetes`` is not installed.
    """
    _ensure_home()
    try:
        from numazones_client import official_kubeconfig  # noqa: PLC0415 - dear, and not needed in a pod
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"reading the kubeconfig {path} needs the package {error.name}, which is not installed: "
            "in a checkout of numazones, pip install '.[kubeconfig]'; a pod needs no kubeconfig"
        ) from error
    return await official_kubeconfig.read(str(path), context)


def _ensure_home() -> None:
    """Give a user without a home the one that container runtimes give; the official client insists on one."""
    try:
        Path.home()
    except RuntimeError:  # neither $HOME nor an entry in /etc/passwd
        os.environ["HOME"] = "/"
