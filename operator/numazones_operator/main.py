"""The command ``numazones-operator``: flags, environment and file become ``OperatorOptions``; then it runs.

click merges the layers (defaults < ``--config`` file < environment < flags); heavy imports stay out of
``--help`` and ``--dump-config``.
"""

from importlib.metadata import version
from typing import Any

import click

from numazones.errors import NumazonesError
from numazones_operator.options import OperatorOptions
from numazones_program import settings
from numazones_program.settings import InvalidSetting

ENVIRONMENT_PREFIX = "NUMAZONES_OPERATOR"

_EXAMPLES = """
\b
Examples:
  Watch the cluster of the current kubeconfig context and publish predictions:
    numazones-operator

\b
  One of two replicas, with leader election (the default):
    numazones-operator --leader-elect --namespace numazones-operator

\b
  See which settings are in effect and where each came from:
    numazones-operator --config operator.yaml --dump-config

Every setting can also be given in the environment (names above) and in the YAML file (the flag's name in
camelCase: writeRate). Flags win over the environment, the environment over the file.
"""


@click.command(context_settings=settings.context_settings(ENVIRONMENT_PREFIX), epilog=_EXAMPLES)
@settings.config_file
@settings.flags(OperatorOptions, environment_prefix=ENVIRONMENT_PREFIX)
@settings.dump_config
@click.version_option(version("numazones"), prog_name="numazones-operator")
@click.pass_context
def main(ctx: click.Context, /, *, dump_config: bool, **_settings: Any) -> None:
    """Watch pods, nodes and NUMAZones, and predict on which nodes the kubelet would admit each pod.

    Publishes an AdmissionPrediction for each pod without a node, compares predictions with what kubelets
    decide, and serves NUMA metrics of the cluster.
    """
    try:
        options = options_of(ctx)
        if dump_config:
            click.echo(settings.dump(ctx.command, options, options.origins), nl=False)
            return
        from numazones_operator import process  # noqa: PLC0415 - imports kopf

        ctx.exit(process.run(options))
    except NumazonesError as error:
        click.echo(f"numazones-operator: {error}", err=True)
        ctx.exit(2 if isinstance(error, InvalidSetting) else 1)


def options_of(ctx: click.Context) -> OperatorOptions:
    """Return the options that click merged, with the origin of each value.

    Raises:
        InvalidSetting: settings contradict each other.
    """
    values, origins = settings.values_and_origins(ctx)
    return OperatorOptions(**values, origins=origins)
