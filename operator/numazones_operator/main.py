"""The command ``numazones-operator``: flags, environment and file become ``Options``; then it runs.

click merges the layers (defaults < ``--config`` file < environment < flags); heavy imports stay out of
``--help`` and ``--dump-config``.
"""

import difflib
import json
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import yaml
from click.core import ParameterSource

from numazones.errors import NumazonesError
from numazones.fragmentation import InvalidShape, Shape
from numazones_operator.options import (
    InvalidOptions,
    Options,
    as_file,
    file_key,
    format_duration,
    parse_duration,
    settings,
)

ENVIRONMENT_PREFIX = "NUMAZONES_OPERATOR"

_COMMAND_ONLY = frozenset({"config", "dump_config", "version", "help"})
_NAMESPACE_VARIABLE = "KUBERNETES_NAMESPACE"

_EXAMPLES = """
\b
Examples:
  Watch the cluster of the current kubeconfig context and publish predictions:
    numazones-operator
\b
  Two replicas, of which one writes (the default):
    numazones-operator --leader-elect --namespace numazones-system
\b
  See which settings are in effect and where each came from:
    numazones-operator --config operator.yaml --dump-config

Every setting can also be given in the environment (names above) and in the YAML file (the flag's name in
camelCase: writeRate). Flags win over the environment, the environment over the file.
"""


class _Duration(click.ParamType[float]):
    """Seconds, written as 60s, 1m30s, 500ms."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return parse_duration(value)
        except InvalidOptions as error:
            self.fail(str(error), param, ctx)


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
        options["default"] = _written(kind, default)
        options["show_default"] = bool(default)
    if name == "namespace":
        options["envvar"] = [f"{ENVIRONMENT_PREFIX}_NAMESPACE", _NAMESPACE_VARIABLE]
    return click.option(declaration, name, **options)


def _kind(kind: str, default: Any) -> Any:
    match kind:
        case "duration":
            return _Duration()
        case "shapes":
            return _Shapes()
        case "path":
            return click.Path(path_type=Path)
        case "":
            return type(default)
        case _:
            return click.Choice(kind.split("|"))


def _written(kind: str, default: Any) -> Any:
    if kind == "duration":
        return format_duration(default)
    return " ".join(default) if kind == "shapes" else default


def _load_file(ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    """Make the file's settings the defaults of everything that flags and environment leave open."""
    if path is None:
        return None
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--config {path}: {getattr(error, 'strerror', None) or error}") from error
    except yaml.YAMLError as error:
        raise click.UsageError(f"--config {path} is no YAML: {error}") from error
    if not isinstance(content, Mapping | None):
        raise click.UsageError(f"--config {path}: expected settings as 'key: value' lines")
    ctx.default_map = dict(_settings_of_file(ctx, path, content or {}))
    return path


def _settings_of_file(ctx: click.Context, path: Path, content: Mapping[str, Any]) -> Mapping[str, Any]:
    known = {file_key(str(item.name)): item for item in ctx.command.params if item.name not in _COMMAND_ONLY}
    found: dict[str, Any] = {}
    for key, value in content.items():
        param = known.get(str(key))
        if param is None:
            near = difflib.get_close_matches(str(key), known, n=1)
            cure = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise click.UsageError(f"--config {path}: unknown setting {str(key)!r}; {cure}")
        if value is None or value == "":
            continue  # an empty value leaves the default, so that a dumped configuration can be loaded
        try:
            found[str(param.name)] = param.type.convert(value, param, ctx)
        except click.BadParameter as error:
            raise click.UsageError(f"--config {path}: {key}: {error.message}") from error
    return found


@click.command(
    context_settings={
        "auto_envvar_prefix": ENVIRONMENT_PREFIX,
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    },
    epilog=_EXAMPLES,
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    is_eager=True,
    callback=_load_file,
    show_envvar=True,
    metavar="FILE",
    help="YAML file with settings.",
)
@click.option("--dump-config", is_flag=True, help="Print the effective settings, with origins, and end.")
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
            click.echo(dump(options), nl=False)
            return
        from numazones_operator import process  # noqa: PLC0415 - imports kopf

        ctx.exit(process.run(options))
    except NumazonesError as error:
        click.echo(f"numazones-operator: {error}", err=True)
        ctx.exit(2 if isinstance(error, InvalidOptions) else 1)


for _item in settings():
    main = _flag(_item)(main)
# Flags in the order of the fields, after --config and before --dump-config.
main.params.sort(key=lambda param: (param.name == "dump_config", param.name == "version"))


def options_of(ctx: click.Context) -> Options:
    """Collect what click merged, with the origin of each value.

    Raises:
        InvalidOptions: settings contradict each other.
    """
    values = {str(name): value for name, value in ctx.params.items() if name not in _COMMAND_ONLY}
    return Options(**values, origins={name: _origin(ctx, name) for name in values})


def _origin(ctx: click.Context, name: str) -> str:
    match ctx.get_parameter_source(name):
        case ParameterSource.COMMANDLINE:
            return "flag"
        case ParameterSource.ENVIRONMENT:
            return "environment"
        case ParameterSource.DEFAULT_MAP:
            return f"file {ctx.params.get('config')}"
        case _:
            return "default"


def dump(options: Options) -> str:
    """Write the effective settings as YAML that ``--config`` accepts, each line with its origin."""
    # JSON values are YAML values, and never span lines.
    return "".join(f"{key}: {json.dumps(value)}  # {origin}\n" for key, value, origin in as_file(options))
