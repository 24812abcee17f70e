"""``approve`` and ``reject``: the program, on an API server, with plans in every state and people's slips."""

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubectl_numazones.main import commands
from numazones.cluster.admission_gate import GATE
from numazones_apiserver.errors import StatusError
from numazones_apiserver.faults import Fault
from numazones_client import Client
from numazones_client.resources import NAMESPACES, PODS, REBALANCE_POLICIES, REBALANCE_RECOMMENDATIONS
from numazones_simulator.control_plane import ControlPlane, control_plane
from tests import plugin
from tests.kubectl.live_doctor import serving
from tests.kubectl.terminal import on_terminal
from tests.operator.pods import pod_body
from tests.waiting import eventually

NOTHING = b":4\n"
"""What kubectl is told where there is nothing to offer."""
MAY_NOT = (
    "you may not patch rebalancerecommendations (kubectl auth can-i patch "
    "rebalancerecommendations.numazones.io); the ClusterRole numazones-edit (manifests/roles) grants it, and "
    "so do edit and admin if they are bound for the whole cluster"
)
NONE = "there are none: no RebalancePolicy has found a plan that helps"
LATER, BEFORE = "2999-01-01T00:00:00Z", "2020-01-01T00:00:00Z"


def recommendation(name: str, **spec: Any) -> dict[str, Any]:
    """One move that makes room for team/trainer."""
    place = {"node": "worker-1", "numaIDs": [0]}
    return {
        "apiVersion": "numazones.io/v1alpha1",
        "kind": "RebalanceRecommendation",
        "metadata": {"name": name},
        "spec": {
            "policy": "keep-room",
            "goal": "pod team/trainer",
            "moves": [
                {
                    "pod": {"namespace": "team", "name": "web-1", "uid": "u1"},
                    "source": place,
                    "target": {"node": "worker-2", "numaIDs": [1]},
                    "why": "free CPUs on one NUMA node of worker-1 grow from 4 to 7",
                }
            ],
            "gain": {"before": 0, "after": 1, "total": 1},
            "disruption": {"evictions": 1, "cpus": "3"},
            "digest": name,
            "expires": LATER,
            **spec,
        },
    }


class Cluster:
    """A cluster with plans, and the program."""

    def __init__(self, plane: ControlPlane) -> None:
        self.client: Client = plane.client
        self.kubeconfig = plane.kubeconfig
        self.server = plane.server

    async def policy(self, mode: str = "Approve") -> None:
        body = {
            "apiVersion": "numazones.io/v1alpha1",
            "kind": "RebalancePolicy",
            "metadata": {"name": "keep-room"},
            "spec": {"mode": mode},
        }
        await self.client.create(REBALANCE_POLICIES, body)

    async def plan(
        self, name: str = "keep-room-1", *, phase: str = "", message: str = "", **spec: Any
    ) -> None:
        await self.client.create(REBALANCE_RECOMMENDATIONS, recommendation(name, **spec))
        if phase:
            status = {"status": {"phase": phase, "message": message}}
            await self.client.patch(REBALANCE_RECOMMENDATIONS, name, status, subresource="status")

    async def spec(self, name: str = "keep-room-1") -> dict[str, Any]:
        body = await self.client.get(REBALANCE_RECOMMENDATIONS, name)
        return dict(body["spec"])

    async def run(self, *arguments: str) -> tuple[int, str]:
        return await plugin.run(*arguments, "--kubeconfig", self.kubeconfig)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with control_plane(tmp_path) as plane:
        yield Cluster(plane)


async def test_an_approval_shows_the_plan_and_is_written(cluster: Cluster) -> None:
    await cluster.policy()
    await cluster.plan(phase="Proposed", message="proven by simulation")
    code, said = await cluster.run("approve", "rbr/keep-room-1", "--yes")
    assert said == (
        "keep-room-1: pod team/trainer: does not fit now; fits after 1 eviction\n"
        "POD          FROM         TO           WHY\n"
        "team/web-1   worker-1 0   worker-2 1   free CPUs on one NUMA node of worker-1 grow from 4 to 7\n"
        "keep-room-1 is approved: it is checked again, then executed one eviction at a time\n"
    )
    assert code == 0
    assert (await cluster.spec())["approved"] is True


async def test_what_is_approved_already_stays_so(cluster: Cluster) -> None:
    await cluster.policy()
    await cluster.plan(phase="Executing", message="the first move comes next", approved=True)
    assert await cluster.run("approve", "keep-room-1", "--yes") == (
        0,
        "keep-room-1 is approved already: Executing (the first move comes next)\n",
    )


@pytest.mark.parametrize("prefix", ["", "rbr/", "rebalancerecommendation.numazones.io/"])
async def test_a_plan_is_named_as_kubectl_prints_names(cluster: Cluster, prefix: str) -> None:
    await cluster.policy()
    await cluster.plan()
    code, said = await cluster.run("approve", f"{prefix}keep-room-1", "--dry-run")
    assert (code, said.splitlines()[-1]) == (0, "keep-room-1 would be approved")


async def test_a_dry_run_decides_nothing(cluster: Cluster) -> None:
    await cluster.policy()
    await cluster.plan()
    code, said = await cluster.run("approve", "keep-room-1", "--dry-run")
    assert (code, said.splitlines()[-1]) == (0, "keep-room-1 would be approved")
    assert not (await cluster.spec()).get("approved")


@pytest.mark.parametrize(
    ("phase", "spec", "said"),
    [
        ("Succeeded", {}, "it is already Succeeded: as told"),
        ("Failed", {"approved": True}, "it is already Failed: as told"),
        ("Expired", {}, "it is already Expired: as told"),
        ("Superseded", {}, "it is already Superseded: as told"),
        ("Rejected", {"rejected": True}, "it is already Rejected: as told"),
        ("Executing", {}, "it is already Executing"),
        ("Proposed", {"rejected": True}, "it was rejected"),
        (
            "Proposed",
            {"expires": BEFORE},
            f"it expired at {BEFORE}; the operator proposes a new plan if one is still needed",
        ),
    ],
)
async def test_an_approval_of_which_nothing_would_come_is_an_error(
    cluster: Cluster, phase: str, spec: dict[str, Any], said: str
) -> None:
    await cluster.policy()
    await cluster.plan(phase=phase, message="as told", **spec)
    assert await cluster.run("approve", "keep-room-1", "--yes") == (
        2,
        f"error: keep-room-1 cannot be approved: {said}\n",
    )
    assert (await cluster.spec()).get("approved", False) is spec.get("approved", False)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("", "policy keep-room does not exist or is invalid, so nothing is executed"),
        (
            "Recommend",
            "policy keep-room is in mode Recommend, which needs no approval; set its spec.mode to Approve",
        ),
        (
            "Auto",
            "policy keep-room is in mode Auto, which needs no approval; set its spec.mode to Approve",
        ),
    ],
)
async def test_a_policy_that_asks_for_no_approval_gets_none(cluster: Cluster, mode: str, said: str) -> None:
    if mode:
        await cluster.policy(mode)
    await cluster.plan(phase="Proposed")
    code, output = await cluster.run("approve", "keep-room-1", "--yes")
    assert (code, output) == (2, f"error: keep-room-1 cannot be approved: {said}\n")


@pytest.mark.parametrize(
    ("phase", "follows"),
    [
        ("", "no pod is evicted for it"),
        ("Approved", "no pod is evicted for it"),
        ("Executing", "no further pod is evicted for it"),
    ],
)
async def test_a_plan_is_rejected_until_it_has_ended(cluster: Cluster, phase: str, follows: str) -> None:
    await cluster.plan(phase=phase)
    code, said = await cluster.run("reject", "keep-room-1", "--yes")
    assert (code, said.splitlines()[-1]) == (0, f"keep-room-1 is rejected: {follows}")
    assert (await cluster.spec())["rejected"] is True
    code, said = await cluster.run("reject", "keep-room-1", "--yes")
    assert (code, said.split(":")[0]) == (0, "keep-room-1 is rejected already")


async def test_what_has_ended_cannot_be_rejected(cluster: Cluster) -> None:
    await cluster.plan(phase="Succeeded", message="the NUMAZones confirm the gain: 1")
    code, said = await cluster.run("reject", "keep-room-1", "--yes")
    assert (code, said) == (
        2,
        "error: keep-room-1 cannot be rejected: it is already Succeeded: the NUMAZones confirm the gain: 1\n",
    )


async def test_of_several_plans_none_is_decided_if_one_cannot_be(cluster: Cluster) -> None:
    await cluster.policy()
    await cluster.plan("a")
    await cluster.plan("b", phase="Failed")
    code, said = await cluster.run("approve", "a", "b", "--yes")
    assert (code, said) == (2, "error: b cannot be approved: it is already Failed\n")
    assert not (await cluster.spec("a")).get("approved")


async def test_an_unknown_name_is_told_which_are_known(cluster: Cluster) -> None:
    code, said = await cluster.run("approve", "x", "--yes")
    assert (code, said) == (
        2,
        f"error: there is no recommendation x; {NONE}\n",
    )
    await cluster.plan("keep-room-9", phase="Failed")
    await cluster.plan("keep-room-b")
    _, said = await cluster.run("approve", "x", "--yes")
    assert said == (
        "error: there is no recommendation x; there are keep-room-b (Proposed), keep-room-9 (Failed)\n"
    )
    _, said = await cluster.run("reject", "kep-room-b", "--yes")
    assert said == "error: there is no recommendation kep-room-b; did you mean keep-room-b?\n"


async def test_who_may_not_decide_is_told_which_right_is_missing(tmp_path: Path) -> None:
    denied = {"rebalancerecommendations"}
    async with serving(tmp_path, denied, [recommendation("plan")]) as kubeconfig:
        ended = await plugin.run("reject", "plan", "--dry-run", "--kubeconfig", kubeconfig)
    assert ended == (2, f"error: {MAY_NOT}\n")


async def test_a_decision_that_the_api_server_refuses_names_the_right(cluster: Cluster) -> None:
    await cluster.plan()
    refused = StatusError(403, "Forbidden", "no")
    cluster.server.faults.add(
        Fault(verb="patch", resource="rebalancerecommendations", count=None, error=refused)
    )
    code, said = await cluster.run("reject", "keep-room-1", "--yes")
    assert (code, said.splitlines()[-1]) == (2, f"error: {MAY_NOT}")


@pytest.mark.parametrize(
    ("answer", "code", "said"), [("y", 0, "is approved"), ("n", 1, "nothing was approved")]
)
async def test_on_a_terminal_it_asks_first(cluster: Cluster, answer: str, code: int, said: str) -> None:
    await cluster.policy()
    await cluster.plan()
    shown = await asyncio.to_thread(
        on_terminal, 100, "approve", "keep-room-1", "--kubeconfig", cluster.kubeconfig, typed=f"{answer}\n"
    )
    assert "Evict 1 pod? [y/N]" in shown
    assert said in shown
    assert (await cluster.spec()).get("approved", False) is (code == 0)


@pytest.mark.parametrize(("end", "code"), [("Succeeded", 0), ("Failed", 1)])
async def test_wait_prints_each_phase_until_the_end(
    cluster: Cluster, end: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubectl_numazones.plans.progress._INTERVAL", 0.05)  # the program is forked from here
    await cluster.policy()
    gated = pod_body("trainer", namespace="team", schedulingGates=[{"name": GATE}])
    await cluster.client.create(NAMESPACES, {"metadata": {"name": "team"}})
    await cluster.client.create(PODS, gated, namespace="team")
    pod = {"namespace": "team", "name": "trainer"}
    await cluster.plan(placements=[{"pod": pod, "target": {"node": "worker-1", "numaIDs": [0]}}])
    waiting = asyncio.create_task(cluster.run("approve", "keep-room-1", "--yes", "--wait"))

    async def approved() -> bool:
        return bool((await cluster.spec()).get("approved"))

    await eventually(approved)
    for phase, message in (("Executing", "move 1 of 1"), (end, "as told")):
        status = {"status": {"phase": phase, "message": message}}
        await cluster.client.patch(REBALANCE_RECOMMENDATIONS, "keep-room-1", status, subresource="status")
        await asyncio.sleep(1.5)
    if end == "Succeeded":
        assert not waiting.done()
        await cluster.client.patch(PODS, "trainer", {"spec": {"schedulingGates": []}}, namespace="team")
        binding = {"metadata": {"name": "trainer"}, "target": {"kind": "Node", "name": "worker-1"}}
        await cluster.client.create(PODS, binding, namespace="team", subresource="binding")
    ended, said = await waiting
    lines = [
        "keep-room-1 is approved: it is checked again, then executed one eviction at a time",
        "keep-room-1: Executing (move 1 of 1)",
        f"keep-room-1: {end} (as told)",
    ]
    if end == "Succeeded":
        lines += [
            "team/trainer: waiting for the operator to remove its gate",
            "team/trainer: scheduled to worker-1",
        ]
    # Whether a look falls between the gate's removal and the binding is chance.
    shown = [line for line in said.splitlines() if line != "team/trainer: waiting for its scheduler"]
    assert shown[-len(lines) :] == lines
    assert ended == code


async def test_wait_ends_in_time_and_names_what_is_wrong(cluster: Cluster) -> None:
    await cluster.policy()
    await cluster.plan(phase="Proposed")
    ended, said = await cluster.run("approve", "keep-room-1", "--yes", "--wait", "--timeout", "100ms")
    assert ended == 1
    assert (
        "timed out after 0s. The operator has not acted on the approval yet: kubectl numazones doctor" in said
    )
    ended, said = await cluster.run("approve", "keep-room-1", "--yes", "--wait", "--timeout", "soon")
    assert (ended, "--timeout" in said) == (2, True)


async def test_interrupted_wait_says_that_the_plan_continues(cluster: Cluster) -> None:
    await cluster.policy()
    await cluster.plan(phase="Executing", approved=True)
    arguments = ("approve", "keep-room-1", "--wait", "--yes", "--kubeconfig", cluster.kubeconfig)
    with plugin.started(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        await asyncio.to_thread(process.stdout.readline)
        await asyncio.to_thread(process.stdout.readline)
        process.send_signal(signal.SIGINT)
        said = (await asyncio.to_thread(process.stderr.read)).decode()
    assert process.returncode == 130
    assert said.strip() == (
        "The operator continues. Watch: kubectl get rebalancerecommendations keep-room-1 -w. "
        "Stop: kubectl numazones reject keep-room-1"
    )


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_without_a_terminal_nothing_is_decided_unasked(verb: str) -> None:
    ended = plugin.ended(verb, "x")
    assert ended.returncode == 2
    assert f"there is no terminal to ask for confirmation; use {verb} --yes" in ended.stderr


@pytest.mark.parametrize("command", ["approve x", "reject x", "record x", "gate", "gate release", "gate off"])
def test_commands_that_need_a_cluster_do_not_offer_dumps(command: str) -> None:
    found = CliRunner().invoke(commands, [*command.split(), "-f", "dump.json"])
    assert (found.exit_code, "No such option" in found.output) == (2, True)


async def test_completion_offers_what_can_still_be_decided(cluster: Cluster) -> None:
    await cluster.plan("a-1")
    await cluster.plan("a-2", phase="Succeeded")
    await cluster.plan("b-1")
    output = NOTHING
    for _ in range(20):  # nobody waits long for a completion: on a machine that is busy it offers nothing
        process = await asyncio.create_subprocess_exec(
            *(str(plugin.PROGRAM.with_name("kubectl_complete-numazones")), "approve"),
            *("--kubeconfig", str(cluster.kubeconfig), "a"),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        if output != NOTHING:
            break
    assert output.decode() == "a-1\tProposed: pod team/trainer: does not fit now; fits after 1 eviction\n:4\n"


def test_completion_is_silent_where_no_cluster_answers(tmp_path: Path) -> None:
    nowhere = tmp_path / "config"
    nowhere.write_text(json.dumps({"clusters": []}))
    program = plugin.PROGRAM.with_name("kubectl_complete-numazones")
    ended = subprocess.run(
        [program, "approve", "--kubeconfig", nowhere, ""], capture_output=True, text=True, check=False
    )
    assert (ended.stdout, ended.stderr) == (":4\n", "")
