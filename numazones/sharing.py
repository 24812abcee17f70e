"""Keeps equal parts of many objects once.

Fifty thousand pods come from a few hundred templates, five thousand nodes from a few models. Labels,
constraints, containers and machines are immutable values, so equal ones can be the same object; this is what
keeps a whole cluster within a few hundred MiB, and makes comparing them a matter of identity.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from numazones.cluster import ClusterPod, Template, template_key
from numazones.pod import Pairs, sorted_pairs

T = TypeVar("T", bound=Hashable)
Part = TypeVar("Part")

# Beyond so many distinct values there is little to share; starting over keeps the memory bounded.
_MAX_VALUES = 20_000


class Sharing:
    """Keeps one of each value."""

    def __init__(self) -> None:
        self._values: dict[Any, Any] = {}
        self._mappings: dict[tuple[tuple[str, Any], ...], Any] = {}
        self._pairs: dict[tuple[tuple[str, str], ...], Pairs] = {}

    def value(self, value: T) -> T:
        """Return the value that is kept for all equal ones."""
        if len(self._values) > _MAX_VALUES:
            self._values.clear()
        shared: T = self._values.setdefault(value, value)
        return shared

    def part(self, part: Part) -> Part:
        """Return the part of a pod (a value or a flat mapping) that is kept for all equal ones."""
        if not isinstance(part, dict):
            return self.value(part)
        if len(self._mappings) > _MAX_VALUES:
            self._mappings.clear()
        shared: Part = self._mappings.setdefault(tuple(part.items()), part)
        return shared

    def pod(self, body: Mapping[str, Any]) -> ClusterPod:
        """Read a pod; its parts are shared with other pods."""
        return ClusterPod.from_api(body, template_of=self._template_of, share=self.part)

    def _template_of(self, body: Mapping[str, Any]) -> Template:
        """Read a template once; of its other pods only the names have to be read."""
        template = self.remember(template_key(body), lambda: self._template(body))
        like = template.admission
        if like is None:
            return template
        admission = like.named(body["metadata"], pairs_of=self._pairs_of)
        return Template(template.constraints, template.requests, admission)

    def _pairs_of(self, labels: Mapping[str, str]) -> Pairs:
        key = tuple(labels.items())
        pairs = self._pairs.get(key)
        if pairs is None:
            if len(self._pairs) > _MAX_VALUES:
                self._pairs.clear()
            pairs = self._pairs[key] = sorted_pairs(labels)
        return pairs

    def _template(self, body: Mapping[str, Any]) -> Template:
        template = Template.of(body)
        return replace(template, constraints=self.value(template.constraints))

    def remember(self, key: Hashable, make: Callable[[], Part]) -> Part:
        """Return the value that was made for an equal key before, or make it."""
        if key not in self._values:
            if len(self._values) > _MAX_VALUES:
                self._values.clear()
            self._values[key] = make()
        remembered: Part = self._values[key]
        return remembered
