"""Messages between kube-scheduler and an extender (KS ``extender/v1``).

Requests have Go's field names, and ``null`` for what is not used. Answers leave nothing out that the
scheduler would misread: without NodeNames all nodes are gone, a null among victims ends the scheduler
(specs/scheduler-extender.md, section 2). A request that cannot be read is refused with the place in it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from numazones.errors import NumazonesError

T = TypeVar("T")


class UnreadableRequest(NumazonesError):
    """A request is not one of kube-scheduler's; the message names the place and what belongs there."""


class NodeList(msgspec.Struct, frozen=True):
    """Whole Node objects, each as the bytes that came."""

    items: list[msgspec.Raw] = []


class FilterRequest(msgspec.Struct, frozen=True, rename="pascal"):
    """The request of filter and prioritize: a pod, and nodes by name or, with nodeCacheCapable off, whole."""

    pod: dict[str, Any]
    nodes: NodeList | None = None
    node_names: list[str] | None = None


class FilterAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    """The nodes that pass, and why each other one does not."""

    nodes: NodeList | None
    node_names: list[str]
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str]
    error: str = ""


class HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    """The score of a node, 0 to 10."""

    host: str
    score: int


class _MetaPod(msgspec.Struct, frozen=True):
    uid: str = msgspec.field(name="UID")


class _MetaVictims(msgspec.Struct, frozen=True):
    pods: list[_MetaPod] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class _ObjectMeta(msgspec.Struct, frozen=True):
    name: str = ""
    uid: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _ObjectMeta


class _Victims(msgspec.Struct, frozen=True):
    pods: list[_Object] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class _PreemptRequest(msgspec.Struct, frozen=True, rename="pascal"):
    pod: dict[str, Any]
    node_name_to_victims: dict[str, _Victims | None] | None = None
    node_name_to_meta_victims: dict[str, _MetaVictims | None] | None = None


class NodeVictims(msgspec.Struct, frozen=True):
    """The pods that would go from a node, by UID, and how many disruption budgets that would violate."""

    uids: tuple[str, ...]
    violations: int


class PreemptRequest(msgspec.Struct, frozen=True):
    """A pod, and what the scheduler would evict for it on each node."""

    pod: dict[str, Any]
    victims: dict[str, NodeVictims]


class BindRequest(msgspec.Struct, frozen=True):
    """A pod, and the node that it is to be bound to."""

    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


def filter_request(body: bytes) -> FilterRequest:
    """Read a request of filter or prioritize.

    Raises:
        UnreadableRequest: it is none, or it names no nodes at all.
    """
    request = _read(body, FilterRequest)
    if request.node_names is None and request.nodes is None:
        raise UnreadableRequest(
            "the request has neither NodeNames nor Nodes; only kube-scheduler should call this address"
        )
    return request


def names_of(request: FilterRequest) -> list[str]:
    """Return the names of the nodes that a request is about.

    Raises:
        UnreadableRequest: a Node object has no name.
    """
    if request.node_names is not None:
        return request.node_names
    return [_read(raw, _Object).metadata.name for raw in (request.nodes or NodeList()).items]


def filter_answer(
    request: FilterRequest, names: Iterable[str], unresolvable: Mapping[str, str]
) -> FilterAnswer:
    """Answer filter: ``names`` pass, the others do not for a reason that evicting pods does not mend."""
    passing = list(names)
    nodes = None
    if request.node_names is None:
        wanted = set(passing)
        items = (request.nodes or NodeList()).items
        nodes = NodeList([raw for raw in items if _read(raw, _Object).metadata.name in wanted])
    return FilterAnswer(nodes, passing, {}, dict(unresolvable))


def filter_error(text: str) -> FilterAnswer:
    """Answer filter with an error, which the scheduler writes into the pod's condition as it is."""
    return FilterAnswer(None, [], {}, {}, text)


def preempt_request(body: bytes) -> PreemptRequest:
    """Read a request of preempt, in either form.

    Raises:
        UnreadableRequest: it is none.
    """
    request = _read(body, _PreemptRequest)
    victims: dict[str, NodeVictims] = {}
    for node, found in (request.node_name_to_victims or {}).items():
        whole = found or _Victims()
        uids = tuple(pod.metadata.uid for pod in whole.pods or ())
        victims[node] = NodeVictims(uids, whole.violations)
    for node, named in (request.node_name_to_meta_victims or {}).items():
        meta = named or _MetaVictims()
        victims[node] = NodeVictims(tuple(pod.uid for pod in meta.pods or ()), meta.violations)
    return PreemptRequest(request.pod, victims)


def preempt_answer(victims: Mapping[str, NodeVictims]) -> dict[str, Any]:
    """Answer preempt: the nodes that are not vetoed, each with the victims that it came with.

    From 1.38 on a node may come without any, for an extender that names them. To the scheduler an empty list
    is right for such a node alone, and a null ends it.
    """
    return {
        "NodeNameToMetaVictims": {
            node: {"Pods": [{"UID": uid} for uid in some.uids], "NumPDBViolations": some.violations}
            for node, some in victims.items()
        }
    }


def bind_request(body: bytes) -> BindRequest:
    """Read a request of bind.

    Raises:
        UnreadableRequest: it is none, or a name in it is empty.
    """
    request = _read(body, BindRequest)
    for field in ("name", "namespace", "uid", "node"):
        if not getattr(request, field):
            missing = "the node" if field == "node" else f"the pod's {field}"
            raise UnreadableRequest(f"the bind request lacks {missing}")
    return request


def encode(answer: Any) -> bytes:
    """Write an answer."""
    return msgspec.json.encode(answer)


def _read(body: bytes | msgspec.Raw, form: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=form)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableRequest(
            f"the request is not from kube-scheduler: {error}; only kube-scheduler should call this address"
        ) from error
