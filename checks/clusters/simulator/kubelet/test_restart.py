"""A simulated kubelet in a cluster stops, and starts again from its files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checks.clusters.operator.closed_loop import Loop, closed_loop
from numazones.kubelet import machines
from numazones_client.resources import PODS
from numazones_simulator import node_kinds
from numazones_simulator.kubelet.fleet import Fleet
from numazones_simulator.kubelet.kubelet import RefusesToStart


async def pod_on(loop: Loop, name: str, cpu: int) -> dict[str, Any]:
    await loop.create_pod(name, cpu=cpu)
    await loop.run_on("n1", name)
    return await loop.client.get(PODS, name, namespace="default")


async def test_kubelet_restarts_from_its_files_or_refuses_them(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        fleet = Fleet(loop.client, [node_kinds.single_numa_node("n1", "10.0.0.1")], directory=tmp_path)
        loop.tasks.create_task(fleet.run())
        agent = fleet.agents["n1"]
        await agent.registered.wait()
        uid = (await pod_on(loop, "a", 3))["metadata"]["uid"]
        held = agent.kubelet.node.cpus.held_by(uid)
        assert held.bit_count() == 3

        spec = agent.kubelet.spec
        restricted = {**spec.configuration, "topologyManagerPolicy": "restricted"}
        await agent.restart(replace(spec, configuration=restricted))
        assert agent.kubelet.node.cpus.held_by(uid) == held
        assert agent.kubelet.node.config.topology_manager_policy == "restricted"

        grown = replace(spec, machine=machines.build(replace(node_kinds.TWO_SOCKETS, cores_per_numa=18)))
        with pytest.raises(RefusesToStart, match='current set of available CPUs "0-71" doesn\'t match'):
            await agent.restart(grown)
        await loop.client.delete(PODS, "a", namespace="default")  # the kubelet is down
        (tmp_path / "n1/kubelet/cpu_manager_state").unlink()
        await agent.restart(grown)
        assert (tmp_path / "n1/sys/devices/system/cpu/online").read_text(encoding="ascii") == "0-71\n"
        await pod_on(loop, "b", 18)
