"""Settings of every program: defaults < YAML file (``--config``) < environment < flags.

A program's settings are the fields of one frozen dataclass, each declared once by ``setting``; ``flags``
makes flags of them. click merges the layers; here is what click lacks: the file, whose keys are the
fields' names in camelCase, as in Kubernetes' own configuration files, durations, and ``--dump-config``,
which shows the outcome with the origin of each value.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from numazones.apimachinery import duration
from numazones.apimachinery.documents import CONFIGURATION, UnreadableDocument, read_yaml
from numazones.errors import NumazonesError
from numazones.wording import did_you_mean

_Command = TypeVar("_Command", bound=Callable[..., Any])

REQUIRED: Any = dataclasses.MISSING
"""The default of a field that has none; its flag may still be left out, and is empty then."""

_NO_SETTINGS = frozenset({"config", "dump_config", "version", "help"})
_SETTING = "setting"
"""Key of a field's metadata: what ``setting`` declares."""


class InvalidSetting(NumazonesError):
    """A setting cannot be used; the message names it, or quotes it, and the cure."""


class SettingKind(click.ParamType):  # type: ignore[type-arg] # generic in new releases of click only
    """Format of a setting's values."""

    def text(self, value: Any) -> Any:
        """Write a value as ``--help`` shows it."""
        return value


class DurationSetting(SettingKind):
    """Seconds, written as 60s, 1m30s, 500ms; also 0s where that means something."""

    name = "duration"

    def __init__(self, *, zero: bool = False) -> None:
        """Accept positive durations, and none at all if ``zero``."""
        self._zero = zero

    def text(self, value: Any) -> str:
        """Write seconds as people do."""
        return format_duration(value)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the text; a bad one ends the command with a usage error."""
        try:
            return parse_duration(value, zero=self._zero)
        except InvalidSetting as error:
            self.fail(str(error), param, ctx)


DURATION = DurationSetting()
PATH = click.Path(path_type=Path)


@dataclasses.dataclass(frozen=True, slots=True)
class _Flag:
    """Setting as a flag."""

    help: str
    kind: Any
    names: tuple[str, ...]
    metavar: str | None
    variable: str


def setting(
    default: Any,
    text: str,
    *,
    kind: Any = None,
    flags: tuple[str, ...] = (),
    metavar: str | None = None,
    variable: str = "",
) -> Any:
    """Declare a field of a dataclass as a setting.

    Args:
        default: its value where nothing gives another, or ``REQUIRED``.
        text: its help.
        kind: how it is written: a type of click's; without one, as the type of its default is, and a boolean
            as ``--name/--no-name``.
        flags: names of its flag, ``--name`` of the field unless given; a boolean then takes no value.
        metavar: what stands for a value in the help.
        variable: an environment variable that gives it, too, beside the program's own.
    """
    metadata = {_SETTING: _Flag(text, kind, flags, metavar, variable)}
    return dataclasses.field(default=default, metadata=metadata)


def flags(options: type, *, environment_prefix: str) -> Callable[[_Command], _Command]:
    """Return the decorator that gives a command the flags of a dataclass's settings, in their order."""
    fields = [field for field in dataclasses.fields(options) if _SETTING in field.metadata]

    def declare(command: _Command) -> _Command:
        for field in reversed(fields):
            command = _option(field, environment_prefix)(command)
        return command

    return declare


def _option(field: Any, environment_prefix: str) -> Callable[[_Command], _Command]:
    flag: _Flag = field.metadata[_SETTING]
    default = "" if field.default is REQUIRED else field.default
    name = field.name.replace("_", "-")
    switch = isinstance(default, bool) and flag.kind is None
    names = flag.names or ((f"--{name}/--no-{name}",) if switch else (f"--{name}",))
    # click would find this variable by itself; its error messages name it only where it is given.
    variables = [f"{environment_prefix}_{field.name.upper()}", *filter(None, [flag.variable])]
    return click.option(
        *names,
        field.name,
        help=flag.help,
        is_flag=switch,
        type=None if switch else flag.kind or type(default),
        default=flag.kind.text(default) if isinstance(flag.kind, SettingKind) else default,
        show_default=bool(default) or (switch and not flag.names),
        show_envvar=True,
        envvar=variables,
        metavar=flag.metavar,
    )


def parse_duration(text: str | float, *, zero: bool = False) -> float:
    """Read seconds from ``90``, ``90s``, ``1m30s``, ``500ms`` or ``2h``; from ``0s`` only if ``zero``.

    Raises:
        InvalidSetting: the text is not such a duration.
    """
    stripped = str(text).strip()
    try:
        seconds = float(stripped)
    except ValueError:
        try:
            seconds = duration.parse(stripped).total_seconds()
        except duration.InvalidDuration:
            seconds = -1.0
    if 0 < seconds < float("inf") or (zero and seconds == 0):
        return seconds
    kind = "time" if zero else "positive time"
    raise InvalidSetting(f"{text!r} is not a duration; write a {kind} such as 60s, 1m30s or 500ms")


def format_duration(seconds: float) -> str:
    """Write seconds so that ``parse_duration`` reads them again: ``60s``, ``500ms``."""
    return duration.format(timedelta(seconds=seconds))


def context_settings(environment_prefix: str) -> dict[str, Any]:
    """Return what a program's ``click.command`` is set up with."""
    return {
        "auto_envvar_prefix": environment_prefix,
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    }


def load_file(ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    """Make a file's settings the defaults of everything that flags and environment leave open."""
    if path is None:
        return None
    try:
        content = read_yaml(path.read_text(encoding="utf-8"), CONFIGURATION)
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--config {path}: {getattr(error, 'strerror', None) or error}") from error
    except UnreadableDocument as error:
        raise click.UsageError(f"--config {path} is not valid YAML: {error}") from error
    if not isinstance(content, Mapping | None):
        raise click.UsageError(f"--config {path}: expected settings as 'key: value' lines")
    ctx.default_map = dict(_settings_of_file(ctx, path, content or {}))
    return path


config_file = click.option(
    "--config",
    type=click.Path(path_type=Path),
    is_eager=True,
    callback=load_file,
    show_envvar=True,
    metavar="FILE",
    help="YAML file with settings.",
)
"""The flag ``--config``."""

dump_config = click.option(
    "--dump-config", is_flag=True, help="Print the settings in effect and where each comes from, and exit."
)
"""The flag ``--dump-config``."""


def values_and_origins(ctx: click.Context) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what click merged, and where each value comes from: default, file PATH, environment or flag."""
    values = {str(name): value for name, value in ctx.params.items() if name not in _NO_SETTINGS}
    return values, {name: _origin(ctx, name) for name in values}


def dump(command: click.Command, options: Any, origins: Mapping[str, str]) -> str:
    """Write settings (an object with a field per flag) as YAML that ``--config`` accepts, with origins."""
    lines = []
    for param in command.params:
        name = str(param.name)
        if name not in _NO_SETTINGS:
            value = _plain(param, getattr(options, name))
            # JSON values are YAML values, and never span lines.
            lines.append(f"{_file_key(name)}: {json.dumps(value)}  # {origins.get(name, 'default')}\n")
    return "".join(lines)


def _file_key(name: str) -> str:
    """Turn a setting's name into its key in the file: ``kubelet_dir`` → ``kubeletDir``."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _plain(param: click.Parameter, value: Any) -> Any:
    if isinstance(param.type, DurationSetting):
        return format_duration(value)
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else "" if value is None else value


def _settings_of_file(ctx: click.Context, path: Path, content: Mapping[str, Any]) -> Mapping[str, Any]:
    known = {_file_key(str(item.name)): item for item in ctx.command.params if item.name not in _NO_SETTINGS}
    found: dict[str, Any] = {}
    for key, value in content.items():
        param = known.get(str(key))
        if param is None:
            cure = did_you_mean(key, known) or f"; use one of {', '.join(known)}"
            raise click.UsageError(f"--config {path}: unknown setting {str(key)!r}{cure}")
        if value is None or value == "":
            continue  # an empty value leaves the default, so that a dumped configuration can be loaded
        try:
            found[str(param.name)] = param.type.convert(value, param, ctx)
        except click.BadParameter as error:
            raise click.UsageError(f"--config {path}: {key}: {error.message}") from error
    return found


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
