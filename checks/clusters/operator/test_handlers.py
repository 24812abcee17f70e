"""kopf's handlers: what they follow, when they run, and what an API server that misbehaves does to them."""

import asyncio
import getpass
import json
import signal
import sys
import threading
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import kopf
import pytest
from kopf.testing import KopfRunner
from prometheus_client import CollectorRegistry

from checks.clusters.operator.closed_loop import OPTIONS, Loop, closed_loop
from numazones.api import crd
from numazones.cluster.admission_gate import OPT_IN
from numazones_client import ClusterConfig
from numazones_client.resources import (
    DEFINITIONS,
    EVENTS,
    LEASES,
    NAMESPACES,
    REBALANCE_POLICIES,
    REBALANCE_RECOMMENDATIONS,
)
from numazones_client.table import Table
from numazones_operator import handlers
from numazones_operator.events import EventPoster
from numazones_operator.kopf_operator import run_kopf
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.definitions import Definitions
from numazones_operator.process import Operator
from numazones_operator.rebalance.inputs import Inputs
from numazones_operator.rebalance.intent import Intent
from numazones_operator.rebalance.readiness import Readiness
from numazones_simulator import node_kinds
from numazones_simulator.control_plane import install
from tests.waiting import eventually


def policy(name: str = "keep-room", *, mode: str = "Recommend", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "numazones.io/v1alpha1",
        "kind": "RebalancePolicy",
        "metadata": {"name": name},
        "spec": {"mode": mode, "schedule": {"interval": "1s"}, **spec},
    }


def recommendation(name: str = "keep-room-1", *, of: str = "keep-room") -> dict[str, Any]:
    move = {
        "pod": {"namespace": "default", "name": "a", "uid": "u"},
        "source": {"node": "n1"},
        "target": {"node": "n1"},
    }
    return {
        "apiVersion": "numazones.io/v1alpha1",
        "kind": "RebalanceRecommendation",
        "metadata": {"name": name},
        "spec": {
            "policy": of,
            "goal": "shape large x1",
            "moves": [move],
            "gain": {"before": 0, "after": 1, "total": 1},
            "disruption": {"evictions": 1, "cpus": "2"},
            "digest": "d",
            "expires": "2999-01-01T00:00:00Z",
        },
    }


async def wait_for_policy(operator: Operator, name: str = "keep-room") -> None:
    """Wait until the operator follows a policy."""
    await eventually(lambda: operator.intent.policies.get(name), what=f"policy {name} is followed")


async def condition(loop: Loop, name: str = "keep-room") -> dict[str, Any]:
    """The condition Ready of a policy."""
    body = await loop.client.get(REBALANCE_POLICIES, name)
    conditions = (body.get("status") or {}).get("conditions") or ()
    return next((dict(one) for one in conditions if one["type"] == "Ready"), {})


async def messages(loop: Loop, reason: str) -> list[str]:
    """The messages of the events with a reason."""
    return [one["message"] for one in await loop.client.list(EVENTS) if one["reason"] == reason]


def memo_for(loop: Loop) -> handlers.Memo:
    """Return what handlers need, without an operator around them."""
    intent = Intent(loop.client, made_for_changed=lambda _: None)
    readiness = Readiness(loop.client, Inputs(intent))
    main_loop, config = asyncio.get_running_loop(), ClusterConfig(server=loop.server.url)
    events = EventPoster(loop.client, identity="x", rate=1000.0, metrics=Metrics(CollectorRegistry()))
    return handlers.Memo(
        main_loop,
        config,
        "x",
        events,
        intent,
        readiness,
        gates=False,
        appearance=Definitions(known=bool).appearance,
    )


def kopf_threads() -> list[str]:
    """The threads in which kopf runs, by the functions that they are in."""
    return [
        frame.f_code.co_name
        for top in sys._current_frames().values()
        for frame, _ in traceback.walk_stack(top)
        if frame.f_code.co_name == "_run_loop"
    ]


async def test_a_user_without_a_name_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the image the operator runs as uid 65532, which /etc/passwd does not know."""

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 65532")

    monkeypatch.setattr(getpass, "getuser", nobody)
    async with closed_loop(tmp_path) as loop:
        operator = await loop.start_operator(leader_elect=False)
        await eventually(operator.intent.followed.is_set, what="kopf has started")
        await loop.client.create(REBALANCE_POLICIES, policy())
        await wait_for_policy(operator)


async def hand_over(loop: Loop, holder: str) -> None:
    """Give the leader's Lease to another, or to nobody."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3600}
    await loop.client.patch(LEASES, "numazones-operator", {"spec": spec}, namespace=OPTIONS.namespace)


async def test_handlers_run_only_while_the_replica_leads(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        operator = await loop.start_operator()
        await eventually(operator.intent.followed.is_set, what="kopf has started")
        await loop.client.create(REBALANCE_POLICIES, policy("before"))
        await wait_for_policy(operator, "before")
        assert kopf_threads()
        await hand_over(loop, "another")
        await eventually(lambda: not operator.leadership.leading)
        await eventually(lambda: not kopf_threads())
        await eventually(lambda: not operator.intent.followed.is_set())
        # The mirror has lost none of its tasks and connections: it goes on, ready to lead again.
        await loop.create_pod("meanwhile", cpu=2)
        await eventually(lambda: any(pod.name == "meanwhile" for pod in operator.pipeline.state.pods))
        await loop.client.delete(REBALANCE_POLICIES, "before")
        await hand_over(loop, "")
        await eventually(lambda: operator.leadership.leading, what="it leads again")
        await eventually(operator.intent.followed.is_set)
        assert operator.intent.policies.get("before") is None
        await loop.client.create(REBALANCE_POLICIES, policy("after"))
        await wait_for_policy(operator, "after")
        assert not operator.failed


async def test_ending_kopf_at_any_moment_of_startup_is_clean(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its last task closes its connections: no other may want one then, whoever has begotten it."""
    async with closed_loop(tmp_path) as loop:
        memo = memo_for(loop)
        for moment in range(30):
            running = asyncio.create_task(run_kopf(memo))
            await memo.intent.followed.wait()
            await asyncio.sleep(moment / 1000)
            running.cancel()
            await asyncio.wait((running,))
            assert kopf_threads() == []
            assert memo.sessions == []
            assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == []


async def test_what_handlers_touch_is_touched_on_the_main_loop_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    put = Table.put

    def note(table: Table[Any], item: Any) -> None:
        threads.append(threading.current_thread())
        put(table, item)

    monkeypatch.setattr(Table, "put", note)
    async with closed_loop(tmp_path) as loop:
        operator = await loop.start_operator(leader_elect=False)
        await eventually(operator.intent.followed.is_set, what="kopf has started")
        await loop.client.create(REBALANCE_POLICIES, policy())
        await wait_for_policy(operator)
        assert kopf_threads()
        assert set(threads) == {threading.main_thread()}


async def test_kopf_leaves_the_process_its_signals(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        operator = await loop.start_operator(leader_elect=False)
        await eventually(operator.intent.followed.is_set, what="kopf has started")
        await loop.client.create(REBALANCE_POLICIES, policy())
        await wait_for_policy(operator)
        signal.raise_signal(signal.SIGTERM)
        await eventually(lambda: not operator.leadership.leading)
        await eventually(lambda: not kopf_threads())
        assert not operator.failed


@pytest.mark.parametrize("how", ["as an event", "as an answer"])
async def test_policy_deleted_during_a_watch_gap_is_dropped(tmp_path: Path, how: str) -> None:
    """After 410 Gone kopf lists anew and says nothing of what has vanished meanwhile."""
    async with closed_loop(tmp_path) as loop:
        operator = await loop.start_operator(leader_elect=False, rebalance_period=0.05)
        await loop.client.create(REBALANCE_POLICIES, policy())
        await wait_for_policy(operator)
        faults = loop.server.faults
        away = faults.server_error(verb="watch", resource="rebalancepolicies", count=None)
        if how == "as an event":
            # Ended with an ERROR event; the list that follows is kept back until the policy is gone.
            late = faults.server_error(verb="list", resource="rebalancepolicies", count=1)
            faults.drop_watches("rebalancepolicies", compacted=True)
            await eventually(lambda: late.struck)
        else:
            faults.drop_watches("rebalancepolicies")
            await eventually(lambda: away.struck)
        await loop.client.delete(REBALANCE_POLICIES, "keep-room")
        faults.remove(away)
        if how == "as an answer":
            faults.resource_expired(verb="watch", resource="rebalancepolicies")
        await eventually(lambda: operator.intent.policies.get("keep-room") is None)
        await loop.client.create(REBALANCE_POLICIES, policy("next"))
        await wait_for_policy(operator, "next")
        assert not operator.failed


async def test_without_our_definitions_it_waits_for_them_and_predicts_meanwhile(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        for kind in ("RebalancePolicy", "RebalanceRecommendation"):
            (definition,) = [crd.crd(one) for one in crd.KINDS if one.RESOURCE.kind == kind]
            await loop.client.delete(DEFINITIONS, definition["metadata"]["name"])
        await loop.start_nodes([node_kinds.single_numa_node("n1", "10.0.0.1")])
        operator = await loop.start_operator(leader_elect=False)
        await loop.create_pod("a", cpu=4)
        await eventually(lambda: loop.verdict("a"))
        await install(loop.client)
        await loop.client.create(REBALANCE_POLICIES, policy())
        await wait_for_policy(operator)
        await eventually(lambda: condition(loop))
        assert not operator.failed


async def test_definitions_installed_between_kopfs_scan_and_watch_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those on kopf's first list of definitions it takes for known, though it has looked before."""
    async with closed_loop(tmp_path) as loop:
        for kind in (REBALANCE_POLICIES, REBALANCE_RECOMMENDATIONS):
            await loop.client.delete(DEFINITIONS, kind.full_name)
        late = loop.server.faults.server_error(verb="list", resource=DEFINITIONS.plural, count=None)
        operator = await loop.start_operator(leader_elect=False)
        await eventually(lambda: late.struck, what="kopf has looked, and lists definitions")
        await install(loop.client)
        loop.server.faults.remove(late)
        await loop.client.create(REBALANCE_POLICIES, policy())
        await wait_for_policy(operator)
        await eventually(lambda: condition(loop))
        assert not operator.failed


async def test_policy_that_becomes_invalid_counts_as_gone_and_reports_it(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        operator = await loop.start_operator(leader_elect=False)
        await loop.client.create(REBALANCE_POLICIES, policy(mode="Auto"))
        await wait_for_policy(operator)
        # What an API server with an older definition let through, ours would reject.
        definition = await loop.client.get(DEFINITIONS, "rebalancepolicies.numazones.io")
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
        }
        await loop.client.replace(DEFINITIONS, definition)
        nonsense = {"spec": {"goals": {"shapes": [{"name": "x", "resources": {"cpu": "x"}}]}}}
        await loop.client.patch(REBALANCE_POLICIES, "keep-room", nonsense)
        await eventually(lambda: operator.intent.policies.get("keep-room") is None)

        async def said() -> dict[str, Any]:
            found = await condition(loop)
            return found if found.get("status") == "False" else {}

        found = await eventually(said)
        assert found["reason"] == "Unreadable"
        assert "cpu" in found["message"]
        mended: dict[str, Any] = {"spec": {"goals": {"shapes": []}}}
        await loop.client.patch(REBALANCE_POLICIES, "keep-room", mended)
        await wait_for_policy(operator)

        async def ready() -> bool:
            return (await condition(loop)).get("status") == "True"

        await eventually(ready)


@pytest.mark.parametrize(
    ("mode", "reason", "message"),
    [
        ("Approve", "Approved", "the operator checks the plan again"),
        ("Recommend", "ApprovalInVain", "set its spec.mode to Approve"),
        ("Auto", "ApprovalInVain", "mode Auto, which needs no approval"),
        ("", "ApprovalInVain", "policy keep-room does not exist or is invalid"),
    ],
)
async def test_an_approval_is_answered_once(tmp_path: Path, mode: str, reason: str, message: str) -> None:
    async with closed_loop(tmp_path) as loop:
        operator = await loop.start_operator(leader_elect=False, rebalance=False)
        if mode:
            await loop.client.create(REBALANCE_POLICIES, policy(mode=mode))
            await wait_for_policy(operator)
        await loop.client.create(REBALANCE_RECOMMENDATIONS, recommendation())
        approve = {"spec": {"approved": True}}
        await loop.client.patch(REBALANCE_RECOMMENDATIONS, "keep-room-1", approve)
        (said,) = await eventually(lambda: messages(loop, reason))
        assert message in said

        async def handled() -> dict[str, Any]:
            body = await loop.client.get(REBALANCE_RECOMMENDATIONS, "keep-room-1")
            annotations = body["metadata"].get("annotations", {})
            handled = json.loads(annotations.get("numazones.io/last-handled", "{}"))
            return body if handled.get("spec", {}).get("approved") else {}

        body = await eventually(handled, what="kopf has noted that it has answered")
        assert "moves" not in body["metadata"]["annotations"]["numazones.io/last-handled"]
        assert "finalizers" not in body["metadata"]
        # Whoever leads next has heard of it, and does not answer again.
        operator.stop()
        await loop.start_operator(leader_elect=False, rebalance=False, identity="next")
        await loop.client.create(REBALANCE_POLICIES, policy("later"))
        await eventually(lambda: condition(loop, "later"))
        assert len(await messages(loop, reason)) == 1


async def test_a_policy_that_this_operator_does_not_follow_says_so(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_operator(leader_elect=False, rebalance=False)
        await loop.client.create(REBALANCE_POLICIES, policy())
        found = await eventually(lambda: condition(loop))
        assert (found["status"], found["reason"]) == ("False", "NotFollowed")
        assert "--no-rebalance" in found["message"]


async def test_namespace_that_opts_in_to_a_disabled_gate_gets_event(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        operator = await loop.start_operator(leader_elect=False)
        label = {"metadata": {"labels": {OPT_IN[0]: OPT_IN[1]}}}
        await loop.client.patch(NAMESPACES, "default", label)
        (said,) = await eventually(lambda: messages(loop, "AdmissionGateOff"))
        assert "without --admission-gate" in said
        labels = operator.intent.namespaces.get("default")
        assert labels is not None
        assert labels.labels[OPT_IN[0]] == "enabled"


async def test_kopf_run_works_with_these_handlers(tmp_path: Path) -> None:
    """Users of kopf would run ``kopf run -m numazones_operator.handlers``, with a memo of their own."""
    async with closed_loop(tmp_path) as loop:
        ours = replace(memo_for(loop), identity="runner", gates=True)
        intent = ours.intent

        async def lend(memo: kopf.Memo, **_: Any) -> None:
            memo |= {name: getattr(ours, name) for name in (*ours.__slots__, "on_main_loop", "post_event")}

        registry = kopf.get_default_registry()
        kopf.on.startup(registry=registry, id="lend")(lend)
        first = registry._activities._handlers.pop()
        registry._activities._handlers.insert(0, first)
        runner = KopfRunner(["run", "--standalone", "--all-namespaces", "-m", handlers.__name__])
        try:
            await asyncio.to_thread(runner.__enter__)
            await loop.client.create(REBALANCE_POLICIES, policy())
            await eventually(lambda: intent.policies.get("keep-room"))
        finally:
            await asyncio.to_thread(runner.__exit__, None, None, None)
            registry._activities._handlers.remove(first)
        assert runner.exit_code == 0


def test_kopf_handles_only_peoples_objects_without_finalizers() -> None:
    registry = kopf.get_default_registry()
    watched = {handler.selector for handler in registry._watching.get_all_handlers()}
    changing = registry._changing.get_all_handlers()
    followed = {selector.any_name for selector in watched if selector is not None}
    assert followed == {"namespaces", "rebalancepolicies", "rebalancerecommendations"}
    assert not any(handler.requires_finalizer for handler in changing)
    assert not registry._spawning.get_all_handlers()
