"""The extender's rights: exactly those that it uses, found by running it as its manifest does."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from checks.clusters.operator.closed_loop import closed_loop
from checks.clusters.operator.rights import granted_rights, note_rights
from numazones_client.resources import PODS
from numazones_operator.prevention.extender.rejected_pods import TRY_AGAIN
from numazones_simulator import node_kinds
from tests.places import ROOT
from tests.waiting import eventually


async def test_the_manifests_grant_exactly_what_the_extender_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = note_rights(monkeypatch)
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("a", "10.0.0.1")])
        operator = await loop.start_operator(
            leads=False, lead=False, extender_address="127.0.0.1:0", placement="shapes"
        )
        url = f"http://127.0.0.1:{operator.extender_port}"
        bodies = {name: await loop.create_pod(name, cpu=cpu) for name, cpu in (("big", 20), ("other", 20))}
        uids = {name: body["metadata"]["uid"] for name, body in bodies.items()}
        async with aiohttp.ClientSession() as session:

            async def ask(verb: str, body: dict[str, Any]) -> Any:
                async with session.post(f"{url}/{verb}", json=body) as answer:
                    return await answer.json()

            async def bind(name: str, uid: str) -> str:
                body = {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": "a"}
                return str((await ask("bind", body))["Error"])

            # A pod that the mirror does not know is looked up.
            assert "is gone" in await bind("nobody", "uid-of-nobody")
            for name in ("big", "other"):
                assert await bind(name, uids[name]) == ""
            late = await loop.create_pod("late", cpu=20)
            assert (await ask("filter", {"Pod": late, "NodeNames": ["a"]}))["NodeNames"] == []
            await loop.client.delete(PODS, "big", namespace="default", grace_seconds=0)

            async def woken() -> bool:
                pod = await loop.client.get(PODS, "late", namespace="default")
                return TRY_AGAIN in (pod["metadata"].get("annotations") or {})

            await eventually(woken)
    leases_of_the_scheduler = {
        ("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update")
    }
    # Kinds whose definitions are not installed are listed now and then, and watched once they are there.
    used |= {(group, resource, "watch") for group, resource, verb in used if verb == "list"}
    assert granted_rights("scheduler") - leases_of_the_scheduler == used


def test_the_two_programs_in_the_pod_are_of_one_account() -> None:
    documents = list(yaml.safe_load_all((ROOT / "manifests" / "scheduler" / "rbac.yaml").read_text()))
    bindings = [item for item in documents if item["kind"].endswith("Binding")]
    assert {(one["name"], one["namespace"]) for item in bindings for one in item["subjects"]} == {
        ("numazones-scheduler", "numazones-operator")
    }
    assert {
        "system:kube-scheduler",
        "system:volume-scheduler",
        "extension-apiserver-authentication-reader",
    } <= {item["roleRef"]["name"] for item in bindings}
