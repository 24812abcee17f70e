"""The placement models that are installed, beside the kubelet's, and which of them a node shows.

A model is a package with an entry point of the group ``numazones.models`` that names a ``Model``. What shows
that a model decides on a node is for the model to say; the kubelet decides where none is shown. CONTRIBUTING
tells how to add one.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points

from numazones.apimachinery.documents import OBJECT, UnreadableDocument, read_json
from numazones.errors import NumazonesError
from numazones.placement import UnreadableNode
from numazones.placement.kubelet import KUBELET_MODEL
from numazones.placement.model import TOPOLOGY_KIND, Model, Object, ObjectKind

ENTRY_POINTS = "numazones.models"
_TOPOLOGIES = "noderesourcetopologies.topology.node.k8s.io"


def parse_record(text: str) -> Object | None:
    """Return a published record (``EventFollower.record``); None: there is none, or it is no JSON object."""
    try:
        found = read_json(text, OBJECT) if text else None
    except UnreadableDocument:
        return None
    return found if isinstance(found, Mapping) else None


@cache
def models() -> Mapping[str, Model]:
    """Return the models that are installed by name, the kubelet's not among them."""
    found = (entry.load() for entry in sorted(entry_points(group=ENTRY_POINTS)))
    return {model.name: model for model in found}


def model(name: str) -> Model:
    """Return the model of a name; the kubelet's for any that is not installed."""
    return models().get(name, KUBELET_MODEL)


def model_shown(node: Object, topology: Object | None) -> Model:
    """Tell from a core/v1 Node and its NodeResourceTopology (None: it has none) which model decides there.

    Raises:
        UnreadableNode: they show two.
    """
    marks = [(one, mark) for one in models().values() if (mark := one.mark(node, topology)) is not None]
    if len(marks) > 1:
        shown = " and ".join(f"{one.decider} ({mark})" for one, mark in marks)
        raise UnreadableNode(
            f"the node shows signs of more than one placement model, {shown}, so it is unknown which one "
            "places pods there; remove what is left of the old one"
        )
    return marks[0][0] if marks else KUBELET_MODEL


def is_kubelet(found: Model) -> bool:
    """Return whether no model other than the kubelet's decides."""
    return found is KUBELET_MODEL


def object_kinds() -> tuple[ObjectKind, ...]:
    """Return all kinds of objects that models read."""
    return tuple(kind for one in models().values() for kind in one.objects)


def resource_name(kind: str) -> str:
    """Return how kubectl calls a kind of objects that models read, such as devices.example.com."""
    if kind == TOPOLOGY_KIND:
        return _TOPOLOGIES
    return next((f"{one.plural}.{one.group}" for one in object_kinds() if one.kind == kind), kind)


@cache
def node_annotations() -> tuple[str, ...]:
    """Return the beginnings of all annotations of nodes that models read."""
    return tuple(text for one in models().values() for text in one.node_annotations)


@cache
def pod_annotations() -> tuple[str, ...]:
    """Return the beginnings of all annotations of pods that are needed beside what decides."""
    told = (text for one in models().values() for text in one.pod_annotations)
    return (*told, *eviction_costs())


@cache
def pod_marks() -> tuple[str, ...]:
    """Return the parts of names of labels and annotations by which pods tell models what they want."""
    return tuple(text for one in models().values() for text in one.pod_marks)


@cache
def eviction_costs() -> tuple[str, ...]:
    """Return the annotations that say what evicting a pod costs."""
    return tuple(one.eviction_cost for one in models().values() if one.eviction_cost)


def with_setting(settings: Mapping[str, str], text: str) -> dict[str, str]:
    """Return settings with one more, written MODEL.NAME=VALUE.

    Raises:
        NumazonesError: there is no such model or setting; the message lists those there are.
    """
    key, equals, value = text.partition("=")
    known = {f"{one.name}.{name}" for one in models().values() for name in one.settings}
    if not equals or not value or key not in known:
        raise NumazonesError(
            f"{text!r} is not a setting of a placement model; write one of these as NAME=VALUE: "
            f"{', '.join(sorted(known)) or 'none, as no model is installed'}"
        )
    return {**settings, key: value}
