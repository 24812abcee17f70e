"""A wrong prediction that nothing explained, kept whole: replayed, it shows whether the model still errs.

What is kept is JSON, gzipped or not. The state of the managers is in it as the node's NUMAZones; what the
kubelet's other checks look at (the node's allocatable amounts, labels and taints, the requests of the pods on
it) and the pod itself are the library's values, field by field. Of labels and annotations nothing is kept
that admission doesn't read, for they may hold anything.
"""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from numazones.api.numazone import NUMAZone
from numazones.api.zones import node_from_zones
from numazones.api.zones_from_node import zones_from_node
from numazones.apimachinery.documents import OBJECT, UnreadableDocument, gunzip, read_json
from numazones.errors import NumazonesError
from numazones.kubelet.node_admission import admit_to_node
from numazones.kubelet.node_info import NodeInfo, PodInfo
from numazones.kubelet.pod import Pod

FORMAT = "numazones-miss/1"
ADMITTED = "Admitted"

_GZIP = b"\x1f\x8b"
_READ_BY_ADMISSION = "kubernetes.io/config."
"""Prefix of the annotations that tell static and mirror pods."""


class InvalidRecord(NumazonesError):
    """Data that is no saved wrong prediction; the message says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Statement about the pod."""

    reason: str
    """``Admitted``, or the kubelet's reason for a rejection."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class WrongPrediction:
    """A wrong prediction with all that it was made of."""

    pod: PodInfo
    node: NodeInfo
    """As it was expected to be when the pod was bound."""
    predicted: Answer
    actual: Answer
    """What the kubelet did."""
    time: str
    """When it was given up to look for an explanation, RFC 3339."""
    version: str
    """Release of numazones that made the prediction."""


def write(wrong: WrongPrediction) -> bytes:
    """Return a wrong prediction as gzipped JSON."""
    names = {uid: (info.pod.namespace, info.pod.name) for uid, info in wrong.node.pods.items()}
    zones = zones_from_node(wrong.node.state, node_name=wrong.node.name, pods=names)
    pods = {uid: _lean(info) for uid, info in wrong.node.pods.items()}
    document = {
        "format": FORMAT,
        "version": wrong.version,
        "time": wrong.time,
        "predicted": _plain(Answer, wrong.predicted),
        "actual": _plain(Answer, wrong.actual),
        "pod": _plain(PodInfo, _lean(wrong.pod)),
        "node": {
            name: _plain(kind, pods if name == "pods" else getattr(wrong.node, name))
            for name, kind in _surroundings().items()
        },
        "zones": [zone.to_api() for zone in zones],
    }
    return gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0)


def read(data: bytes) -> WrongPrediction:
    """Read a wrong prediction, gzipped or not.

    Raises:
        InvalidRecord: the data is none, is damaged, or has another format.
    """
    try:
        document = read_json(gunzip(data, OBJECT.size), OBJECT)
    except UnreadableDocument as error:
        raise InvalidRecord(
            f"not a saved wrong prediction: {error}; use an entry of the operator's ConfigMap"
        ) from error
    found = document.get("format") if isinstance(document, Mapping) else None
    if found != FORMAT:
        raise InvalidRecord(
            f"the wrong prediction has format {found!r}, not {FORMAT}; replay it with the release "
            "that wrote it"
        )
    try:
        zones = [NUMAZone.from_api(zone) for zone in document["zones"]]
        around = {name: _value(kind, document["node"][name]) for name, kind in _surroundings().items()}
        return WrongPrediction(
            pod=_value(PodInfo, document["pod"]),
            node=NodeInfo(node_from_zones(zones), **around),
            predicted=_value(Answer, document["predicted"]),
            actual=_value(Answer, document["actual"]),
            time=str(document["time"]),
            version=str(document["version"]),
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise _damage(f"{where}: {first['msg']}") from error
    except (KeyError, TypeError, NumazonesError) as error:
        raise _damage(str(error)) from error


def _damage(why: str) -> InvalidRecord:
    return InvalidRecord(f"the saved prediction is damaged: {why}; replay it with the release that wrote it")


def replay(wrong: WrongPrediction) -> Answer:
    """Say what the model as it is now predicts."""
    try:
        verdict = admit_to_node(wrong.node, wrong.pod)
    except NumazonesError as error:
        return Answer("Unknown", str(error))
    return Answer(ADMITTED) if verdict.admitted else Answer(verdict.reason, verdict.message)


def _lean(info: PodInfo) -> PodInfo:
    """The pod without labels and annotations that admission doesn't read."""
    pod: Pod = info.pod
    kept = tuple(pair for pair in pod.annotations if pair[0].startswith(_READ_BY_ADMISSION))
    return replace(info, pod=replace(pod, labels=(), annotations=kept))


def _surroundings() -> dict[str, Any]:
    """The fields of a node beside the managers' state, which is in the zones, with their types."""
    return {name: kind for name, kind in get_type_hints(NodeInfo).items() if name != "state"}


def _plain(kind: Any, value: Any) -> Any:
    return _adapter(kind).dump_python(value, mode="json")


def _value(kind: Any, plain: Any) -> Any:
    return _adapter(kind).validate_python(plain)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
