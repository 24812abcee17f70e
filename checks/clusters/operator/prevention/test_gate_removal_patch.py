"""The patch that releases a pod: what it changes, and that Kubernetes takes it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from numazones.cluster.admission_gate import GATE, RELEASED
from numazones_apiserver import ApiServer, InProcess
from numazones_client import APIError, Client, Conflict
from numazones_client.client import STRATEGIC_MERGE_PATCH
from numazones_client.resources import PODS
from numazones_operator.prevention.gate_removal_patch import TargetNode, gate_removal_patch
from tests.operator.pods import pod_body

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
A, B = TargetNode("a", "host-a"), TargetNode("b", "host-b")
NAMELESS = TargetNode("n", None)
OURS, OTHER = {"name": GATE}, {"name": "example.com/wait"}


def is_named(name: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": [name]}


HOSTS = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["host-a", "host-b"]}
ZONE = {"key": "zone", "operator": "Exists"}
SSD = {"key": "disk", "operator": "In", "values": ["ssd"]}
BEST_IS_A = [{"weight": 100, "preference": {"matchFields": [is_named("a")]}}]
OWN = [{"weight": 1, "preference": {"matchExpressions": [ZONE]}}]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ApiServer(host=None) as server, Client(transport=InProcess(server)) as client:
        yield client


async def released(
    client: Client,
    *targets: TargetNode,
    gates: tuple[dict[str, str], ...] = (OURS,),
    only: bool = True,
    **affinity: Any,
) -> dict[str, Any]:
    """Create a pod, release it, and return what the server made of it."""
    body = pod_body("p", schedulingGates=list(gates))
    body["spec"] |= {"affinity": affinity} if affinity else {}
    uid = (await client.create(PODS, body, namespace="default"))["metadata"]["uid"]
    patch = gate_removal_patch(uid, targets, affinity=affinity.get("nodeAffinity"), only=only, now="now")
    return await client.patch(PODS, "p", patch, namespace="default", media_type=STRATEGIC_MERGE_PATCH)


@pytest.mark.parametrize(
    ("own", "targets", "terms"),
    [
        (None, [A], [{"matchFields": [is_named("a")]}]),
        (None, [A, B], [{"matchFields": [is_named("a")]}, {"matchFields": [is_named("b")]}]),
        (None, [NAMELESS], [{"matchFields": [is_named("n")]}]),
        # Of a term's requirements all must hold, so it can name one node.
        ([{"matchExpressions": [ZONE]}], [A], [{"matchExpressions": [ZONE], "matchFields": [is_named("a")]}]),
        (
            [{"matchFields": [is_named("a")]}],
            [A],
            [{"matchFields": [is_named("a"), is_named("a")]}],
        ),
        ([{"matchExpressions": [ZONE]}], [A, B], [{"matchExpressions": [ZONE, HOSTS]}]),
        # Without the label only the name is left, and only the best node can be named.
        (
            [{"matchExpressions": [ZONE]}],
            [NAMELESS, A],
            [{"matchExpressions": [ZONE], "matchFields": [is_named("n")]}],
        ),
        (
            [{"matchExpressions": [ZONE]}, {}, {"matchExpressions": [SSD]}],
            [A],
            [
                {"matchExpressions": [ZONE], "matchFields": [is_named("a")]},
                {},
                {"matchExpressions": [SSD], "matchFields": [is_named("a")]},
            ],
        ),
    ],
)
async def test_kubernetes_takes_the_limits_to_nodes(
    client: Client, own: Any, targets: list[TargetNode], terms: Any
) -> None:
    affinity: Any = {} if own is None else {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": own}}}
    pod = await released(client, *targets, **affinity)
    assert pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == terms
    assert not pod["spec"].get("schedulingGates")
    assert pod["metadata"]["annotations"] == {RELEASED: "now"}


async def test_of_several_nodes_the_best_is_preferred(client: Client) -> None:
    """So that the scheduler, which spreads pods, does not scatter what was to be kept together."""
    pod = await released(client, A, B)
    assert pod["spec"]["affinity"]["nodeAffinity"][PREFERRED] == BEST_IS_A


async def test_optional_nodes_are_preferred_by_rank(client: Client) -> None:
    pod = await released(client, A, B, only=False)
    assert pod["spec"]["affinity"]["nodeAffinity"] == {
        PREFERRED: [
            {"weight": 100, "preference": {"matchFields": [is_named("a")]}},
            {"weight": 50, "preference": {"matchFields": [is_named("b")]}},
        ]
    }


@pytest.mark.parametrize(
    "own", [{PREFERRED: OWN}, {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}]}}]
)
async def test_then_what_the_pod_itself_prefers_or_requires_stays(
    client: Client, own: dict[str, Any]
) -> None:
    pod = await released(client, A, only=False, nodeAffinity=own)
    after = pod["spec"]["affinity"]["nodeAffinity"]
    assert after == {PREFERRED: BEST_IS_A} | own
    assert not pod["spec"].get("schedulingGates")


async def test_a_pods_own_preference_and_other_affinity_stay(client: Client) -> None:
    apart = {REQUIRED: [{"labelSelector": {}, "topologyKey": "zone"}]}
    pod = await released(client, A, B, nodeAffinity={PREFERRED: OWN}, podAntiAffinity=apart)
    assert pod["spec"]["affinity"]["nodeAffinity"][PREFERRED] == OWN
    assert pod["spec"]["affinity"]["podAntiAffinity"] == apart


async def test_gates_of_others_stay(client: Client) -> None:
    assert (await released(client, A, gates=(OTHER, OURS)))["spec"]["schedulingGates"] == [OTHER]


async def test_released_to_nowhere_in_particular_a_pod_may_go_anywhere(client: Client) -> None:
    assert "affinity" not in (await released(client))["spec"]


async def test_patch_applies_only_to_the_inspected_pod(client: Client) -> None:
    await client.create(PODS, pod_body("p", schedulingGates=[OURS]), namespace="default")
    patch = gate_removal_patch("of another", [A], now="now")
    with pytest.raises(APIError):
        await client.patch(PODS, "p", patch, namespace="default", media_type=STRATEGIC_MERGE_PATCH)
    assert (await client.get(PODS, "p", namespace="default"))["spec"]["schedulingGates"] == [OURS]


async def test_pod_with_changed_affinity_keeps_its_gate(client: Client) -> None:
    """The patch has lists of affinity in full, and would undo what somebody changed meanwhile."""
    body = pod_body("p", schedulingGates=[OURS])
    body["spec"]["affinity"] = {"nodeAffinity": {PREFERRED: OWN}}
    read = (await client.create(PODS, body, namespace="default"))["metadata"]
    changed = {"spec": {"affinity": {"nodeAffinity": {PREFERRED: BEST_IS_A}}}}
    await client.patch(PODS, "p", changed, namespace="default")
    patch = gate_removal_patch(
        read["uid"], [A], affinity={PREFERRED: OWN}, version=read["resourceVersion"], now="now"
    )
    with pytest.raises(Conflict):
        await client.patch(PODS, "p", patch, namespace="default", media_type=STRATEGIC_MERGE_PATCH)
    pod = await client.get(PODS, "p", namespace="default")
    assert pod["spec"]["schedulingGates"] == [OURS]
    assert pod["spec"]["affinity"]["nodeAffinity"][PREFERRED] == BEST_IS_A
