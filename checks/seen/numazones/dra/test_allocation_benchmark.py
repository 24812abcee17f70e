"""Allocations take as many steps as the scheduler's, and their cost grows with the number of nodes alone."""

import json
import time
from pathlib import Path
from typing import Any

from numazones.dra.allocated import AllocatedDevices
from numazones.dra.allocation import Allocated
from numazones.dra.allocator import Allocator
from numazones.dra.claims import DeviceClaim
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Slice
from numazones.dra.rules import rules
from numazones.dra.slices import AllocationNode, DeviceSlices
from numazones_benchmarks import allocation
from tests.numazones.dra.building import GPU, claim, device, device_class, resource_slice

FEW, MANY = 300, 3000
# Ten times the nodes cost ten times as much, and a hundred times as much if each looked at all slices.
MOST_TIMES = 30


def test_the_benchmark_takes_the_steps_of_the_scheduler(shared: Path) -> None:
    lines = (shared / "conformance/dra/bench.jsonl").read_text().splitlines()
    for line in lines:
        scenario = json.loads(line)
        result = allocation.measure(scenario, 0.1)
        assert result["ratio"] > 0, result
        assert result["steps"] == sum(one["allocateOne"] for one in scenario["expect"]["results"])


def gpus(node: str) -> dict[str, Any]:
    attributes = [{"type": {"string": "gpu"}, "uuid": {"string": f"{node}-{at}"}} for at in range(8)]
    devices = [device(f"gpu-{at}", at // 4, attributes=own) for at, own in enumerate(attributes)]
    return resource_slice(*devices, name=node, pool=node, node=node)


def seconds_of_an_answer(nodes: int) -> float:
    names = [f"worker-{at}" for at in range(nodes)]
    slices = DeviceSlices(Slice.from_api(gpus(name)) for name in names)
    gpu = DeviceClass.from_api(
        device_class("gpus", f'device.driver == "{GPU}" && device.attributes["{GPU}"].type == "gpu"')
    )
    exactly = {"deviceClassName": "gpus", "count": 2}
    body = claim(
        requests=[{"name": "two", "exactly": exactly}],
        constraints=[{"matchAttribute": "resource.kubernetes.io/numaNode"}],
    )
    start = time.process_time()
    allocator = Allocator(slices, {"gpus": gpu}, AllocatedDevices(), rules())
    outcomes = [allocator.allocate(AllocationNode(name), [DeviceClaim.from_api(body)]) for name in names]
    spent = time.process_time() - start
    assert all(isinstance(outcome, Allocated) for outcome in outcomes)
    return spent


def test_one_pod_on_ten_times_the_nodes_costs_ten_times() -> None:
    assert seconds_of_an_answer(MANY) < MOST_TIMES * seconds_of_an_answer(FEW)
