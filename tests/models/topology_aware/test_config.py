"""The policy's configuration and what starting with it gives."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones import cpuset
from numazones.errors import UnmodelledFeature
from numazones_topology_aware.config import DEFAULTS, Configuration
from numazones_topology_aware.cpu_priority import Priority
from numazones_topology_aware.node import Node
from numazones_topology_aware.rejection import StartFailed
from tests.models.topology_aware.machines import configuration, hardware, machines

SPEC: dict[str, Any] = {
    "pinCPU": True,
    "pinMemory": True,
    "preferIsolatedCPUs": False,
    "preferSharedCPUs": True,
    "colocatePods": True,
    "colocateNamespaces": True,
    "reservedPoolNamespaces": ["sys-*"],
    "availableResources": {"cpu": "cpuset:0-7"},
    "reservedResources": {"cpu": "1"},
    "defaultCPUPriority": "High",
    "unlimitedBurstable": "numa",
    "schedulingClasses": [
        {"name": "rt", "policy": "fifo", "priority": 42, "flags": ["reset-on-fork"]},
        {"name": "io", "ioClass": "be", "ioPriority": 3, "flags": ["reclaimable"]},
    ],
    "namespaceSchedulingClasses": {"a": "rt"},
    "podQoSSchedulingClasses": {"Guaranteed": "io"},
    "controllableInterrupts": ["*"],
    "agent": {"podResourceAPI": True},
}


def test_every_field_of_the_resource_is_read() -> None:
    read = Configuration.from_spec(SPEC)
    assert (read.pin_cpu, read.pin_memory, read.prefer_isolated, read.prefer_shared) == (
        True,
        True,
        False,
        True,
    )
    assert (read.colocate_pods, read.colocate_namespaces, read.reserved_namespaces) == (
        True,
        True,
        ("sys-*",),
    )
    assert (read.available_cpu, read.reserved_cpu) == ("cpuset:0-7", "1")
    assert (read.default_priority, read.unlimited_burstable) == (Priority.HIGH, "numa")
    assert read.namespace_classes == {"a": "rt"}
    assert read.qos_classes == {"guaranteed": "io"}
    assert read.interrupts == ("*",)
    assert read.pod_resources


def test_scheduling_classes_are_read_as_the_runtime_knows_them() -> None:
    fast, slow = Configuration.from_spec(SPEC).scheduling_classes
    assert fast.scheduler is not None
    assert (fast.scheduler.policy, fast.scheduler.priority) == ("SCHED_FIFO", 42)
    assert fast.scheduler.flags == ("SCHED_FLAG_RESET_ON_FORK",)
    assert fast.io_priority is None
    assert slow.scheduler is None  # its only flag is one that the runtime does not know
    assert slow.io_priority is not None
    assert (slow.io_priority.io_class, slow.io_priority.priority) == ("IOPRIO_CLASS_BE", 3)


def test_what_is_absent_from_a_file_is_absent() -> None:
    read = Configuration.from_spec({"reservedResources": {"cpu": 1}})
    assert (read.pin_cpu, read.pin_memory, read.prefer_isolated) == (False, False, None)
    assert read.reserved_cpu == "1"


def test_the_resource_s_defaults_are_those_of_its_definition() -> None:
    read = Configuration.from_spec({**DEFAULTS, "reservedResources": {"cpu": "1"}})
    assert (read.pin_cpu, read.pin_memory, read.prefer_isolated) == (True, True, True)
    assert (read.default_priority, read.unlimited_burstable) == (Priority.NONE, "package")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pinCPU": "yes"}, "spec.pinCPU: 'yes' is not a boolean"),
        ({"pinMemory": 1}, "spec.pinMemory: 1 is not a boolean"),
        ({"reservedPoolNamespaces": "a"}, "spec.reservedPoolNamespaces: 'a' is not a list"),
        ({"reservedPoolNamespaces": [1]}, r"spec.reservedPoolNamespaces\[0\]: 1 is not a string"),
        ({"availableResources": []}, r"spec.availableResources: \[\] is not a mapping"),
        ({"reservedResources": {"cpu": True}}, "spec.reservedResources.cpu: True is not a string"),
        ({"unlimitedBurstable": 4}, "spec.unlimitedBurstable: 4 is not a string"),
        ({"schedulingClasses": [{}]}, r"spec.schedulingClasses\[0\].name: a scheduling class needs a name"),
        (
            {"schedulingClasses": [{"name": "a", "nice": "low"}]},
            r"spec.schedulingClasses\[0\].nice: 'low' is not a whole number",
        ),
        (
            {"podQoSSchedulingClasses": {"Guaranteed": "none"}},
            "spec.podQoSSchedulingClasses.guaranteed: unknown scheduling class 'none'",
        ),
        (
            {"podQoSSchedulingClasses": {"Best": "rt"}},
            "spec.podQoSSchedulingClasses.best: unknown QoS class",
        ),
        ({"namespaceSchedulingClasses": {"a": "b"}}, "spec.namespaceSchedulingClasses.a: unknown scheduling"),
        ({"cpuClasses": [{"name": "x"}]}, "spec.sharedPoolCPUClass: unknown CPU class ''"),
        ({"cpuClasses": [{}]}, r"spec.cpuClasses\[0\].name: a CPU class needs a name"),
        (
            {"cpuClasses": [{"name": "x"}, {"name": "x"}], "sharedPoolCPUClass": "x"},
            "spec.cpuClasses: a name appears twice",
        ),
        (
            {"cpuClasses": [{"name": "x"}], "sharedPoolCPUClass": "x", "defaultExclusiveCPUClass": "y"},
            "spec.defaultExclusiveCPUClass: unknown CPU class 'y'",
        ),
        (
            {"controllableInterrupts": ["[a"]},
            r"spec.controllableInterrupts\[0\]: '\[a' is not a shell pattern",
        ),
        ({"agent": {"podResourceAPI": "on"}}, "spec.agent.podResourceAPI: 'on' is not a boolean"),
    ],
)
def test_a_bad_field_is_rejected_with_its_path(change: dict[str, Any], message: str) -> None:
    with pytest.raises(StartFailed, match=f"^{message}") as failure:
        Configuration.from_spec({**SPEC, **change})
    assert failure.value.code == "parse"


@pytest.mark.parametrize("spec", ["x", [], 1])
def test_a_spec_that_is_no_mapping_is_rejected(spec: Any) -> None:
    with pytest.raises(StartFailed, match=f"^spec: {re.escape(repr(spec))} is not a mapping"):
        Configuration.from_spec(spec)


def test_cpu_classes_by_speed_select_are_unknown() -> None:
    with pytest.raises(UnmodelledFeature, match=r"spec.cpuClasses\[0\].pctPriority"):
        Configuration.from_spec({**SPEC, "cpuClasses": [{"name": "x", "pctPriority": "high"}]})


@pytest.mark.parametrize(
    ("available", "reserved", "kept", "left"),
    [
        (None, "750m", "0", "0-15"),
        (None, "2250m", "0-2", "0-15"),
        ("cpuset:4-13", "2250m", "4-6", "4-13"),
        ("cpuset:4-11", "cpuset:11", "11", "4-11"),
        ("exclude-cpuset:0-1", "cpuset:11-15", "11-15", "2-15"),
        (None, "exclude-cpuset:0-13", "14-15", "0-15"),
        ("cpuset:0-99", "1", "0", "0-15"),
    ],
)
def test_available_and_reserved_cpus(available: str | None, reserved: str, kept: str, left: str) -> None:
    policy = Node.fresh(hardware(), configuration(available_cpu=available, reserved_cpu=reserved)).policy
    assert (cpuset.format(policy.reserved), cpuset.format(policy.available)) == (kept, left)


@pytest.mark.parametrize(
    ("available", "reserved", "code"),
    [
        ("4", "1", "available-quantity"),
        (None, None, "reserved-missing"),
        (None, "0", "reserved-missing"),
        (None, "cpuset:", "reserved-missing"),
        ("cpuset:0-7", "cpuset:3,9", "reserved-not-available"),
        ("cpuset:0-7", "11", "reserved-too-many"),
        (None, "cpuset:6-8", "reserved-mixed-isolated"),
        (None, "cpuset:6-7", "reserved-multiple-isolated"),
        (None, "cpuset:7-6", "parse"),
        ("cpuset:a", "1", "parse"),
        (None, "lots", "parse"),
    ],
)
def test_a_configuration_with_which_the_plugin_does_not_start(
    available: str | None, reserved: str | None, code: str
) -> None:
    with pytest.raises(StartFailed, match=r"^spec\.(available|reserved)Resources\.cpu: ") as failure:
        Node.fresh(hardware(isolated="6-7"), configuration(available_cpu=available, reserved_cpu=reserved))
    assert failure.value.code == code


@given(
    machines(),
    st.sampled_from(["system", "package", "die", "numa", "l3cache", "l2cache", "core", "socket", ""]),
)
def test_unlimited_containers_use_an_existing_level_or_the_package(machine: Any, level: str) -> None:
    node = Node.fresh(machine, configuration(unlimited_burstable=level))
    found = node.policy.burstable_level
    assert found in {pool.kind for pool in node.pools} or found == "socket"
