"""``kubectl numazones why`` on a running cluster: pods at the gate, and pods that the extender refused."""

import json
from pathlib import Path
from typing import Any

from checks.clusters.operator.closed_loop import Loop, closed_loop
from numazones.cluster.admission_gate import GATE
from numazones_client.resources import PODS
from numazones_simulator import node_kinds
from numazones_simulator.kube_scheduler.configuration import Configuration
from numazones_simulator.kube_scheduler.scheduler import KubeScheduler
from tests import plugin
from tests.waiting import eventually

GATES = [{"name": GATE}]

SCHEDULER = "numazones"
TOLD = "node(s) that would not admit the pod (kubelet: TopologyAffinityError)"


async def why(loop: Loop, *arguments: str) -> tuple[int, str]:
    return await plugin.run("why", *arguments, "--kubeconfig", loop.kubeconfig)


async def document(loop: Loop, name: str) -> dict[str, Any]:
    _, output = await why(loop, name, "-o", "json")
    found: dict[str, Any] = json.loads(output)
    return found


async def start_node(loop: Loop) -> None:
    """A node of two NUMA nodes with 30 CPUs each."""
    await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])


async def run_on_node(loop: Loop, name: str, **parts: Any) -> None:
    """Create a pod, bind it, and wait until it runs."""
    await loop.create_pod(name, **parts)
    await loop.run_on("node", name)


async def show_operator(loop: Loop) -> None:
    """Let a pod of the operator be there, as where it runs in the cluster."""
    await run_on_node(loop, "operator", cpu="100m", labels={"app.kubernetes.io/name": "numazones-operator"})


async def test_why_names_who_must_remove_the_gate(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await start_node(loop)
        await loop.create_pod("fits", cpu=4, schedulingGates=GATES)
        code, said = await why(loop, "fits")
        assert (code, "namespace default has not opted in: kubectl label namespace default" in said) == (
            1,
            True,
        )
        await loop.opt_in()
        code, said = await why(loop, "fits")
        assert (code, "no running pod of the operator was found" in said) == (1, True)
        await show_operator(loop)
        code, said = await why(loop, "fits")
        assert (code, "the operator has not removed its gate numazones.io/admission yet" in said) == (
            1,
            True,
        )
        await loop.start_operator(admission_gate=False)

        async def not_served() -> bool:
            return "runs without --admission-gate" in (await why(loop, "fits"))[1]

        await eventually(not_served, what="the operator's event is repeated")


async def test_why_names_what_blocks_a_gated_pod(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await start_node(loop)
        await loop.opt_in()
        await show_operator(loop)
        for name in ("one", "two"):
            await run_on_node(loop, name, cpu=20)
        await loop.start_operator(admission_gate=True)
        await loop.create_pod("waits", cpu=16, schedulingGates=GATES)
        await eventually(lambda: loop.verdict("waits"))
        code, said = await why(loop, "waits")
        assert code == 1
        assert said.startswith("default/waits: needs 16 exclusive CPUs on one NUMA node")
        assert (await document(loop, "waits"))["verdict"] == "Inadmissible"
        # And it is let go as soon as there is room.
        await loop.client.delete(PODS, "one", namespace="default", grace_seconds=0)

        async def released() -> bool:
            pod = await loop.client.get(PODS, "waits", namespace="default")
            return not pod["spec"].get("schedulingGates")

        await eventually(released, what="the gate is taken away")
        assert (await why(loop, "waits"))[0] == 0


def asking(port: int) -> Configuration:
    """A second scheduler that asks the extender, as ``manifests/scheduler`` has it."""
    extender = {
        "urlPrefix": f"http://127.0.0.1:{port}",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "weight": 10,
        "nodeCacheCapable": True,
        "httpTimeout": "5s",
    }
    return Configuration.model_validate(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": SCHEDULER}],
            "extenders": [extender],
        }
    )


async def test_why_repeats_what_the_extender_told_the_scheduler(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await start_node(loop)
        for name in ("one", "two"):
            await run_on_node(loop, name, cpu=20)
        operator = await loop.start_operator(leads=False, lead=False, extender_address="127.0.0.1:0")
        loop.tasks.create_task(KubeScheduler(loop.client, asking(operator.extender_port)).run())
        # 20 CPUs are free, 10 on each NUMA node: the scheduler's own filters have nothing against the pod.
        await loop.create_pod("refused", cpu=16, schedulerName=SCHEDULER)

        async def told() -> bool:
            pod = await loop.client.get(PODS, "refused", namespace="default")
            conditions = pod["status"].get("conditions") or ()
            return any(TOLD in (one.get("message") or "") for one in conditions)

        await eventually(told, what="the scheduler says what it was told")
        code, said = await why(loop, "refused")
        assert code == 1
        assert said.startswith("default/refused: needs 16 exclusive CPUs on one NUMA node")
        assert f"The scheduler says: 0/1 nodes are available: 1 {TOLD}" in said
        await loop.client.delete(PODS, "one", namespace="default", grace_seconds=0)

        await eventually(lambda: loop.runs("refused"), what="it is tried again, and runs")
        assert (await why(loop, "refused"))[0] == 0
