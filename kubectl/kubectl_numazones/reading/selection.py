"""``-A`` and ``-l``: which objects a command is about, by kubectl's grammar."""

from collections.abc import Callable
from typing import Any

import click

from kubectl_numazones.reading.parsed import SELECTOR
from numazones.apimachinery.label_selector import LabelSelector


def selector_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``-l``, on the labels of ``what``; the command gets it as ``selector``, None without it."""
    return click.option(
        "-l",
        "--selector",
        type=SELECTOR,
        metavar="SELECTOR",
        help=f"Only {what} with these labels, such as app=web,tier!=db,zone in (a,b).",
    )


all_namespaces_option = click.option(
    "-A", "--all-namespaces", "everywhere", is_flag=True, help="All namespaces; overrides -n."
)
"""Adds ``-A``; the command gets it as ``everywhere``."""


def none_here(namespace: str, elsewhere: int) -> str:
    """Return where nothing was found, and how to see what other namespaces have."""
    others = f" ({elsewhere} in other namespaces: use -A)" if elsewhere else ""
    return f" in namespace {namespace}{others}"


def check_names(names: tuple[str, ...], *, everywhere: bool = False, selector: LabelSelector | None) -> None:
    """Hold names against ``-A`` and ``-l``.

    Raises:
        click.UsageError: they contradict each other.
    """
    if names and selector is not None:
        raise click.UsageError("use either names or -l, not both")
    if names and everywhere:
        raise click.UsageError("-A cannot be combined with names: omit it, and give the namespace with -n")
