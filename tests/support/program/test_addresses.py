"""Addresses to listen on and to connect to, as people write them."""

import re

import click
import pytest
from click.testing import CliRunner

from numazones_program.addresses import Address, parse_address
from numazones_program.settings import InvalidSetting


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":8080", ("", 8080)),
        ("10.0.0.1:0", ("10.0.0.1", 0)),
        ("[fd00::1]:80", ("fd00::1", 80)),
        ("worker-1:65535", ("worker-1", 65535)),
    ],
)
def test_addresses_are_split(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected
    assert parse_address(text, default_port=1) == expected


@pytest.mark.parametrize("text", ["10.0.0.1", "fd00::1", "[fd00::1]", "worker-1"])
def test_a_host_alone_gets_the_default_port(text: str) -> None:
    assert parse_address(text, default_port=10250) == (text.strip("[]"), 10250)


@pytest.mark.parametrize("text", ["8080", "localhost:http", ":65536", "::x", ":99999", ":-1", ":\u0663", ""])
def test_what_is_no_address_is_quoted_with_the_cure(text: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(f"{text!r} is not an address; write host:port")):
        parse_address(text)


def test_flag_with_a_bad_address_is_a_usage_error() -> None:
    @click.command()
    @click.option("--metrics-address", type=Address())
    def program(metrics_address: str) -> None:
        click.echo(metrics_address)

    shown = CliRunner().invoke(program, ["--metrics-address", ":99999"])
    assert shown.exit_code == 2
    assert "Invalid value for '--metrics-address': ':99999' is not an address" in shown.output
    assert CliRunner().invoke(program, ["--metrics-address", ":9"]).output == ":9\n"
