"""The command ``numazones-operator``: flags, environment and file become ``Options``; then it runs.

click merges the layers (defaults < ``--config`` file < environment < flags); heavy imports stay out of
``--help`` and ``--dump-config``.
"""

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from numazones.errors import NumazonesError
from numazones.fragmentation import InvalidShape, Shape
from numazones_operator.options import Options, setting_fields
from numazones_program import settings
from numazones_program.addresses import Address
from numazones_program.settings import InvalidSetting

ENVIRONMENT_PREFIX = "NUMAZONES_OPERATOR"

_NAMESPACE_VARIABLE = "KUBERNETES_NAMESPACE"

_EXAMPLES = """
\b
Examples:
  Watch the cluster of the current kubeconfig context and publish predictions:
    numazones-operator

\b
  Two replicas, of which one writes (the default):
    numazones-operator --leader-elect --namespace numazones-operator

\b
  See which settings are in effect and where each came from:
    numazones-operator --config operator.yaml --dump-config

Every setting can also be given in the environment (names above) and in the YAML file (the flag's name in
camelCase: writeRate). Flags win over the environment, the environment over the file.
"""


class _Shapes(click.ParamType[tuple[str, ...]]):
    """Shapes separated by blanks, or a list in the file."""

    name = "shapes"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        texts = value.split() if isinstance(value, str) else [str(item) for item in value]
        try:
            return tuple(str(Shape.parse(text)) for text in texts)
        except InvalidShape as error:
            self.fail(str(error), param, ctx)


def _flag(item: Any) -> Callable[[Any], Any]:
    """Make the flag of a setting."""
    name, default, kind = item.name, item.default, item.metadata["kind"]
    declaration = f"--{name.replace('_', '-')}"
    options: dict[str, Any] = {"help": item.metadata["help"], "show_envvar": True, "default": default}
    if isinstance(default, bool):
        declaration = f"{declaration}/--no-{name.replace('_', '-')}"
        options["show_default"] = True
    else:
        options |= {"type": _kind(kind, default), "metavar": item.metadata["metavar"]}
        options["default"] = _default_value(kind, default)
        options["show_default"] = bool(default)
    if name == "namespace":
        options["envvar"] = [f"{ENVIRONMENT_PREFIX}_NAMESPACE", _NAMESPACE_VARIABLE]
    return click.option(declaration, name, **options)


def _kind(kind: str, default: Any) -> Any:
    match kind:
        case "duration":
            return settings.Duration()
        case "shapes":
            return _Shapes()
        case "address" | "address or none":
            return Address(optional=kind != "address")
        case "path":
            return click.Path(path_type=Path)
        case "":
            return type(default)
        case _:
            return click.Choice(kind.split("|"))


def _default_value(kind: str, default: Any) -> Any:
    if kind == "duration":
        return settings.format_duration(default)
    return " ".join(default) if kind == "shapes" else default


@click.command(context_settings=settings.context_settings(ENVIRONMENT_PREFIX), epilog=_EXAMPLES)
@settings.config_file
@settings.dump_config
@click.version_option(version("numazones"), prog_name="numazones-operator")
@click.pass_context
def main(ctx: click.Context, /, *, dump_config: bool, **_settings: Any) -> None:
    """Watch pods, nodes and NUMAZones; predict for each pod where the kubelet would admit it.

    Publishes an AdmissionPrediction per pod without a node, compares predictions with what kubelets then
    do, and serves the cluster's NUMA metrics.
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


for _item in setting_fields():
    main = _flag(_item)(main)
# Flags in the order of the fields, after --config and before --dump-config.
main.params.sort(key=lambda param: (param.name == "dump_config", param.name == "version"))


def options_of(ctx: click.Context) -> Options:
    """Collect what click merged, with the origin of each value.

    Raises:
        InvalidSetting: settings contradict each other.
    """
    values, origins = settings.collected(ctx)
    return Options(**values, origins=origins)
