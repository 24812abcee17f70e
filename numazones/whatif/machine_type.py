"""Machines described in a line: ``sockets=2,numa=4,cores=64,threads=2,memory=512Gi,vendor.example/nic=8``.

Everything is counted for the whole machine but ``threads``, which are those of a core. Devices are spread
evenly over the NUMA nodes, or hang on one of them: ``vendor.example/nic@1=4``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from numazones import cpuset
from numazones.apimachinery import quantity
from numazones.apimachinery.quantity import Quantity
from numazones.apimachinery.resources import CPU, MEMORY
from numazones.cluster.cluster import ClusterNode
from numazones.errors import NumazonesError
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine import Machine
from numazones.kubelet.machines import MachineShape, build
from numazones.whatif.node_template import NodeTemplate, allocatable_memory

_DEFAULTS = {"sockets": 1, "numa": 1, "threads": 2}
_COUNTS = (*_DEFAULTS, "cores")
_MAX_CPUS = 4096
_MILLI = 1000
_POD_SLOTS = 110
_RESERVED_MEMORY = "1Gi"


class InvalidMachineType(NumazonesError):
    """A text describes no machine; the message quotes what is wrong with it."""


def node_template(text: str, *, name: str) -> NodeTemplate:
    """Return a node of the machine type.

    Its kubelet has static CPU and memory managers and the policy single-numa-node, and keeps the first core
    and 1Gi of NUMA node 0 for the system; other settings can be given to it.

    Raises:
        InvalidMachineType: the text describes no machine.
    """
    machine, devices = parse(text)
    # What a machine that is not there yet keeps from pods follows from the reservedMemory that it is given.
    config = replace(KubeletConfiguration.from_api(aligning_settings(machine)), kept_memory=None)
    free = machine.all_cpus & ~first_core(machine)
    amounts = {CPU: _MILLI * free.bit_count(), **allocatable_memory(machine, config)}
    counts = {resource: len(items) for resource, items in devices.items()}
    node = ClusterNode(name, allocatable={**amounts, **counts}, pod_slots=_POD_SLOTS)
    return NodeTemplate(node, machine, config, devices)


def aligning_settings(machine: Machine) -> dict[str, Any]:
    """Return the KubeletConfiguration that ``node_template`` gives a machine."""
    return {
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": "Static",
        "topologyManagerPolicy": "single-numa-node",
        "reservedSystemCPUs": cpuset.format(first_core(machine)),
        "reservedMemory": [{"numaNode": 0, "limits": {MEMORY: _RESERVED_MEMORY}}],
        "systemReserved": {MEMORY: _RESERVED_MEMORY},
        "evictionHard": {"memory.available": "0"},
    }


def first_core(machine: Machine) -> int:
    """Return the CPUs of the core that has the lowest CPU."""
    return min(machine.cpus_of_core.values(), key=lambda cpus: cpus & -cpus)


def parse(text: str) -> tuple[Machine, Mapping[str, tuple[Device, ...]]]:
    """Read a machine type: the machine, and resource → devices.

    Raises:
        InvalidMachineType: the text describes no machine.
    """
    counts: dict[str, int] = dict(_DEFAULTS)
    memory = 0
    wanted: dict[str, list[tuple[int | None, int]]] = {}
    for part in text.split(","):
        key, _, value = (piece.strip() for piece in part.partition("="))
        amount = _amount(text, part, value)
        resource, _, numa = key.partition("@")
        if key in _COUNTS:
            counts[key] = _count(text, part, amount)
        elif key == MEMORY:
            memory = amount.value()
        elif "/" in resource and (not numa or numa.isdecimal()):
            wanted.setdefault(resource, []).append((int(numa) if numa else None, _count(text, part, amount)))
        else:
            raise _invalid(text, f"{part!r} is unknown; use {', '.join((*_COUNTS, MEMORY))} or devices")
    machine = _machine(text, counts, memory)
    return machine, {resource: _devices(text, items, counts["numa"]) for resource, items in wanted.items()}


def _invalid(text: str, why: str) -> InvalidMachineType:
    return InvalidMachineType(
        f"{text!r} is not a machine: {why}; "
        "use a value such as sockets=2,numa=4,cores=64,threads=2,memory=512Gi"
    )


def _amount(text: str, part: str, value: str) -> Quantity:
    try:
        return quantity.parse(value)
    except quantity.InvalidQuantity as error:
        raise _invalid(text, f"{part!r} has no amount") from error


def _count(text: str, part: str, amount: Quantity) -> int:
    number = amount.as_int()
    if number is None or number < 1:
        raise _invalid(text, f"{part!r} is not a count")
    return number


def _machine(text: str, counts: Mapping[str, int], memory: int) -> Machine:
    missing = [name for name, given in (("cores", "cores" in counts), (MEMORY, memory > 0)) if not given]
    if missing:
        raise _invalid(text, f"{' and '.join(missing)} {'is' if missing == [MEMORY] else 'are'} missing")
    sockets, numas, cores = counts["sockets"], counts["numa"], counts["cores"]
    if numas % sockets or cores % numas:
        raise _invalid(
            text, f"{cores} cores and {numas} NUMA nodes cannot be divided evenly among {sockets} sockets"
        )
    if cores * counts["threads"] > _MAX_CPUS:
        raise _invalid(text, f"it has more than {_MAX_CPUS} CPUs")
    return build(
        MachineShape(
            sockets=sockets,
            numa_per_socket=numas // sockets,
            cores_per_numa=cores // numas,
            threads_per_core=counts["threads"],
            memory_per_numa=memory // numas,
            hugepages_per_numa=(),
        )
    )


def _devices(text: str, wanted: list[tuple[int | None, int]], numas: int) -> tuple[Device, ...]:
    devices = []
    for numa, count in wanted:
        if numa is not None and numa >= numas:
            raise _invalid(text, f"there is no NUMA node {numa}")
        for index in range(count):
            near = index * numas // count if numa is None else numa
            devices.append(Device(f"numa{near}-{index}", (near,)))
    return tuple(devices)
