"""Turns each Deployment into a ReplicaSet, so that what people usually create runs in a simulated cluster.

The latest template gets a ReplicaSet of its own, named after a hash of it; earlier ones are scaled to zero at
once. Rolling updates, pauses and rollbacks are left out: here a Deployment is a way to keep pods running.
"""

import hashlib
import json
from typing import Any

from numazones_client import AlreadyExists, Client
from numazones_client.resources import DEPLOYMENTS, REPLICA_SETS
from numazones_simulator.controlling import Controller, reference
from numazones_simulator.mirror import Body

HASH_LABEL = "pod-template-hash"
_PAUSE = 0.2


class Deployments(Controller):
    """The controller; run ``run`` as a task."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, DEPLOYMENTS, REPLICA_SETS, pause=_PAUSE)

    async def _reconcile(self, owner: Body, owned: list[Body]) -> None:
        namespace, wanted = owner["metadata"]["namespace"], replica_set(owner)
        name, replicas = wanted["metadata"]["name"], wanted["spec"]["replicas"]
        own = {item["metadata"]["name"]: item for item in owned}
        if name not in own:
            try:
                await self._client.create(REPLICA_SETS, wanted, namespace=namespace)
            except AlreadyExists:
                return  # the watch has yet to tell
        for other, item in own.items():
            goal = replicas if other == name else 0
            if item["spec"].get("replicas") != goal:
                await self._client.patch(
                    REPLICA_SETS, other, {"spec": {"replicas": goal}}, namespace=namespace
                )
        counted = own.get(name, wanted).get("status") or {}
        status = {name: counted.get(name, 0) for name in ("replicas", "readyReplicas", "availableReplicas")}
        await self._report(owner, {**status, "updatedReplicas": status["replicas"]})


def replica_set(deployment: Body) -> dict[str, Any]:
    """The ReplicaSet of a Deployment's current template."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    template = spec["template"]
    digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]
    inner = template.get("metadata") or {}
    labels = {**(inner.get("labels") or {}), HASH_LABEL: digest}
    selector = spec.get("selector") or {}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{metadata['name']}-{digest}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [reference("Deployment", deployment)],
        },
        "spec": {
            "replicas": spec.get("replicas", 1),
            "selector": {
                **selector,
                "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: digest},
            },
            "template": {**template, "metadata": {**inner, "labels": labels}},
        },
    }
