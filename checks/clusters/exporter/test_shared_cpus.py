"""Two pods that were given one CPU, end to end: kubelet, exporter, operator and plugin agree, and go on.

The machine has one thread offline, so that the static policy takes its cores for cores of one thread.
"""

import asyncio
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from numazones import cpuset
from numazones.kubelet.shared_cpus import shared_cpus
from numazones_client import Client
from numazones_client.resources import ADMISSION_PREDICTIONS, EVENTS, NUMAZONES, PODS
from numazones_simulator import simulated_cluster
from numazones_simulator.node_spec import NodeSpec, configuration
from numazones_simulator.screen import Screen
from tests.numazones.kubelet import building
from tests.operator.pods import pod_body
from tests.waiting import eventually

NODE = "uneven"
MACHINE = building.machine(2, cores=4, offline=frozenset({15}))
SPEC = NodeSpec(
    NODE, MACHINE, configuration(MACHINE, topology_manager_policy="single-numa-node", reserved_cpus="0")
)


async def run_pod(client: Client, name: str, cpu: int) -> None:
    """Bind a pod to the node, and wait until its kubelet runs it."""
    await client.create(PODS, pod_body(name, cpu=cpu, memory="64Mi", nodeName=NODE), namespace="default")

    async def runs() -> bool:
        pod = await client.get(PODS, name, namespace="default")
        return bool(pod["status"].get("phase") == "Running")

    await eventually(runs, what=f"{name} runs")


async def conditions(client: Client) -> dict[str, dict[str, Any]]:
    """The conditions of the node's zones, by type; nothing while they differ."""
    zones = [zone.get("status") or {} for zone in await client.list(NUMAZONES)]
    if len(zones) != len(MACHINE.numa_nodes) or len({zone.get("snapshot") for zone in zones}) != 1:
        return {}
    return {condition["type"]: condition for condition in zones[0].get("conditions") or ()}


async def outcomes(operator: str) -> dict[tuple[str, str], float]:
    """(predicted, actual) → how many pods; once all of them are judged."""
    async with aiohttp.ClientSession() as session, session.get(f"{operator}/metrics") as answer:
        text = await answer.text()
    found = {
        (sample.labels["predicted"], sample.labels["actual"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "numazones_prediction_outcomes_total" and sample.value
    }
    return found if sum(found.values()) >= 5 else {}


async def plugin(kubeconfig: Path, *arguments: str) -> str:
    """Return what the plugin prints."""
    done = await asyncio.to_thread(
        subprocess.run,
        [str(Path(sys.executable).with_name("kubectl-numazones")), *arguments, f"--kubeconfig={kubeconfig}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout


async def test_cpu_of_two_pods_is_reported_everywhere_and_predictions_continue(
    tmp_path: Path,
) -> None:
    async with simulated_cluster.running([SPEC], tmp_path, Screen(io.StringIO(), io.StringIO())) as cluster:
        client, kubeconfig = cluster.plane.client, cluster.plane.kubeconfig
        kubelet = cluster.fleet.agents[NODE].kubelet
        for name, cpu in (("p0", 1), ("p1", 2), ("p2", 1), ("p3", 3)):
            await run_pod(client, name, cpu)
        cpus = kubelet.node.cpus
        (group,) = shared_cpus(cpus.default, cpus.exclusive_cpus_by_pod())
        assert cpuset.format(group.cpus) == "2"

        async def told(reason: str) -> dict[str, Any] | None:
            condition = (await conditions(client)).get("CPUsExclusive", {})
            return condition if condition.get("reason") == reason else None

        condition = await eventually(lambda: told("CPUsOfTwoPods"))
        assert condition["message"].startswith("default/p2 and default/p3 both hold CPU 2: delete default/p3")
        said = await conditions(client)
        assert (said["Ready"]["status"], said["Consistent"]["status"]) == ("True", "True")

        async def events() -> dict[str, str]:
            found = await client.list(EVENTS, namespace="default")
            return {
                event["involvedObject"]["name"]: event["message"]
                for event in found
                if event["reason"] == "CPUsShared"
            }

        async def both_told() -> dict[str, str] | None:
            found = await events()
            return found if found.keys() == {"p2", "p3"} else None

        for message in (await eventually(both_told)).values():
            assert message == f"on node {NODE}, {condition['message']}"
        report = json.loads(await plugin(kubeconfig, "doctor", "-o", "json"))
        (finding,) = (found for found in report["findings"] if found["check"] == "readings")
        assert (finding["severity"], finding["subjects"]) == ("error", [NODE])
        assert finding["message"] == condition["message"]

        # Who waits is answered, and what comes is decided as predicted.
        for name, cpu in (("fits", 7), ("big", 8)):  # 7 CPUs are free on NUMA node 1
            body = pod_body(name, cpu=cpu, memory="64Mi", schedulerName="nobody")
            await client.create(PODS, body, namespace="default")

        async def verdicts() -> dict[str, str] | None:
            found = {
                item["metadata"]["name"]: str((item.get("status") or {}).get("verdict", ""))
                for item in await client.list(ADMISSION_PREDICTIONS)
            }
            return found if found.keys() == {"fits", "big"} and all(found.values()) else None

        assert await eventually(verdicts) == {"fits": "Admissible", "big": "Inadmissible"}
        assert "Insufficient cpu: 8 requested, 7 free" in await plugin(kubeconfig, "why", "big")
        for command, shown in (("top", NODE), (f"who {NODE}", "2-3,10"), (f"tree {NODE}", "2-3,10")):
            assert shown in await plugin(kubeconfig, *command.split()), command
        await run_pod(client, "p4", 1)
        assert await eventually(lambda: outcomes(cluster.operator)) == {("Admissible", "Admitted"): 5.0}

        # The advice is followed, and ends what it is given for.
        await client.delete(PODS, "p3", namespace="default")
        condition = await eventually(lambda: told("CPUsInSharedSet"))
        assert condition["message"].startswith("default/p2 holds CPU 2, but the kubelet considers CPU 2 free")
        await client.delete(PODS, "p2", namespace="default")

        async def nobody_shares() -> bool:
            found = await conditions(client)
            return bool(found) and "CPUsExclusive" not in found

        await eventually(nobody_shares)
        cpus = kubelet.node.cpus
        assert cpus.default | cpus.exclusive_cpus() == MACHINE.all_cpus
        assert not cpus.default & cpus.exclusive_cpus()
