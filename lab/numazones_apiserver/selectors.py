"""Select objects by labels and fields, for a list, a watch or a deletecollection.

The grammar of fields is apimachinery's pkg/fields; which fields may be selected differs by
kind and is part of the kind's entry in the registry.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from numazones.apimachinery.label_selector import EVERYTHING, InvalidSelector, LabelSelector
from numazones_apiserver.errors import Object, bad_request


def selector_text(selector: Any) -> str:
    """A stored selector as people read it; services and replication controllers select by plain labels."""
    if not isinstance(selector, Mapping):
        return str(selector)
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        return str(LabelSelector(tuple(selector.items())))
    try:
        return str(LabelSelector.from_api(selector))
    except InvalidSelector:
        return "<error>"


def parse_labels(text: str) -> LabelSelector:
    """A label selector from its query parameter; raises StatusError 400."""
    try:
        return LabelSelector.parse(text)
    except InvalidSelector as error:
        raise bad_request(error.reason) from error


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One condition on one selectable field."""

    field: str
    value: str
    negated: bool
    read: Callable[[Object], str]

    def matches(self, obj: Object) -> bool:
        """Return whether the object's field equals the value (or not, when negated)."""
        return (self.read(obj) == self.value) is not self.negated


def _split_fields(text: str) -> Iterable[tuple[str, bool, str]]:
    for term in re.split(r"(?<!\\),", text):
        if not term.strip():
            continue
        found = re.match(r"^(.*?)(!=|==|=)(.*)$", term, re.DOTALL)
        if found is None:
            raise bad_request(
                f"invalid field selector: {text}: invalid selector: '{text}'; can't understand '{term}'"
            )
        value = re.sub(r"\\([\\,=])", r"\1", found.group(3))
        yield found.group(1).strip(), found.group(2) == "!=", value.strip()


def parse_fields(
    text: str, readers: Mapping[str, Callable[[Object], str]], *, custom: bool = False
) -> tuple[FieldTerm, ...]:
    """A field selector; ``readers`` are the kind's selectable fields. Raises StatusError 400."""
    terms = []
    for field, negated, value in _split_fields(text):
        if field not in readers and set(readers) <= {"metadata.name", "metadata.namespace"} and not custom:
            known = ", ".join(f'"{name}"' for name in readers)
            raise bad_request(f'"{field}" is not a known field selector: only {known}')
        if field not in readers:
            raise bad_request(f"field label not supported: {field}")
        terms.append(FieldTerm(field, value, negated, readers[field]))
    return tuple(terms)


@dataclass(frozen=True, slots=True)
class Selection:
    """The label and field selectors of a request."""

    labels: LabelSelector = EVERYTHING
    fields: tuple[FieldTerm, ...] = ()

    @property
    def everything(self) -> bool:
        """Return whether the selector matches every object."""
        return self.labels.everything and not self.fields

    def matches(self, obj: Object) -> bool:
        """Return whether the selector matches the object."""
        if self.fields and not all(term.matches(obj) for term in self.fields):
            return False
        return self.labels.matches(obj["metadata"].get("labels") or {})
