"""The command ``numazones-exporter``: flags, environment and file become ``Options``; then once or for good.

click merges the layers (defaults < ``--config`` file < environment < flags); this module says which
settings there are, and keeps heavy imports out of ``--help`` and ``--dump-config``.
"""

import asyncio
import re
import socket
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import click

from numazones.errors import NumazonesError
from numazones_exporter.options import PUBLISHABLE, Options
from numazones_program import settings
from numazones_program.addresses import Address

ENVIRONMENT_PREFIX = "NUMAZONES_EXPORTER"

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_MAX_NODE_NAME = 253

_Command = TypeVar("_Command", bound=Callable[..., Any])

_EXAMPLES = """
\b
Examples:
  Show the zones of this machine, with or without a kubelet:
    numazones-exporter --once

\b
  Show a recorded node, without any API server:
    numazones-exporter --once --node-name rig-a \\
      --sysfs rig-a/sys --procfs rig-a/proc --kubelet-dir rig-a \\
      --podresources replay:rig-a --kubelet-config file:rig-a/kubelet-config.yaml \\
      --pods file:pods.json -o json

\b
  Publish this node's zones, and what schedulers read, until stopped:
    numazones-exporter --node-name worker-3 --publish numazones,noderesourcetopologies

\b
  See which settings are in effect and where each came from:
    numazones-exporter --config exporter.yaml --dump-config

Every setting can also be given in the environment (names above) and in the YAML file (the flag's name in
camelCase: kubeletDir). Flags win over the environment, the environment over the file.


\b
Exit status of --once: 0 zones were printed (what could not be read is said on stderr and in the zones'
conditions), 1 the hardware could not be read or not be described, 2 a setting is wrong.
"""


class _Publish(click.ParamType):  # type: ignore[type-arg] # generic in new releases of click only
    """A comma-separated list, or a list in the file."""

    name = "kinds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        items = value.split(",") if isinstance(value, str) else list(value)
        kinds = [str(item).strip() for item in items if str(item).strip()]
        for kind in kinds:
            if kind not in PUBLISHABLE:
                self.fail(f"{kind!r} cannot be published; choose from {', '.join(PUBLISHABLE)}", param, ctx)
        if not kinds:
            self.fail(f"nothing to publish; choose from {', '.join(PUBLISHABLE)}", param, ctx)
        return tuple(kind for kind in PUBLISHABLE if kind in kinds)


class _Source(click.ParamType):  # type: ignore[type-arg] # generic in new releases of click only
    """Where to read: a bare word, or ``scheme:PATH``."""

    name = "source"

    def __init__(self, *, words: tuple[str, ...], schemes: tuple[str, ...], metavar: str) -> None:
        self._words = words
        self._schemes = schemes
        self._metavar = metavar

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        scheme, _, path = text.partition(":")
        known = text in self._words or (scheme in self._schemes and path)
        if text and not known:  # empty: the default applies
            self.fail(f"{text!r} is none of {self._metavar}", param, ctx)
        return text


class _NodeName(click.ParamType):  # type: ignore[type-arg] # generic in new releases of click only
    """A node's name: a DNS subdomain."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if text and (len(text) > _MAX_NODE_NAME or not _NODE_NAME.fullmatch(text)):
            self.fail(f"{text!r} is not a node name; use the name that kubectl get nodes shows", param, ctx)
        return text


_DIRECTORY = click.Path(path_type=Path)
_PODRESOURCES = _Source(words=("none",), schemes=("unix", "replay"), metavar="unix:PATH, replay:DIR, none")
_KUBELET_CONFIG = _Source(words=("configz", "none"), schemes=("file",), metavar="configz, file:PATH, none")
_PODS = _Source(words=("api", "none"), schemes=("file",), metavar="api, file:PATH, none")


def _setting(
    name: str,
    kind: Any,
    text: str,
    *,
    default: Any = None,
    metavar: str | None = None,
    envvar: str | None = None,
) -> Callable[[_Command], _Command]:
    """Declare one setting; its default is that of ``Options`` unless given."""
    field_default: Any = Options.__dataclass_fields__[name].default if default is None else default
    if isinstance(kind, settings.Duration):
        field_default = settings.format_duration(field_default)
    elif isinstance(kind, _Publish):
        field_default = ",".join(field_default)
    own = f"{ENVIRONMENT_PREFIX}_{name.upper()}"
    return click.option(
        *([f"-{name[0]}"] if name == "output" else []),
        f"--{name.replace('_', '-')}",
        name,
        type=kind,
        default=field_default,
        show_default=bool(field_default),
        show_envvar=True,
        # Named although click would find it: only so do its error messages name it too.
        envvar=[own, envvar] if envvar else own,
        metavar=metavar,
        help=text,
    )


@click.command(context_settings=settings.context_settings(ENVIRONMENT_PREFIX), epilog=_EXAMPLES)
@settings.config_file
@_setting(
    "node_name",
    _NodeName(),
    "The node to describe.  [default: this machine's host name]",
    default="",
    metavar="NAME",
    envvar="NODE_NAME",
)
@_setting("sysfs", _DIRECTORY, "The machine's /sys, or a recorded one.", metavar="DIR")
@_setting("procfs", _DIRECTORY, "The machine's /proc, or a recorded one.", metavar="DIR")
@_setting("kubelet_dir", _DIRECTORY, "The kubelet's directory, with its state files.", metavar="DIR")
@_setting(
    "podresources",
    _PODRESOURCES,
    "unix:PATH of the kubelet's podresources socket, replay:DIR with podresources_list.pb and "
    "podresources_allocatable.pb, or none.  [default: unix:KUBELET_DIR/pod-resources/kubelet.sock]",
    metavar="SOURCE",
)
@_setting(
    "kubelet_config",
    _KUBELET_CONFIG,
    "The kubelet's configuration: configz asks the running kubelet, file:PATH reads a KubeletConfiguration "
    "or a saved configz answer (YAML or JSON), or none.",
    metavar="SOURCE",
)
@_setting(
    "kubelet_version",
    str,
    "The kubelet's release, such as v1.36.2.  [default: what the Node object says]",
    metavar="VERSION",
)
@_setting(
    "kubelet_address",
    str,
    "Ask the kubelet at this address for configz, which needs permission for nodes/configz only, instead of "
    "the API server, which needs nodes/proxy. Host or host:port.",
    metavar="HOST[:PORT]",
    envvar="NODE_ADDRESS",
)
@_setting(
    "kubelet_certificate_authority",
    _DIRECTORY,
    "Certificates to trust at that address.  [default: KUBELET_DIR/pki/kubelet.crt and the cluster's]",
    metavar="FILE",
)
@_setting(
    "pods",
    _PODS,
    "This node's pods: api, file:PATH of a PodList (YAML or JSON, pods of other nodes are ignored), or none.",
    metavar="SOURCE",
)
@_setting("source_timeout", settings.Duration(), "When a source counts as hanging.")
@_setting(
    "kubeconfig",
    _DIRECTORY,
    "How to reach the API server.  [default: $KUBECONFIG, the pod's service account, ~/.kube/config]",
    metavar="FILE",
)
@_setting(
    "server",
    str,
    "The API server's URL, where neither a kubeconfig nor a pod tells it; the service account's files are "
    "used if they are there.",
    metavar="URL",
)
@_setting("publish", _Publish(), "Which objects to maintain: numazones, noderesourcetopologies.")
@_setting("interval", settings.Duration(), "Time between readings when nothing happens.")
@_setting("metrics_address", Address(), "Where to serve /metrics, /healthz and /readyz.", metavar="HOST:PORT")
@_setting(
    "recordings",
    bool,
    "Serve /recording there for kubectl numazones record: the machine, the kubelet's settings and state, and "
    "who holds what, to whoever can connect.",
)
@_setting(
    "lease_namespace",
    str,
    "Namespace of the node's liveness Lease.",
    metavar="NAMESPACE",
    envvar="KUBERNETES_NAMESPACE",
)
@_setting(
    "lease_duration", settings.Duration(), "How long the node's zones count as fresh after a Lease renewal."
)
@_setting("log_level", click.Choice(["debug", "info", "warning", "error"]), "What to log.")
@_setting("log_format", click.Choice(["json", "text"]), "How to log.")
@click.option("--once", is_flag=True, show_envvar=True, help="Read once, print the zones and end.")
@_setting(
    "output",
    click.Choice(["table", "yaml", "json"]),
    "How --once prints; json and yaml are a Kubernetes List.",
)
@settings.dump_config
@click.version_option(version("numazones"), prog_name="numazones-exporter")
@click.pass_context
def main(ctx: click.Context, /, *, dump_config: bool, **_settings: Any) -> None:
    """Read one node and publish what each of its NUMA zones has, keeps and has given away.

    Reads the hardware (sysfs), the kubelet (podresources, configuration, state files) and the node's pods;
    publishes one NUMAZone object per NUMA node and keeps them current.
    """
    options = options_of(ctx)
    if dump_config:
        click.echo(settings.dump(ctx.command, options, options.origins), nl=False)
        return
    try:
        ctx.exit(_run(options))
    except NumazonesError as error:
        click.echo(f"numazones-exporter: {error}", err=True)
        ctx.exit(1)


def _run(options: Options) -> int:
    if options.once:
        from numazones_exporter import once  # noqa: PLC0415 - only one of the two is needed

        return asyncio.run(once.run(options, out=sys.stdout, err=sys.stderr))
    from numazones_exporter import daemon  # noqa: PLC0415

    return daemon.run(options)


def options_of(ctx: click.Context) -> Options:
    """Collect what click merged, with the origin of each value."""
    values, origins = settings.collected(ctx)
    if not values["node_name"]:
        values["node_name"] = _host_name()
        origins["node_name"] = "host name"
    return Options(**values, origins=origins)


def _host_name() -> str:
    """The name a kubelet would register this machine under."""
    name = socket.gethostname().strip().lower()
    if not _NODE_NAME.fullmatch(name):
        raise click.UsageError(f"the host name {name!r} is not a node name; give --node-name")
    return name
