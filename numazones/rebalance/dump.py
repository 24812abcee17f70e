"""Reads a dump as the situation in which plans are made.

Besides nodes, zones and pods it should hold what the rules look at: PodDisruptionBudgets, ReplicaSets,
StatefulSets, Jobs, Namespaces, PersistentVolumeClaims.
"""

from datetime import datetime
from itertools import chain

from numazones.apimachinery.defaulting import Defaults
from numazones.cluster.cluster import Cluster
from numazones.cluster.dump import Dump, read_nodes
from numazones.rebalance.budgets import Budget, BudgetHeadroom
from numazones.rebalance.candidates import Situation
from numazones.rebalance.filter import EvictionContext
from numazones.rebalance.moves import pod_from_template


def situation_of(dump: Dump, now: datetime) -> Situation:
    """Return the situation that a dump shows.

    Raises:
        InvalidDump: there are no nodes.
        NumazonesError: an object cannot be read.
    """
    defaults = Defaults.of(chain.from_iterable(dump.others.values()))
    templates = {
        body["metadata"]["uid"]: pod_from_template(body, defaults)
        for kind in ("ReplicaSet", "StatefulSet", "Job")
        for body in dump.of_kind(kind)
    }
    context = EvictionContext(
        now=now,
        replicas=EvictionContext.count_replicas(pod for pod in dump.pods if not pod.terminal),
        headroom=BudgetHeadroom.of(map(Budget.from_api, dump.of_kind("PodDisruptionBudget"))),
        storage_classes={
            (claim["metadata"]["namespace"], claim["metadata"]["name"]): claim["spec"].get(
                "storageClassName", ""
            )
            for claim in dump.of_kind("PersistentVolumeClaim")
        },
        namespace_labels={
            namespace["metadata"]["name"]: namespace["metadata"].get("labels") or {}
            for namespace in dump.of_kind("Namespace")
        },
    )
    nodes = read_nodes(dump, lambda: dump.pods)
    return Situation(Cluster.of(nodes, dump.pods), context, templates)
