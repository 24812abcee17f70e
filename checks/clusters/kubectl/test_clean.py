"""``clean --rejected``: the program lists rejected pods, and deletes those that were replaced."""

import json
from pathlib import Path
from typing import Any

from numazones_apiserver.errors import StatusError
from numazones_apiserver.faults import Fault
from numazones_client import Client
from numazones_client.resources import NAMESPACES, PODS, REPLICA_SETS
from numazones_simulator.control_plane import control_plane
from tests import plugin
from tests.operator.pods import pod_body


async def replica_set(client: Client, namespace: str, replicas: int) -> str:
    body = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "web"}]},
            },
        },
    }
    created = await client.create(REPLICA_SETS, body, namespace=namespace)
    uid: str = created["metadata"]["uid"]
    return uid


async def pod(client: Client, name: str, namespace: str, owner: str, **status: Any) -> None:
    body = pod_body(name, namespace=namespace, nodeName="n")
    reference = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": owner,
        "controller": True,
    }
    body["metadata"]["ownerReferences"] = [reference]
    await client.create(PODS, body, namespace=namespace)
    await client.patch(PODS, name, {"status": status}, namespace=namespace, subresource="status")


async def test_replaced_pods_are_deleted_and_no_others(tmp_path: Path) -> None:
    rejected = {"phase": "Failed", "reason": "TopologyAffinityError", "message": "Pod was rejected: no"}
    async with control_plane(tmp_path) as plane:
        client = plane.client
        for namespace, replicas in (("full", 1), ("short", 2), ("barred", 1)):
            await client.create(
                NAMESPACES,
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
            )
            owner = await replica_set(client, namespace, replicas)
            for name in ("bad-1", "bad-2"):
                await pod(client, name, namespace, owner, **rejected)
            await pod(client, "good", namespace, owner, phase="Running")
        plane.server.faults.add(
            Fault(
                verb="delete",
                resource="pods",
                namespace="barred",
                count=None,
                error=StatusError(403, "Forbidden", "no"),
            )
        )

        async def clean(*arguments: str) -> tuple[int, str]:
            return await plugin.run("clean", "--rejected", *arguments, "--kubeconfig", plane.kubeconfig)

        code, output = await clean("-A", "-o", "json")
        listed = {f"{one['namespace']}/{one['name']}": one["replaced"] for one in json.loads(output)["items"]}
        assert (code, len(listed)) == (0, 6)
        assert {name for name, replaced in listed.items() if not replaced} == {"short/bad-1", "short/bad-2"}
        assert len(await client.list(PODS)) == 9

        code, output = await clean("-A", "--yes")
        left = {
            f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in await client.list(PODS)
        }
        assert "deleted 2 pods" in output
        assert "error: barred/bad-1 was not deleted: you may not delete pods in namespace barred" in output
        assert code == 1
        assert {name for name in left if name.startswith("full/")} == {"full/good"}
        assert len(left) == 7
