"""A plan that is being carried out, on a mirror that tests feed by hand.

Node n1 has 10 CPUs free on each NUMA node, n2 has 20 free on one. The plan moves a pod of 20 CPUs, the mover,
from n1 to n2, after which a pod of 30 fits on n1.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from numazones.api.meta import NODE_LABEL
from numazones.cluster.admission_gate import GATE, OPT_IN
from numazones.cluster.cluster import ClusterPod
from numazones.kubelet.admission import admit
from numazones.rebalance.custom_resources import policy_of
from numazones.rebalance.policy import Policy
from numazones.rebalance.recommendation import Recommendation
from numazones_client import APIError, Conflict, Resource
from numazones_client.errors import Request
from numazones_client.resources import (
    NODES,
    NUMAZONES,
    PODS,
    REBALANCE_POLICIES,
    REBALANCE_RECOMMENDATIONS,
    REPLICA_SETS,
)
from numazones_operator.faults import ObjectFaults
from numazones_operator.mirror.decoding import NamespaceLabels
from numazones_operator.rebalance.executor import Executor
from numazones_operator.rebalance.inputs import Inputs, OwnerTemplate
from numazones_operator.rebalance.intent import Intent
from numazones_operator.rebalance.metrics import RebalanceMetrics
from numazones_operator.rebalance.objects import PolicyObject
from numazones_operator.rebalance.proposer import Proposer
from numazones_operator.rebalance.readiness import Readiness
from numazones_operator.rebalance.rebalancing import Rebalancing
from numazones_operator.rebalance.statuses import Statuses, StatusUpdate
from numazones_operator.rebalance.steps import PlanCheck, Steps
from numazones_simulator import node_kinds
from tests.operator.offline_pipeline import OfflinePipeline
from tests.operator.pods import pod_body

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
AT_NOON = "2026-01-31T12:00:00Z"
PATIENCE = timedelta(minutes=5)
LARGE = {"name": "large", "resources": {"cpu": "30", "memory": "1Gi"}, "count": 1}
CPUS = {"fill-2": 10, "fill-3": 30, "fill-4": 16, "fill-5": 15, "stuck": 25}
"""Name → CPUs of the pods that ask for others than 20."""
RUNS: dict[str, Any] = {"phase": "Running", "containerStatuses": [{"name": "main"}]}


class Server:
    """Stands in for the client: has objects, takes evictions and statuses."""

    def __init__(self) -> None:
        self.objects: dict[Resource, dict[str, dict[str, Any]]] = {}
        self.evictions: list[tuple[str, str, str]] = []
        self.rejection: APIError | None = None
        """Why evictions are rejected."""
        self.answering: Callable[[], object] = lambda: None
        """What happens while an eviction is answered."""
        self.conflicts = False
        """Whether what is to be written has changed meanwhile."""

    def put(self, resource: Resource, body: dict[str, Any]) -> None:
        self.objects.setdefault(resource, {})[body["metadata"]["name"]] = body

    async def list(
        self, resource: Resource, *, field_selector: str = "", label_selector: str = ""
    ) -> list[dict[str, Any]]:
        field, _, value = field_selector.partition("=")
        label, _, text = label_selector.partition("=")
        return [
            body
            for body in self.objects.get(resource, {}).values()
            if _at(body, field) == value and (body["metadata"].get("labels") or {}).get(label, "") == text
        ]

    async def create(self, resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
        prefix = body["metadata"].pop("generateName")
        name = f"{prefix}{len(self.objects.get(resource, {})) + 1}"
        metadata = {"uid": f"r-{name}", "resourceVersion": "1", "creationTimestamp": AT_NOON}
        created = deepcopy(body)
        created["metadata"] |= {"name": name, **metadata}
        self.put(resource, created)
        return created

    async def evict(self, name: str, *, namespace: str, uid: str) -> None:
        self.evictions.append((namespace, name, uid))
        if self.rejection is not None:
            raise self.rejection
        self.answering()

    async def patch(
        self, resource: Resource, name: str, patch: Mapping[str, Any], *, subresource: str = ""
    ) -> dict[str, Any]:
        part = subresource or "spec"
        if self.conflicts:
            raise Conflict(Request("patch", name), "the object has been modified", code=409)
        body = deepcopy(self.objects[resource][name])
        merged = {**body.get(part, {}), **patch[part]}
        body[part] = {key: value for key, value in merged.items() if value is not None}
        body["metadata"]["resourceVersion"] = str(int(body["metadata"]["resourceVersion"]) + 1)
        self.put(resource, body)
        return body


class Events:
    """Stands in for the poster of events, and keeps them."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, str, str]] = []
        """Names of the pods, reasons and messages."""

    def post(self, about: Mapping[str, str], *, type: str, reason: str, message: str) -> None:  # noqa: A002
        assert type == "Normal"
        self.posted.append((about["name"], reason, message))


def _at(body: Mapping[str, Any], path: str) -> Any:
    for name in filter(None, path.split(".")):
        body = body.get(name) or {}
    return body if path else ""


class Execution:
    """The cluster, the plan, and who carries it out."""

    def __init__(
        self,
        *,
        gated: bool = True,
        gates: bool = True,
        opted_in: bool = True,
        faults: ObjectFaults | None = None,
    ) -> None:
        """``gated``: whether the owner makes pods with a gate; ``gates``: whether the operator opens them."""
        self.faults = faults or ObjectFaults()
        self.offline = OfflinePipeline(faults=self.faults)
        self.state = self.offline.state
        self.server = Server()
        client: Any = self.server
        self.client = client
        self.intent = Intent(client, faults=self.faults)
        self.inputs = Inputs(self.intent, faults=self.faults)
        self.leads = True
        self.steps = Steps(
            client, self.state, self.inputs, gates=gates, patience=PATIENCE, leads=lambda: self.leads
        )
        self.metrics = RebalanceMetrics(CollectorRegistry())
        self.events = Events()
        poster: Any = self.events
        self.statuses = Statuses(
            client, self.intent, events=poster, metrics=self.metrics, wall=NOON.timestamp
        )
        self.searched_early: list[str] = []
        self.executor = Executor(
            self.intent,
            self.steps,
            self.statuses,
            metrics=self.metrics,
            search_early=self.searched_early.append,
        )
        self.node("n1", "fill-0", "mover")
        self.node("n2", "fill-2", "fill-3")
        labels = {OPT_IN[0]: OPT_IN[1]} if opted_in else {}
        self.intent.namespaces.put(NamespaceLabels("default", labels))
        self.owner("mover", gated=gated)
        self.policy()
        self.plan("Pending")

    def rebalancing(self) -> Rebalancing:
        """Return the loop that looks for plans and executes them."""
        proposer = Proposer(
            self.client,
            self.state,
            self.offline.pipeline.forecasts,
            self.inputs,
            self.steps,
            statuses=self.statuses,
            metrics=self.metrics,
        )
        self.executor.search_early = proposer.search_early
        return Rebalancing(
            self.intent,
            Readiness(self.client, self.inputs, faults=self.faults),
            proposer,
            self.executor,
            statuses=self.statuses,
            metrics=self.metrics,
            faults=self.faults,
        )

    def node(self, node: str, *names: str, cpu: int | None = None) -> None:
        """Let there be a node on which pods run; ``cpu``: of each of them."""
        self.offline.add_node(node)
        self.server.put(NODES, {"metadata": {"name": node}})
        for name in names:
            self.pod(name, node=node, cpu=cpu, **RUNS)
        self.zones(node, *names, cpu=cpu)

    def lose(self, node: str) -> None:
        """Let a node be gone, with its zones."""
        self.state.nodes.discard(node)
        for name in [one.name for one in self.state.zones if one.node == node]:
            self.state.zones.discard(name)

    def pod(self, name: str, **parts: Any) -> ClusterPod:
        """Let API server and mirror have a pod (``pod_manifest``)."""
        return self.put(pod_manifest(name, **parts))

    def put(self, body: dict[str, Any]) -> ClusterPod:
        """Let API server and mirror have a pod."""
        self.server.put(PODS, body)
        pod = ClusterPod.from_api(body)
        self.state.pods.put(pod)
        return pod

    def gone(self, name: str) -> None:
        """Let API server and mirror have a pod no more."""
        del self.server.objects[PODS][name]
        self.state.pods.discard(f"uid-{name}")

    def zones(self, node: str, *names: str, cpu: int | None = None) -> None:
        """Publish zones that show pods as what they were given when they came."""
        held = node_kinds.single_numa_node(node, "10.0.0.1").empty_node()
        for name in names:
            wanted = ClusterPod.from_api(pod_manifest(name, cpu=cpu)).admission
            assert wanted is not None
            held = admit(held, wanted).node
        for body in self.offline.publish(node, held):
            body["metadata"].setdefault("labels", {})[NODE_LABEL] = node
            self.server.put(NUMAZONES, body)

    def owner(self, name: str, *, gated: bool) -> None:
        """Let a ReplicaSet be the owner of the pods that are named after it."""
        spec = pod_manifest(name)["spec"]
        spec["schedulingGates"] = [{"name": GATE}] if gated else []
        metadata = {"namespace": "default", "name": name, "uid": f"rs-{name}"}
        self.inputs.templates[REPLICA_SETS].put(
            OwnerTemplate.from_api({"metadata": metadata, "spec": {"template": {"spec": spec}}})
        )

    def policy(self, **spec: Any) -> None:
        """Let people want something."""
        self.put_policy(policy_manifest(**spec))

    def put_policy(self, body: dict[str, Any]) -> None:
        """Let API server and mirror have a policy."""
        self.server.put(REBALANCE_POLICIES, body)
        self.intent.policies.put(PolicyObject.from_api(body))

    @property
    def wanted(self) -> PolicyObject:
        """The policy as it is now."""
        found = self.intent.policies.get("p")
        assert found is not None
        return found

    @property
    def settings(self) -> Policy:
        """Return what the policy asks for."""
        return policy_of(self.wanted.spec, {})

    def plan(self, *progress: str | dict[str, Any], **spec: Any) -> Recommendation:
        """Let the plan's moves be in these phases; the last is that of the mover."""
        earlier = [move(f"earlier-{number}", "n2", "n1") for number in range(len(progress) - 1)]
        moves = [*earlier, move("mover")]
        known = [{"phase": one} if isinstance(one, str) else one for one in progress]
        since = [{} if one["phase"] == "Pending" else {"since": AT_NOON} for one in known]
        told = [
            {"pod": one["pod"], **when, **what} for one, when, what in zip(moves, since, known, strict=True)
        ]
        return self.recommend({"moves": moves, **spec}, {"progress": told})

    def recommend(self, spec: dict[str, Any], status: dict[str, Any], *, name: str = "p-1") -> Recommendation:
        """Let there be a recommendation."""
        body = {
            "metadata": {"name": name, "uid": f"r-{name}", "resourceVersion": "7"},
            "spec": {
                "policy": "p",
                "goal": "shape large x1",
                "goalKey": "shape/large",
                "gain": {"before": 0, "after": 1, "total": 1, "minimal": True},
                "disruption": {"evictions": len(spec["moves"]), "cpus": "20"},
                "digest": "d",
                "expires": "2026-01-31T12:15:00Z",
                **spec,
            },
            "status": {"phase": "Executing", "mode": "Auto", **status},
        }
        self.server.put(REBALANCE_RECOMMENDATIONS, body)
        item = Recommendation.from_api(body)
        self.intent.recommendations.put(item)
        return item

    @property
    def item(self) -> Recommendation:
        """The plan as it is now."""
        found = self.intent.recommendations.get("p-1")
        assert found is not None
        return found

    async def step(self, now: datetime = NOON) -> StatusUpdate | None:
        """Take the next step."""
        return await self.steps.step(self.item, self.wanted, self.settings, now)

    async def judge(self, now: datetime = NOON) -> PlanCheck:
        """Say whether the plan holds."""
        return await self.steps.judge(self.item, self.wanted, self.settings, now)

    def evicted(self) -> list[str]:
        """Names of the pods whose eviction was asked for."""
        return [name for _, name, _ in self.server.evictions]


def move(name: str, source: str = "n1", target: str = "n2") -> dict[str, Any]:
    """A move of a pod to a node that its replacement must be confined to."""
    return {
        "pod": {"namespace": "default", "name": name, "uid": f"uid-{name}"},
        "owner": {"kind": "ReplicaSet", "name": name, "uid": f"rs-{name}"},
        "source": {"node": source, "numaIDs": [1]},
        "target": {"node": target, "numaIDs": [0]},
        "affinity": [target],
    }


def placement(name: str, node: str) -> dict[str, Any]:
    """Return a plan's entry for a waiting pod."""
    return {
        "pod": {"namespace": "default", "name": name, "uid": f"uid-{name}"},
        "target": {"node": node, "numaIDs": [1]},
    }


def policy_manifest(*, name: str = "p", **spec: Any) -> dict[str, Any]:
    """A policy that keeps room for a large pod."""
    return {
        "metadata": {
            "name": name,
            "uid": "u" if name == "p" else f"u-{name}",
            "resourceVersion": "1",
            "generation": 1,
        },
        "spec": {
            "mode": "Auto",
            "goals": {"shapes": [LARGE]},
            "limits": {"evictSingleReplicas": True},
            **spec,
        },
    }


def pod_manifest(
    name: str,
    *,
    cpu: int | None = None,
    node: str = "",
    owner: str = "",
    created: str = AT_NOON,
    deleting: bool = False,
    gated: bool = False,
    **status: Any,
) -> dict[str, Any]:
    """A pod, by default the one pod of an owner that has its name."""
    gates: dict[str, Any] = {"schedulingGates": [{"name": GATE}]} if gated else {}
    body = pod_body(
        name, cpu=cpu or CPUS.get(name, 20), nodeName=node, labels={"app": owner or name}, **gates
    )
    kind = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner or name}
    body["metadata"] |= {
        "uid": f"uid-{name}",
        "creationTimestamp": created,
        "ownerReferences": [{**kind, "uid": f"rs-{owner or name}", "controller": True}],
    }
    if deleting:
        body["metadata"]["deletionTimestamp"] = AT_NOON
    return body | {"status": status or {"phase": "Pending"}}
