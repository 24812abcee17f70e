"""Addresses as people write them: ``host:port``, ``:port``, ``[IPv6]:port``."""

from ipaddress import ip_address
from typing import Any

import click

from numazones_program.settings import InvalidSetting, SettingKind

_MAX_PORT = 65535


def parse_address(text: str, *, default_port: int | None = None) -> tuple[str, int]:
    """Return host, without brackets and empty for all addresses, and port.

    Args:
        text: the address.
        default_port: what applies where the text names a host alone; without one, a port must be there.

    Raises:
        InvalidSetting: the text is not an address.
    """
    host, port = _split(text, default_port)
    if not port.isascii() or not port.isdecimal() or int(port) > _MAX_PORT:
        example = ":8080" if default_port is None else "10.0.0.1"
        raise InvalidSetting(
            f"{text!r} is not an address; write host:port, such as {example}, with a port up to {_MAX_PORT}"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def _split(text: str, default_port: int | None) -> tuple[str, str]:
    if default_port is not None and (
        text.endswith("]") or (text.count(":") != 1 and not text.startswith("["))
    ):
        return text, str(default_port)  # a host, or an IPv6 address without brackets
    host, separator, port = text.rpartition(":")
    return host, port if separator else ""


def is_loopback(host: str) -> bool:
    """Return whether only programs of the same machine, or pod, reach a host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Address(SettingKind):
    """A ``host:port`` to listen on; the text stays as it is. An optional one may be empty."""

    name = "address"

    def __init__(self, *, optional: bool = False) -> None:
        self._optional = optional

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the text; a bad one ends the command with a usage error."""
        if self._optional and not value:
            return ""
        try:
            parse_address(str(value))
        except InvalidSetting as error:
            self.fail(str(error), param, ctx)
        return str(value)
