"""The few fields that are kept of each mirrored object, and the decoders that keep them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from numazones.api.meta import NODE_LABEL
from numazones.api.numazone import CPUS_EXCLUSIVE
from numazones.cluster.cluster import ClusterNode
from numazones.dra.claims import DeviceClaim
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Slice
from numazones.placement import models
from numazones_client import Decoder, by_name


@dataclass(frozen=True, slots=True)
class ZoneReport:
    """A NUMAZone as it was published, not yet judged."""

    name: str
    node: str
    numa_id: int
    snapshot: str
    zones: int
    """How many zones the node has."""
    body: Mapping[str, Any] | None
    """The whole object; None once the node's zones have been read together."""
    silent: bool = False
    """Whether it says that its exporter is silent."""
    placement: Mapping[str, Any] | None = None
    """What it says of the placement model that decides there; None: nothing."""
    dynamic_resources: Mapping[str, Any] | None = None
    """What it says of devices of dynamic resource allocation; None: nothing."""
    cpu_manager_policy: str = ""
    """What it says of its kubelet's; empty: nothing."""
    shares_cpus: bool = False
    """Whether it says that pods share exclusive CPUs."""

    @property
    def record(self) -> str:
        """Return a model's record of the node, as JSON; empty if there is none."""
        return "" if self.placement is None else str(self.placement.get("record") or "")

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "ZoneReport":
        """Read a NUMAZone; KeyError, TypeError, AttributeError: it is none."""
        spec, status = body["spec"], body.get("status") or {}
        name, node, numa = body["metadata"]["name"], spec["nodeName"], spec["numaID"]
        snapshot, zones = status.get("snapshot") or "", status.get("zones") or 0
        if not all(isinstance(text, str) for text in (name, node, snapshot)) or not all(
            isinstance(number, int) for number in (numa, zones)
        ):  # tables are kept by these, whatever a definition lets through
            raise TypeError(
                "metadata.name, spec.nodeName and status.snapshot must be strings, and spec.numaID and "
                f"status.zones integers; they are {name!r:.40}, {node!r:.40}, {snapshot!r:.40}, {numa!r:.40} "
                f"and {zones!r:.40}"
            )
        return cls(
            name,
            node,
            numa,
            snapshot,
            zones,
            body,
            silent="silence" in status,
            placement=status.get("placement"),
            dynamic_resources=status.get("dynamicResources"),
            cpu_manager_policy=(status.get("kubelet") or {}).get("cpuManagerPolicy") or "",
            shares_cpus=any(
                condition.get("type") == CPUS_EXCLUSIVE and condition.get("status") == "False"
                for condition in status.get("conditions") or ()
            ),
        )


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The Lease of a node's exporter."""

    node: str
    renewed: str
    """``renewTime`` as written: any change of it is a sign of life."""
    duration: float
    """Seconds."""

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "Heartbeat":
        """Read a Lease that carries the label of its node."""
        spec = body["spec"]
        return cls(
            body["metadata"]["labels"][NODE_LABEL],
            spec.get("renewTime") or "",
            float(spec.get("leaseDurationSeconds") or 0),
        )


@dataclass(frozen=True, slots=True)
class TopologyReport:
    """A NodeResourceTopology as somebody published it."""

    node: str
    body: Mapping[str, Any]

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "TopologyReport":
        """Read a NodeResourceTopology; it is named after its node."""
        return cls(body["metadata"]["name"], body)


def shows_another_model(topology: Mapping[str, Any]) -> bool:
    """Return whether a NodeResourceTopology belongs to a placement model other than the kubelet's."""
    return any(model.mark({}, topology) is not None for model in models.models().values())


def tells_namespaces_apart(topology: Mapping[str, Any]) -> bool:
    """Return whether a NodeResourceTopology belongs to a model that distinguishes pods' namespaces."""
    return any(
        model.tells_namespaces_apart and model.mark({}, topology) is not None
        for model in models.models().values()
    )


@dataclass(frozen=True, slots=True)
class ModelObject:
    """An object that a placement model reads beside nodes and pods."""

    key: str
    name: str
    body: Mapping[str, Any]

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "ModelObject":
        """Keep what models read: names, annotations and spec."""
        metadata = {key: body["metadata"].get(key) for key in ("namespace", "name", "annotations")}
        return cls(
            by_name(metadata), metadata["name"] or "", {"metadata": metadata, "spec": body.get("spec") or {}}
        )


@dataclass(frozen=True, slots=True)
class NamespaceLabels:
    """A namespace's labels."""

    KIND: ClassVar[str] = "Namespace"

    name: str
    labels: Mapping[str, str]
    uid: str = ""

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "NamespaceLabels":
        """Read a Namespace."""
        metadata = body["metadata"]
        return cls(metadata["name"], metadata.get("labels") or {}, metadata.get("uid") or "")


def _node_label(metadata: Mapping[str, Any]) -> str:
    return str((metadata.get("labels") or {}).get(NODE_LABEL) or "")


NODES = Decoder(ClusterNode.from_api)
ZONES = Decoder(ZoneReport.from_api)
HEARTBEATS = Decoder(Heartbeat.from_api, key=_node_label)
TOPOLOGIES = Decoder(TopologyReport.from_api)
DEVICE_CLASSES = Decoder(DeviceClass.from_api)
RESOURCE_SLICES = Decoder(Slice.from_api)
RESOURCE_CLAIMS = Decoder(DeviceClaim.from_api)
RESOURCE_CLAIM_TEMPLATES = Decoder(DeviceClaim.from_api)
MODEL_OBJECTS = Decoder(ModelObject.from_api)
