"""``version``: which numazones this is, and up to which kubelet release it decides."""

from importlib.metadata import version

import click

from numazones.kubelet.versions import NEWEST, OLDEST


@click.command("version")
def command() -> None:
    """Print the version, and the kubelet releases that are modelled."""
    click.echo(f"numazones {version('numazones')} (kubelet 1.{OLDEST} to 1.{NEWEST})")
