"""Parts that all objects of ``numazones.io`` share: names, metadata, conditions, quantities, bounds.

Rules come from the Kubernetes API conventions (metav1 ``Condition``, ``ObjectMeta``) and from the
structural schemas of apiextensions/v1. Readers must survive objects of a newer writer: unknown fields
are ignored, and values that have a list of known names (policies, verdicts, phases) are plain strings,
so that a new name is read, kept and reported as it is. The API server alone rejects unknown names, and
only where a person writes them.
"""

import json
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from numazones.api.problems import problems, slips
from numazones.apimachinery.answer import json_name
from numazones.errors import NumazonesError

GROUP = "numazones.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

NODE_LABEL = f"{GROUP}/node"
"""Label of every object that belongs to one node; the value is the node's name."""

# The longest names Kubernetes itself admits (RFC 1123 subdomain, RFC 1123 label).
MAX_NAME = 253
MAX_LABEL = 63

_NAMED = 3
"""How many problems of an object a message names."""

ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}
"""Marks a list that is always replaced as a whole; keeps managedFields small."""


UNPUBLISHED = "unpublished"
"""Marks, in a field's schema, what no object has: the library alone reads it."""

IMMUTABLE: dict[str, Any] = {
    "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "field is immutable"}]
}
"""Marks a part that stays as it was created."""


def list_map(*keys: str) -> dict[str, Any]:
    """Mark a list whose items are distinguished by the given keys."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def text(max_length: int, description: str) -> Any:
    """Declare a text of at most ``max_length`` characters; empty where left out."""
    return Field(default="", max_length=max_length, description=description)


def optional(description: str, **bounds: Any) -> Any:
    """Declare a field that is None where left out; ``bounds`` as pydantic has them."""
    return Field(default=None, description=description, **bounds)


def list_of(max_items: int, description: str, schema: dict[str, Any] = ATOMIC) -> Any:
    """Declare a list of at most ``max_items``, empty where left out; ``schema`` says how it is merged."""
    return Field(default=(), max_length=max_items, description=description, json_schema_extra=schema)


class InvalidResource(NumazonesError):
    """An object from the API does not have the form of its kind; the message names object and field."""


class APIModel(BaseModel):
    """Part of an API object: immutable, camelCase on the wire, unknown fields ignored."""

    model_config = ConfigDict(
        frozen=True,
        defer_build=True,
        extra="ignore",
        alias_generator=json_name,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

    def to_api(self) -> dict[str, Any]:
        """Return the JSON form; fields at their default (mostly: empty) are left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


WIRE = APIModel.model_config
"""Makes a dataclass part of an API object: its ``__pydantic_config__``."""

QUANTITY_PATTERN = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?$"

INT_OR_STRING: dict[str, Any] = {"x-kubernetes-int-or-string": True}
"""Marks a text for which a whole number stands, too."""

QuantityText = Annotated[
    str,
    Field(
        max_length=64,
        pattern=QUANTITY_PATTERN,
        coerce_numbers_to_str=True,
        json_schema_extra=INT_OR_STRING,
    ),
]
"""A Kubernetes quantity as text, for which numbers stand too (``numazones.apimachinery.quantity``)."""

CPUList = Annotated[str, Field(max_length=8192, pattern=r"^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$")]
"""A CPU set in Linux list format; read it with ``numazones.cpuset``."""

NUMAID = Annotated[int, Field(ge=0, le=65535)]

TimestampText = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
"""RFC 3339 in UTC, the way metav1.Time is written (``2026-01-31T08:00:00Z``)."""


class Condition(APIModel):
    """One aspect of the object's state (metav1.Condition)."""

    type: str = Field(max_length=316, description="Name of the condition, such as Ready.")
    status: Literal["True", "False", "Unknown"] = Field(description="True, False or Unknown.")
    reason: str = Field(
        max_length=1024,
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        description="Reason for the status as one CamelCase word, for programs.",
    )
    message: str = text(32768, "Reason for the status in a sentence, and what to do about it.")
    last_transition_time: TimestampText | None = optional(
        "When the status last changed from one value to another."
    )
    observed_generation: int | None = optional(
        "The metadata.generation that the condition was computed from.", ge=0
    )


Transitions = Mapping[str, tuple[str, str]]
"""Type of a condition → its status, and since when it has it."""

TRANSITION_TIME = "lastTransitionTime"


def transitions(conditions: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return the status of each condition and since when it has it, by type."""
    return {
        condition.get("type", ""): (condition.get("status", ""), condition.get(TRANSITION_TIME) or "")
        for condition in conditions
    }


def stamp(conditions: Iterable[MutableMapping[str, Any]], before: Transitions, now: str) -> None:
    """Write into each condition since when it has its status: as before where that is the same, else now.

    The rule is the Kubernetes API conventions': the time changes with the status, not with reason or message.
    """
    for condition in conditions:
        status, since = before.get(condition["type"], ("", ""))
        condition[TRANSITION_TIME] = (since if status == condition["status"] else "") or now


class OwnerReference(APIModel):
    """The object that this one is deleted with."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(APIModel):
    """Metadata as far as this project sets or reads it; the API server keeps the rest."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One printer column of ``kubectl get``; priority 1 shows with ``-o wide`` only."""

    name: str
    json_path: str
    description: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True, slots=True)
class ResourceType:
    """The names under which the API server knows a custom resource."""

    kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...]
    scope: Literal["Cluster", "Namespaced"]
    columns: tuple[PrinterColumn, ...]
    description: str
    by_people: bool = False
    """True if people write its spec; otherwise one of our programs does."""

    @property
    def crd_name(self) -> str:
        """The name of the CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"


class APIObject(APIModel):
    """A whole object of the group; subclasses add ``spec`` and ``status`` and say their type."""

    RESOURCE: ClassVar[ResourceType]

    metadata: ObjectMeta = Field(default_factory=ObjectMeta)

    @classmethod
    def from_api(cls, body: Mapping[str, Any], *, strict: bool = False) -> Self:
        """Read an object as the API server or a file gives it.

        ``strict`` is for what a person wrote and no API server has looked at: another apiVersion, unknown
        fields and names, and values of another type, which the API server would reject or drop with a
        warning, are errors.

        Raises:
            InvalidResource: the body is not of this kind, or a field has the wrong type or is unknown.
        """
        if not isinstance(body, Mapping):
            raise InvalidResource(f"expected a {cls.RESOURCE.kind}, not {body!r:.60}")
        kind = body.get("kind", cls.RESOURCE.kind)
        if kind != cls.RESOURCE.kind:
            raise InvalidResource(f"expected a {cls.RESOURCE.kind}, not a {kind!r}")
        found = list(slips(cls.model_json_schema(), body)) if strict else []
        if strict and body.get("apiVersion", API_VERSION) != API_VERSION:
            found.insert(0, f"apiVersion is {json.dumps(body['apiVersion'], default=str)}; use {API_VERSION}")
        try:
            read = cls.model_validate(body)
        except ValidationError as error:
            both = dict.fromkeys([*problems(error), *found])
            raise InvalidResource(cls._explain(body, list(both))) from error
        if found:
            raise InvalidResource(cls._explain(body, found))
        return read

    @classmethod
    def _explain(cls, body: Mapping[str, Any], found: Sequence[str]) -> str:
        """Return a message that names the object and its fields, and what to do if a program wrote it."""
        more = f" (and {len(found) - _NAMED} more)" if len(found) > _NAMED else ""
        cure = "" if cls.RESOURCE.by_people else ". Upgrade the program that wrote it, or delete it"
        return f"{cls.RESOURCE.kind} {_name(body)}: {'; '.join(found[:_NAMED])}{more}{cure}"

    def to_api(self) -> dict[str, Any]:
        """Return the object as it is sent: apiVersion, kind, metadata, spec, status."""
        return {"apiVersion": API_VERSION, "kind": self.RESOURCE.kind, **super().to_api()}


def _name(body: Mapping[str, Any]) -> str:
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return str(name or "(unnamed)")
