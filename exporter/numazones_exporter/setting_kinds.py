"""Formats of the exporter's own settings: sources, kinds of objects, names of nodes."""

import re
from typing import Any

import click

from numazones_program.settings import SettingKind

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_MAX_NODE_NAME = 253


def is_node_name(text: str) -> bool:
    """Return whether a Node can have this name: a DNS subdomain."""
    return len(text) <= _MAX_NODE_NAME and _NODE_NAME.fullmatch(text) is not None


class ObjectKinds(SettingKind):
    """Kinds of objects to publish: a comma-separated list, or a list in the file."""

    name = "kinds"

    def __init__(self, *kinds: str) -> None:
        """Accept these kinds; a value has them in this order."""
        self._kinds = kinds

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Put the kinds in order; one that cannot be published ends the command with a usage error."""
        items = value.split(",") if isinstance(value, str) else list(value)
        named = [str(item).strip() for item in items if str(item).strip()]
        choice = f"choose from {', '.join(self._kinds)}"
        for kind in named:
            if kind not in self._kinds:
                self.fail(f"{kind!r} cannot be published; {choice}", param, ctx)
        if not named:
            self.fail(f"nothing to publish; {choice}", param, ctx)
        return tuple(kind for kind in self._kinds if kind in named)

    def text(self, value: Any) -> str:
        """Join the kinds with commas."""
        return ",".join(value)


class SourceSetting(SettingKind):
    """Source to read from: a bare word, or ``scheme:PATH``."""

    name = "source"

    def __init__(self, *, words: tuple[str, ...], schemes: tuple[str, ...], metavar: str) -> None:
        """Accept the words, and the schemes with something after the colon; ``metavar`` names them all."""
        self._words = words
        self._schemes = schemes
        self._metavar = metavar

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the text; an unknown form ends the command with a usage error."""
        text = str(value)
        scheme, _, path = text.partition(":")
        known = text in self._words or (scheme in self._schemes and path)
        if text and not known:  # empty: the default applies
            self.fail(f"{text!r} is not one of {self._metavar}", param, ctx)
        return text


class NodeNameSetting(SettingKind):
    """A node's name: a DNS subdomain."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the text; a bad one ends the command with a usage error."""
        text = str(value)
        if text and not is_node_name(text):
            self.fail(
                f"{text!r} is not a valid node name; use the name that kubectl get nodes shows", param, ctx
            )
        return text
