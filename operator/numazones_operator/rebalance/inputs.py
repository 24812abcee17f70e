"""What rebalancing knows beside the cluster: people's intent; budgets, owners, claims, classes, mirrored."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from numazones.cluster import Cluster, ClusterPod
from numazones.rebalance.budgets import Budget, Headroom
from numazones.rebalance.candidates import Situation
from numazones.rebalance.filter import Surroundings
from numazones.rebalance.history import History
from numazones_client import Decoder, Resource, by_uid
from numazones_client.table import Table
from numazones_operator.intent import Intent
from numazones_operator.rebalance.objects import FAILED, GONE, read

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
CLAIMS = Resource("", "v1", "persistentvolumeclaims")
OWNERS = (
    Resource("apps", "v1", "replicasets"),
    Resource("apps", "v1", "statefulsets"),
    Resource("batch", "v1", "jobs"),
)
"""Kinds that make pods from a template of their own."""


@dataclass(frozen=True, slots=True)
class Template:
    """The pod that an owner would make."""

    owner: str
    """UID."""
    pod: ClusterPod

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "Template":
        """Read a ReplicaSet, StatefulSet or Job."""
        metadata, template = body["metadata"], body["spec"]["template"]
        made = {
            "metadata": {
                **(template.get("metadata") or {}),
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": f"template/{metadata['uid']}",
            },
            "spec": template["spec"],
        }
        return cls(metadata["uid"], ClusterPod.from_api(made))


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """The value of a priority class."""

    name: str
    value: int

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "PriorityClass":
        """Read a PriorityClass."""
        return cls(body["metadata"]["name"], int(body["value"]))


@dataclass(frozen=True, slots=True)
class Claim:
    """The storage class of a PersistentVolumeClaim."""

    namespace: str
    name: str
    storage_class: str

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "Claim":
        """Read a PersistentVolumeClaim."""
        metadata = body["metadata"]
        return cls(metadata["namespace"], metadata["name"], body["spec"].get("storageClassName") or "")


class Inputs:
    """The mirrored tables, and the situation that they describe."""

    def __init__(self, intent: Intent) -> None:
        """``intent`` is kept up to date by somebody else."""
        self.intent = intent
        self.budgets: Table[Budget] = Table(lambda item: f"{item.namespace}/{item.name}")
        self.priority_classes: Table[PriorityClass] = Table(lambda item: item.name)
        self.claims: Table[Claim] = Table(lambda item: f"{item.namespace}/{item.name}")
        self.templates: dict[Resource, Table[Template]] = {
            resource: Table(lambda item: item.owner) for resource in OWNERS
        }

    def mirrored(self) -> Iterator[tuple[Resource, Decoder[Any], Table[Any]]]:
        """Yield what reflectors have to keep up to date."""
        yield BUDGETS, Decoder(Budget.from_api), self.budgets
        yield PRIORITY_CLASSES, Decoder(PriorityClass.from_api), self.priority_classes
        yield CLAIMS, Decoder(Claim.from_api), self.claims
        for resource, table in self.templates.items():
            yield resource, Decoder(Template.from_api, key=by_uid), table

    @property
    def classes(self) -> dict[str, int]:
        """Name → value of the priority classes."""
        return {item.name: item.value for item in self.priority_classes}

    def template(self, owner: str) -> ClusterPod | None:
        """Return the pod that an owner would make, by the owner's UID."""
        for table in self.templates.values():
            found = table.get(owner)
            if found is not None:
                return found.pod
        return None

    def situation(self, cluster: Cluster, now: datetime, *, during: str = "") -> Situation:
        """Return all that planning asks about; the moves of the plan ``during`` which it asks are no past."""
        pods = [pod for node in cluster.nodes.values() for pod in node.pods.values()]
        pods += cluster.pending.values()
        return Situation(
            cluster,
            Surroundings(
                now=now,
                replicas=Surroundings.count_replicas(pods),
                headroom=Headroom.of(self.budgets),
                storage_classes={(item.namespace, item.name): item.storage_class for item in self.claims},
                namespace_labels={item.name: item.labels for item in self.intent.namespaces},
            ),
            templates={item.owner: item.pod for table in self.templates.values() for item in table},
            history=self._history(during),
        )

    def _history(self, during: str) -> History:
        moved: dict[tuple[str, str], datetime] = {}
        failed = set()
        for item in self.intent.recommendations:
            if item.name == during:
                continue
            if item.status.phase == FAILED:
                failed.add(item.spec.digest)
            for move, progress in zip(item.spec.moves, item.progress, strict=True):
                since = read(progress.since)
                if since is None or move.owner is None or progress.phase not in GONE:
                    continue
                for node in {move.source.node, progress.node or move.target.node}:
                    key = (move.owner.uid, node)
                    moved[key] = max(since, moved.get(key, since))
        return History(moved, frozenset(failed))
