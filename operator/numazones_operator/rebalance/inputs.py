"""Inputs of rebalancing besides the cluster: people's intent; budgets, owners, claims and classes."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from numazones.api.rebalance import MovePhase, PlanPhase
from numazones.apimachinery.defaulting import Defaults
from numazones.cluster.admission_gate import GATE
from numazones.cluster.cluster import Cluster, ClusterPod
from numazones.rebalance.budgets import Budget, BudgetHeadroom
from numazones.rebalance.candidates import Situation
from numazones.rebalance.filter import EvictionContext
from numazones.rebalance.history import FreedNode, MoveHistory, Relocation
from numazones.rebalance.moves import pod_from_template
from numazones.rebalance.recommendation import Recommendation, parse_time
from numazones_client import Decoder, Resource, by_name, by_uid
from numazones_client.resources import BUDGETS, CLAIMS, JOBS, PRIORITY_CLASSES, REPLICA_SETS, STATEFUL_SETS
from numazones_client.table import Table
from numazones_operator.faults import ObjectFaults, of_subject
from numazones_operator.rebalance.intent import Intent
from numazones_operator.rebalance.objects import GONE, PolicyObject, emptied_nodes
from numazones_operator.rebalance.rejected_pods import with_next_pods

OWNERS = (REPLICA_SETS, STATEFUL_SETS, JOBS)
"""Kinds that make pods from a template of their own."""

LIMIT_RANGES = Resource("", "v1", "limitranges")
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", namespaced=False)


@dataclass(slots=True)
class OwnerTemplate:
    """Template that an owner creates its pods from."""

    owner: str
    """UID."""
    body: bytes
    """Names and template of the owner as JSON, which is small: few of tens of thousands are asked for."""
    _made: tuple[Defaults, ClusterPod] | None = field(init=False, default=None, compare=False, repr=False)

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "OwnerTemplate":
        """Read a ReplicaSet, StatefulSet or Job."""
        metadata = {key: body["metadata"][key] for key in ("namespace", "name", "uid")}
        kept = {"metadata": metadata, "spec": {"template": body["spec"].get("template")}}
        return cls(metadata["uid"], json.dumps(kept, separators=(",", ":")).encode())

    def pod(self, defaults: Defaults) -> ClusterPod:
        """Return the pod that the owner would make; made once for the same ``defaults``."""
        made = self._made
        if made is None or made[0] is not defaults:
            made = self._made = defaults, pod_from_template(json.loads(self.body), defaults)
        return made[1]


class OwnerPods(Mapping[str, ClusterPod]):
    """Owner's UID → the pod that it would make, for one moment.

    A pod is made when it is asked for: by the thread that plans, not by the loop.
    """

    def __init__(
        self,
        templates: Mapping[str, OwnerTemplate],
        made: Callable[[OwnerTemplate, Defaults], ClusterPod],
        defaults: Defaults,
    ) -> None:
        self._templates = templates
        self._made = made
        self._defaults = defaults

    def __getitem__(self, owner: str) -> ClusterPod:
        return self._made(self._templates[owner], self._defaults)

    def __iter__(self) -> Iterator[str]:
        return iter(self._templates)

    def __len__(self) -> int:
        return len(self._templates)


@dataclass(frozen=True, slots=True)
class Defaulting:
    """An object that fills in what pods leave open: a LimitRange, a RuntimeClass or a PriorityClass."""

    key: str
    body: Mapping[str, Any]

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "Defaulting":
        """Keep what matters of the object."""
        kept = {key: value for key, value in body.items() if key not in _BOOKKEEPING}
        metadata = body["metadata"]
        kept["metadata"] = {key: metadata[key] for key in ("namespace", "name") if key in metadata}
        return cls(by_name(metadata), kept)


_BOOKKEEPING = ("metadata", "status", "kind", "apiVersion")


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """The storage class of a PersistentVolumeClaim."""

    namespace: str
    name: str
    storage_class: str

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "VolumeClaim":
        """Read a PersistentVolumeClaim."""
        metadata = body["metadata"]
        return cls(metadata["namespace"], metadata["name"], body["spec"].get("storageClassName") or "")


class Inputs:
    """The mirrored tables, and the situation that they describe."""

    def __init__(
        self,
        intent: Intent,
        *,
        injected: Callable[[ClusterPod, Mapping[str, str]], bool] = lambda _pod, _labels: False,
        faults: ObjectFaults | None = None,
    ) -> None:
        """``intent`` is kept up to date by somebody else.

        ``injected``: whether an admission policy gives a new pod our gate, in a namespace with these labels.
        """
        self.intent = intent
        self._injected = injected
        self._faults = faults or ObjectFaults()
        self.budgets: Table[Budget] = Table(lambda item: f"{item.namespace}/{item.name}")
        self.limit_ranges = self._defaults()
        self.runtime_classes = self._defaults()
        self.priority_classes = self._defaults()
        self.claims: Table[VolumeClaim] = Table(lambda item: f"{item.namespace}/{item.name}")
        self.templates: dict[Resource, Table[OwnerTemplate]] = {
            resource: Table(lambda item: item.owner) for resource in OWNERS
        }
        self._known_defaults: Defaults | None = None

    def _defaults(self) -> Table[Defaulting]:
        return Table(lambda item: item.key, self._defaults_changed)

    def _defaults_changed(self, _old: Defaulting | None, _new: Defaulting | None) -> None:
        self._known_defaults = None

    def mirrored(self) -> Iterator[tuple[Resource, Decoder[Any], Table[Any]]]:
        """Yield the resources that reflectors keep up to date, with decoders and tables."""
        yield BUDGETS, Decoder(Budget.from_api), self.budgets
        yield LIMIT_RANGES, Decoder(Defaulting.from_api), self.limit_ranges
        yield RUNTIME_CLASSES, Decoder(Defaulting.from_api), self.runtime_classes
        yield PRIORITY_CLASSES, Decoder(Defaulting.from_api), self.priority_classes
        yield CLAIMS, Decoder(VolumeClaim.from_api), self.claims
        for resource, table in self.templates.items():
            yield resource, Decoder(OwnerTemplate.from_api, key=by_uid), table

    @property
    def classes(self) -> dict[str, int]:
        """Name → value of the priority classes."""
        asked = self._faults.over(self.priority_classes, lambda item: int(item.body["value"]), _of_class)
        return {item.key: value for item, value in asked}

    @property
    def defaults(self) -> Defaults:
        """Return the API server's defaults for new pods; the same value as long as nothing changes."""
        if self._known_defaults is None:
            self._known_defaults = Defaults(
                tuple(item.body for item in self.limit_ranges),
                {item.key: item.body for item in self.runtime_classes},
                {item.key: item.body for item in self.priority_classes},
            )
        return self._known_defaults

    def template(self, owner: str) -> ClusterPod | None:
        """Return the pod that an owner would make, by the owner's UID; None if the owner is not known."""
        found = next(filter(None, (table.get(owner) for table in self.templates.values())), None)
        return None if found is None else self._made(found, self.defaults)

    def _made(self, template: OwnerTemplate, defaults: Defaults) -> ClusterPod:
        """Return the pod that an owner would make, with the gate that an admission policy would give it."""
        pod = template.pod(defaults)
        namespace, gates = self.intent.namespaces.get(pod.namespace), pod.constraints.scheduling_gates
        if GATE in gates or namespace is None or not self._injected(pod, namespace.labels):
            return pod
        return replace(pod, constraints=replace(pod.constraints, scheduling_gates=(*gates, GATE)))

    def situation(
        self,
        cluster: Cluster,
        now: datetime,
        *,
        policy: str,
        during: str = "",
        next_pods: Mapping[str, ClusterPod] | None = None,
    ) -> Situation:
        """Return all that the planning of a policy asks about; the moves of the plan ``during`` are no past.

        ``next_pods``: those of owners in a loop of rejections (``rejected_pods``); they wait like others.
        """
        cluster = with_next_pods(cluster, next_pods or {}, self._faults)
        pods = [pod for node in cluster.nodes.values() for pod in node.pods.values()]
        pods += cluster.pending.values()
        return Situation(
            cluster,
            EvictionContext(
                now=now,
                replicas=EvictionContext.count_replicas(pods),
                headroom=BudgetHeadroom.of(self.budgets),
                storage_classes={(item.namespace, item.name): item.storage_class for item in self.claims},
                namespace_labels={item.name: item.labels for item in self.intent.namespaces},
            ),
            templates=self._template_pods(),
            history=replace(self._history(during, now), emptied=self._emptied(policy)),
            at_any_time=frozenset(next_pods or ()),
        )

    def _template_pods(self) -> OwnerPods:
        """Return what owners would make in place of their pods."""
        known = {item.owner: item for table in self.templates.values() for item in table}
        return OwnerPods(known, self._made, self.defaults)

    def _history(self, during: str, now: datetime) -> MoveHistory:
        moved: dict[tuple[str, str], datetime] = {}
        failed: dict[Relocation, datetime] = {}
        for item in self.intent.recommendations:
            if item.name == during:
                continue
            try:
                self._add_moves(item, now, moved, failed)
            except Exception as error:  # noqa: BLE001 - it concerns this plan alone
                self._faults.take(of_subject(item), error)
                begun = item.status.phase in {PlanPhase.EXECUTING, PlanPhase.SUCCEEDED, PlanPhase.FAILED}
                for move in item.spec.moves if begun else ():  # as if they had just been made
                    if move.owner is not None:
                        moved[move.owner.uid, move.source.node] = now
                        moved[move.owner.uid, move.target.node] = now
        return MoveHistory(moved, failed)

    @staticmethod
    def _add_moves(
        item: Recommendation,
        now: datetime,
        moved: dict[tuple[str, str], datetime],
        failed: dict[Relocation, datetime],
    ) -> None:
        """Add the moves of a plan that were made, or failed."""
        for move, progress in item.moves_with_progress:
            since = parse_time(progress.since)
            rejected = item.spec.rejected and not item.active
            if move.owner is None or (progress.phase == MovePhase.PENDING and not rejected):
                continue
            if rejected or item.status.phase == PlanPhase.FAILED:
                failed[move.owner.uid, move.source.node, move.target.node] = item.ended or now
                continue
            if since is None or progress.phase not in GONE:
                continue
            for node in {move.source.node, progress.node or move.target.node}:
                key = (move.owner.uid, node)
                moved[key] = max(since, moved.get(key, since))

    def _emptied(self, policy: str) -> dict[str, FreedNode]:
        """Return where plans of other policies have made room that those policies still want."""
        found: dict[str, FreedNode] = {}
        others = (
            item for item in self.intent.policies if item.name != policy and not item.spec.schedule.suspend
        )
        goals = {item.name: (item, found) for item, found in self._faults.over(others, lambda one: one.goals)}

        def emptied(item: Recommendation) -> Mapping[str, datetime]:
            other, wanted = goals.get(item.spec.policy, (None, frozenset()))
            if other is None or item.status.phase == PlanPhase.FAILED:
                return {}
            return emptied_nodes(item) if _is_wanted(item, other, wanted) else {}

        for item, nodes in self._faults.over(self.intent.recommendations, emptied):
            for node, when in nodes.items():
                if node not in found or found[node].when < when:
                    found[node] = FreedNode(item.spec.policy, when)
        return found


def _of_class(item: Defaulting) -> dict[str, str]:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "name": item.key, "uid": ""}


def _is_wanted(item: Recommendation, policy: PolicyObject, goals: Collection[str]) -> bool:
    """Return whether the policy still has the goal of a plan."""
    return policy.spec.goals.pending_pods if item.spec.placements else item.spec.goal_key in goals
