"""The command ``numazones-exporter``: flags, environment and file become ``Options``; then once or for good.

click merges the layers (defaults < ``--config`` file < environment < flags); heavy imports stay out of
``--help`` and ``--dump-config``.
"""

import socket
import sys
from typing import Any

import click

from numazones.errors import NumazonesError
from numazones_exporter.options import Options
from numazones_exporter.setting_kinds import is_node_name
from numazones_program import settings

ENVIRONMENT_PREFIX = "NUMAZONES_EXPORTER"

_EXAMPLES = """
\b
Examples:
  Show the NUMA nodes of this machine, with or without a kubelet:
    numazones-exporter --once

\b
  Show a recorded node, without an API server:
    numazones-exporter --once --node-name rig-a \\
      --sysfs rig-a/sys --procfs rig-a/proc --kubelet-dir rig-a \\
      --podresources replay:rig-a --kubelet-config file:rig-a/kubelet-config.yaml \\
      --pods file:pods.json -o json

\b
  Publish this node's NUMAZones, and NodeResourceTopologies for schedulers, until stopped:
    numazones-exporter --node-name worker-3 --publish numazones,noderesourcetopologies

\b
  See which settings are in effect and where each comes from:
    numazones-exporter --config exporter.yaml --dump-config

Every setting can also be given in the environment (names above) and in the YAML file (the flag's name in
camelCase: kubeletDir). Flags take precedence over the environment, which takes precedence over the file.


\b
Exit status of --once: 0 if NUMA nodes were printed (stderr and conditions list what could not be read),
1 if the hardware could not be read or described, 2 if a setting is invalid.
"""


@click.command(context_settings=settings.context_settings(ENVIRONMENT_PREFIX), epilog=_EXAMPLES)
@settings.config_file
@settings.flags(Options, environment_prefix=ENVIRONMENT_PREFIX)
@settings.dump_config
@click.version_option(package_name="numazones", prog_name="numazones-exporter")
@click.pass_context
def main(ctx: click.Context, /, *, dump_config: bool, **_settings: Any) -> None:
    """Read one node, and publish what each of its NUMA nodes has, reserves and has allocated.

    Reads the hardware (sysfs), the kubelet (podresources, configuration, state files) and the node's pods.
    Publishes one NUMAZone per NUMA node and keeps it current.
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
        import asyncio  # noqa: PLC0415 - as below

        from numazones_exporter.printing import print_zones  # noqa: PLC0415 - only one of the two is needed

        return asyncio.run(print_zones(options, out=sys.stdout, err=sys.stderr))
    from numazones_exporter import confinement  # noqa: PLC0415

    opener = confinement.start_opener(options)
    from numazones_exporter import daemon  # noqa: PLC0415 - what is loaded before, two processes would keep

    return daemon.run(options, opener)


def options_of(ctx: click.Context) -> Options:
    """Collect what click merged, with the origin of each value."""
    values, origins = settings.values_and_origins(ctx)
    if not values["node_name"]:
        values["node_name"] = _host_name()
        origins["node_name"] = "host name"
    return Options(**values, origins=origins)


def _host_name() -> str:
    """The name a kubelet would register this machine under."""
    name = socket.gethostname().strip().lower()
    if not is_node_name(name):
        raise click.UsageError(f"the host name {name!r} is not a valid node name; set --node-name")
    return name
