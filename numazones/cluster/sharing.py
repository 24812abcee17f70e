"""Keeps equal parts of many objects once.

Fifty thousand pods come from a few hundred templates, five thousand nodes from a few models. Labels,
constraints, containers and machines are immutable values, so equal ones can be the same object; this is what
keeps a whole cluster within a few hundred MiB, and makes comparing them a matter of identity.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from numazones.cluster.cluster import ClusterPod, Template, template_key
from numazones.kubelet.pod import Pairs, sorted_pairs

T = TypeVar("T", bound=Hashable)
Part = TypeVar("Part")

HALF = 4000
"""So many values are kept that were asked for last, and as many from before: at most 20 MiB of templates."""
_MISSING: Any = object()


class _Recent:
    """Values by key, as long as they are asked for: the older half is dropped when the newer one is full."""

    __slots__ = ("_newer", "_older")

    def __init__(self) -> None:
        self._newer: dict[Any, Any] = {}
        self._older: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def get(self, key: Any) -> Any:
        """Return the value of the key, or ``_MISSING``."""
        value = self._newer.get(key, _MISSING)
        if value is _MISSING:
            value = self._older.pop(key, _MISSING)
            if value is not _MISSING:
                self.put(key, value)
        return value

    def keep(self, key: Any, value: Part) -> Part:
        """Return the value of the key; without one, this value, which is kept."""
        kept: Part = self._newer.get(key, _MISSING)  # nearly all are there
        if kept is _MISSING and (kept := self.get(key)) is _MISSING:
            return self.put(key, value)
        return kept

    def put(self, key: Any, value: Part) -> Part:
        """Keep a value under a key that has none, and return it."""
        if len(self._newer) >= HALF:
            self._older, self._newer = self._newer, {}
        self._newer[key] = value
        return value


class Sharing:
    """Keeps one of each value."""

    def __init__(self) -> None:
        self._values = _Recent()
        self._mappings = _Recent()
        self._pairs = _Recent()

    def __len__(self) -> int:
        """Return how many values are kept."""
        return len(self._values) + len(self._mappings) + len(self._pairs)

    def value(self, value: T) -> T:
        """Return the value that is kept for all equal ones."""
        return self._values.keep(value, value)

    def part(self, part: Part) -> Part:
        """Return the part of a pod (a value or a flat mapping) that is kept for all equal ones."""
        if not isinstance(part, dict):
            return self._values.keep(part, part)
        return self._mappings.keep(tuple(part.items()), part)

    def pod(self, body: Mapping[str, Any]) -> ClusterPod:
        """Read a pod; its parts are shared with other pods."""
        return ClusterPod.from_api(body, template_of=self._template_of, share=self.part)

    def _template_of(self, body: Mapping[str, Any]) -> Template:
        """Read a template once; of its other pods only the names have to be read."""
        template = self.remember(template_key(body), lambda: self._template(body))
        like = template.admission
        if like is None:
            return template
        admission = like.with_metadata(body["metadata"], pairs_of=self._pairs_of)
        return Template(template.constraints, template.requests, admission)

    def _pairs_of(self, labels: Mapping[str, str]) -> Pairs:
        key = tuple(labels.items())
        kept = self._pairs.get(key)
        return self._pairs.put(key, sorted_pairs(labels)) if kept is _MISSING else kept

    def _template(self, body: Mapping[str, Any]) -> Template:
        template = Template.of(body)
        return replace(template, constraints=self.value(template.constraints))

    def remember(self, key: Hashable, make: Callable[[], Part]) -> Part:
        """Return the value that was made for an equal key before, or make it."""
        kept = self._values.get(key)
        return self._values.put(key, make()) if kept is _MISSING else kept
