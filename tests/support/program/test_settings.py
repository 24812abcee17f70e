"""Settings as the fields of a dataclass, and durations as people write them.

Files, environment and flags are also tested through the programs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from numazones_program.settings import (
    DURATION,
    REQUIRED,
    InvalidSetting,
    config_file,
    context_settings,
    dump,
    dump_config,
    flags,
    format_duration,
    parse_duration,
    setting,
    values_and_origins,
)


@dataclass(frozen=True, slots=True)
class Options:
    name: str = setting(REQUIRED, "Whom to greet.", variable="GUEST")
    pause: float = setting(2.0, "Time before the greeting.", kind=DURATION)
    rate: float = setting(0.5, "Greetings per second.")
    polite: bool = setting(True, "Say please.")
    shout: bool = setting(False, "Greet in capitals.", kind=click.BOOL)
    once: bool = setting(False, "Greet once.", flags=("-1", "--once"))
    origins: Mapping[str, str] = field(default_factory=dict)


@click.command(context_settings=context_settings("GREETER"))
@config_file
@flags(Options, environment_prefix="GREETER")
@dump_config
@click.pass_context
def greeter(ctx: click.Context, /, **_settings: Any) -> None:
    values, origins = values_and_origins(ctx)
    click.echo(dump(ctx.command, Options(**values), origins), nl=False)


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(greeter, arguments, env=environment)


def test_each_field_is_a_flag_in_field_order() -> None:
    assert [param.name for param in greeter.params] == [
        "config",
        "name",
        "pause",
        "rate",
        "polite",
        "shout",
        "once",
        "dump_config",
    ]


def test_field_without_default_is_empty_without_its_flag() -> None:
    assert run().output == (
        'name: ""  # default\n'
        'pause: "2s"  # default\n'
        "rate: 0.5  # default\n"
        "polite: true  # default\n"
        "shout: false  # default\n"
        "once: false  # default\n"
    )
    with pytest.raises(TypeError, match="name"):
        Options()


def test_boolean_has_two_flags_a_value_or_one_flag() -> None:
    lines = run("--no-polite", "--shout=true", "-1").output.splitlines()
    assert lines[3:] == ["polite: false  # flag", "shout: true  # flag", "once: true  # flag"]


def test_fallback_variable_applies_if_the_programs_own_is_unset() -> None:
    assert 'name: "Ada"  # environment\n' in run(GUEST="Ada").output
    assert 'name: "Eve"  # environment\n' in run(GUEST="Ada", GREETER_NAME="Eve").output


def test_wrong_value_in_the_environment_is_named_by_its_variable() -> None:
    result = run(GREETER_PAUSE="soon")
    assert result.exit_code == 2
    assert "env var: 'GREETER_PAUSE'" in result.stderr


def test_help_shows_defaults_as_people_write_them() -> None:
    text = " ".join(run("--help").output.split())
    assert "Whom to greet. [env var: GREETER_NAME, GUEST]" in text
    assert "Time before the greeting. [env var: GREETER_PAUSE; default: 2s]" in text
    assert "--polite / --no-polite Say please. [env var: GREETER_POLITE; default: polite]" in text
    assert "--shout BOOLEAN Greet in capitals. [env var: GREETER_SHOUT]" in text
    assert "-1, --once Greet once. [env var: GREETER_ONCE]" in text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60s", 60),
        ("1m30s", 90),
        ("500ms", 0.5),
        ("2h", 7200),
        ("1.5s", 1.5),
        ("100us", 0.0001),
        ("7", 7),
        (7, 7),
        (0.25, 0.25),
    ],
)
def test_durations_are_read_and_written(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "-1s", "s", "1x", "1s2", "inf", "nan", 0])
def test_what_is_no_duration_is_rejected(text: str | float) -> None:
    with pytest.raises(InvalidSetting):
        parse_duration(text)


def test_zero_is_a_duration_only_where_it_is_allowed() -> None:
    assert parse_duration("0s", zero=True) == 0
    with pytest.raises(InvalidSetting, match="is not a duration; write a time such as 60s"):
        parse_duration("-1s", zero=True)
