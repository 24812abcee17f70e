"""A dump as the situation in which plans are made.

Besides nodes, zones and pods it is to hold what the rules ask about: PodDisruptionBudgets, ReplicaSets,
StatefulSets, Jobs, Namespaces, PersistentVolumeClaims.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from numazones.cluster import Cluster
from numazones.defaulting import Defaults
from numazones.dump import by_kind, read_nodes
from numazones.rebalance.budgets import Budget, Headroom
from numazones.rebalance.candidates import Situation
from numazones.rebalance.filter import Surroundings
from numazones.rebalance.templates import pod_from_template
from numazones.sharing import Sharing


def situation_of(items: Iterable[Mapping[str, Any]], now: datetime) -> Situation:
    """Read a dump.

    Raises:
        InvalidDump: it holds no nodes.
        NumazonesError: an object cannot be read.
    """
    kinds = by_kind(items)
    defaults = Defaults.of(item for found in kinds.values() for item in found)
    sharing = Sharing()
    pods = [sharing.pod(body) for body in kinds.get("Pod", ())]
    templates = {
        body["metadata"]["uid"]: pod_from_template(body, defaults)
        for kind in ("ReplicaSet", "StatefulSet", "Job")
        for body in kinds.get(kind, ())
    }
    surroundings = Surroundings(
        now=now,
        replicas=Surroundings.count_replicas(pod for pod in pods if not pod.terminal),
        headroom=Headroom.of(map(Budget.from_api, kinds.get("PodDisruptionBudget", ()))),
        storage_classes={
            (claim["metadata"]["namespace"], claim["metadata"]["name"]): claim["spec"].get(
                "storageClassName", ""
            )
            for claim in kinds.get("PersistentVolumeClaim", ())
        },
        namespace_labels={
            namespace["metadata"]["name"]: namespace["metadata"].get("labels") or {}
            for namespace in kinds.get("Namespace", ())
        },
    )
    nodes = read_nodes(kinds, lambda: pods, sharing)
    return Situation(Cluster.of(nodes, pods), surroundings, templates)
