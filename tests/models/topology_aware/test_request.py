"""The policy's view of a container's resources and annotations."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from numazones.errors import UnmodelledFeature
from numazones.kubelet.demand import QOSClass
from numazones.kubelet.pod import Pod
from numazones_topology_aware import request, requirements
from numazones_topology_aware.memory_types import DRAM, HBM, PMEM, PRESERVE
from numazones_topology_aware.node import Node
from numazones_topology_aware.rejection import Rejection
from numazones_topology_aware.request import CPUType, Request
from numazones_topology_aware.requirements import Requirements
from numazones_topology_aware.sandbox import CGroup, Sandbox
from tests.models.topology_aware.machines import GIB, configuration, hardware

# Two DRAM nodes, one that is smaller than these and without CPUs (HBM), one that is larger (PMEM).
TIERED = hardware(sockets=1, far=(GIB, 8 * GIB))


def sandbox(
    annotations: Mapping[str, str] | None = None, *, qos: str = "Guaranteed", namespace: str = "default"
) -> Sandbox:
    full = {}
    for key, value in (annotations or {}).items():
        name, _, scope = key.partition("/")
        full[f"{name}.resource-policy.nri.io" + (f"/{scope}" if scope else "")] = value
    return Sandbox("s", "p", namespace, "u", QOSClass(qos), annotations=full)


def built(
    milli: int | None,
    annotations: Mapping[str, str] | None = None,
    *,
    qos: str = "Guaranteed",
    namespace: str = "default",
    limit: int | None = None,
    config: Mapping[str, object] | None = None,
) -> Request:
    policy = Node.fresh(TIERED, configuration(**{"prefer_isolated": None, **(config or {})})).policy
    wants = Requirements(milli, milli if qos == "Guaranteed" else limit)
    return request.build(policy, sandbox(annotations, qos=qos, namespace=namespace), "c", wants)


ISOLATED = {"prefer-isolated-cpus/pod": "true"}


@pytest.mark.parametrize(
    ("milli", "annotations", "config", "full", "fraction", "isolate"),
    [
        # sub-core
        (500, {}, {}, 0, 500, False),
        (500, ISOLATED, {}, 0, 500, False),
        # mixed
        (1500, {}, {}, 1, 500, False),
        (1500, {}, {"prefer_isolated": True}, 1, 500, True),
        (1500, ISOLATED, {}, 1, 500, True),
        (1500, {"prefer-shared-cpus": "true"}, {}, 0, 1500, False),
        (1500, {}, {"prefer_shared": True}, 0, 1500, False),
        # several, with a fraction
        (2500, {}, {}, 0, 2500, False),
        (2500, {}, {"prefer_shared": False}, 0, 2500, False),
        (2500, {"prefer-shared-cpus": "false"}, {}, 2, 500, False),
        (2500, {"prefer-shared-cpus": "false"}, {"prefer_isolated": True}, 2, 500, True),
        # several, whole
        (2000, {}, {"prefer_isolated": True}, 2, 0, False),
        (2000, ISOLATED, {}, 2, 0, True),
        (2000, {"prefer-shared-cpus": "true"}, {}, 0, 2000, False),
        (2000, {}, {"prefer_shared": True}, 0, 2000, False),
        (2000, {"prefer-shared-cpus": "false"}, {"prefer_shared": True}, 2, 0, False),
    ],
)
def test_guaranteed_containers_are_split_into_exclusive_and_shared_cpus(
    milli: int,
    annotations: dict[str, str],
    config: dict[str, object],
    full: int,
    fraction: int,
    isolate: bool,  # noqa: FBT001
) -> None:
    cpu = built(milli, annotations, config=config).cpu
    assert (cpu.kind, cpu.full, cpu.fraction, cpu.isolate) == (CPUType.NORMAL, full, fraction, isolate)
    assert cpu.limit == milli


@pytest.mark.parametrize(
    ("qos", "milli", "limit", "fraction", "wanted"),
    [
        ("Burstable", 2000, None, 2000, None),
        ("Burstable", 2000, 3000, 2000, 3000),
        ("Burstable", None, None, 0, None),
        ("BestEffort", 500, None, 0, 0),
    ],
)
def test_other_containers_get_shared_cpus_only(
    qos: str, milli: int | None, limit: int | None, fraction: int, wanted: int | None
) -> None:
    cpu = built(milli, qos=qos, limit=limit).cpu
    assert (cpu.full, cpu.fraction, cpu.limit) == (0, fraction, wanted)


@pytest.mark.parametrize(
    ("annotations", "namespace", "patterns", "kind"),
    [
        ({}, "default", (), CPUType.NORMAL),
        ({}, "kube-system", (), CPUType.RESERVED),
        ({}, "sys-mon", ("sys-*",), CPUType.RESERVED),
        ({}, "sys-mon", ("[bad", "sys-*"), CPUType.NORMAL),  # a broken pattern ends the search
        ({"prefer-reserved-cpus": "true"}, "default", (), CPUType.RESERVED),
        ({"prefer-reserved-cpus": "false"}, "kube-system", (), CPUType.NORMAL),
        ({"prefer-reserved-cpus": "maybe"}, "kube-system", (), CPUType.RESERVED),
        ({"cpu.preserve": "true"}, "kube-system", (), CPUType.PRESERVE),
        ({"cpu.preserve": "True"}, "default", (), CPUType.NORMAL),
    ],
)
def test_kinds_of_cpus(
    annotations: dict[str, str], namespace: str, patterns: tuple[str, ...], kind: CPUType
) -> None:
    cpu = built(1000, annotations, namespace=namespace, config={"reserved_namespaces": patterns}).cpu
    assert cpu.kind is kind


@pytest.mark.parametrize(
    ("annotations", "isolate", "required"),
    [
        ({"prefer-isolated-cpus": "true"}, False, False),  # bare, without require: ignored
        ({"prefer-isolated-cpus/pod": "true"}, True, False),
        ({"require-isolated-cpus": "true"}, True, True),
        ({"require-isolated-cpus": "false"}, False, True),
        ({"prefer-isolated-cpus/container.c": "false", "require-isolated-cpus/pod": "true"}, False, False),
        ({"prefer-isolated-cpus/pod": "false", "require-isolated-cpus/container.c": "true"}, True, True),
        ({"prefer-isolated-cpus/pod": "false", "require-isolated-cpus/pod": "true"}, True, True),
        ({"prefer-isolated-cpus/container.other": "true"}, False, False),
        ({"prefer-isolated-cpus/container.c": "junk", "prefer-isolated-cpus/pod": "true"}, False, False),
    ],
)
def test_the_more_specific_wish_for_isolated_cpus_counts(
    annotations: dict[str, str],
    isolate: bool,  # noqa: FBT001
    required: bool,  # noqa: FBT001
) -> None:
    cpu = built(1000, annotations).cpu
    assert (cpu.isolate, cpu.require_isolated) == (isolate, required)


@pytest.mark.parametrize(
    ("annotation", "types"),
    [
        (None, DRAM | PMEM),
        ("dram", DRAM),
        ("HBM,dram", DRAM | HBM),
        ("mixed", DRAM | PMEM | HBM),
        ("dram, pmem", DRAM | PMEM),  # a space spoils it, so that the default holds
        ("tape", DRAM | PMEM),
        ("", DRAM | PMEM),
    ],
)
def test_types_of_memory(annotation: str | None, types: int) -> None:
    annotations = {} if annotation is None else {"memory-type": annotation}
    assert built(1000, annotations).memory_types == types


def test_preserved_memory_has_no_types_and_no_cold_start() -> None:
    wanted = built(1000, {"memory.preserve": "true", "cold-start": "duration: 99h"})
    assert (wanted.memory_types, wanted.cold_start) == (PRESERVE, timedelta())


def test_a_cold_start_leaves_dram_out() -> None:
    wanted = built(1000, {"cold-start": "duration: 1m30s"})
    assert (wanted.memory_types, wanted.cold_start) == (PMEM, timedelta(seconds=90))


@pytest.mark.parametrize(
    "annotation", ["duration: 2h", "duration: -1s", "duration: 60", "duration: [", "60s", "[]"]
)
def test_a_broken_cold_start_fails_the_container(annotation: str) -> None:
    with pytest.raises(Rejection) as rejection:
        built(1000, {"cold-start": annotation})
    assert rejection.value.code == "cold-start"


@pytest.mark.parametrize(
    ("annotations", "qos", "code"),
    [
        ({"cpu-class/container.c": "turbo"}, "Guaranteed", "cpu-class"),
        ({"cpu-class/container.c": "fast"}, "Burstable", "cpu-class"),
        ({"cpu-class/pod": "fast"}, "Burstable", None),
        ({"cpu-class/container.c": "fast"}, "Guaranteed", None),
        ({"irq-affinity/container.c": "claim: ['*']"}, "Burstable", "irq-affinity"),
        ({"irq-affinity": "claim: ['*']"}, "Burstable", None),
        ({"irq-affinity": "mode: odd"}, "Guaranteed", "irq-affinity"),
        ({"irq-affinity": "claim: {"}, "Guaranteed", "irq-affinity"),
    ],
)
def test_classes_and_interrupts_are_for_guaranteed_containers(
    annotations: dict[str, str], qos: str, code: str | None
) -> None:
    config = {"cpu_classes": ("fast", "rest"), "shared_cpu_class": "rest"}
    if code is None:
        built(1000, annotations, qos=qos, config=config)
        return
    with pytest.raises(Rejection) as rejection:
        built(1000, annotations, qos=qos, config=config)
    assert rejection.value.code == code


def test_container_without_exclusive_cpus_cannot_name_its_class() -> None:
    config = {"cpu_classes": ("fast",), "shared_cpu_class": "fast"}
    with pytest.raises(Rejection, match="without exclusive CPUs"):
        built(500, {"cpu-class/container.c": "fast"}, config=config)


def test_restricted_interrupts_make_the_answer_unknown() -> None:
    with pytest.raises(UnmodelledFeature, match="controllableInterrupts"):
        built(1000, {"irq-affinity": "mask: [9]"}, config={"interrupts": ("*acpi*",)})


CAPACITY = 1000 * GIB


def burstable(memory: str, *, kind: str = "containers", priority: int | None = None) -> Pod:
    """A pod whose container ``x`` requests some memory, beside one that requests 10 GiB."""
    own = {
        "name": "x",
        "restartPolicy": "Always",
        "resources": {"requests": {"memory": memory, "cpu": "250m"}},
    }
    other = {"name": "y", "resources": {"requests": {"memory": "10Gi"}, "limits": {"cpu": "1"}}}
    spec: dict[str, Any] = {"containers": [other], "priority": priority}
    spec[kind] = [own, *spec.get(kind, [])]
    return Pod.from_manifest({"metadata": {"name": "p", "uid": "u"}, "spec": spec})


@pytest.mark.parametrize(
    ("one", "score"),
    [
        (burstable("1Gi"), 999),
        (burstable("2Gi"), 998),
        (burstable("1"), 999),
        (burstable("999Gi"), 3),
        (burstable("1Gi", kind="initContainers"), 990),  # a sidecar counts as what it serves
        (burstable("20Gi", kind="initContainers"), 980),
        (burstable("1Gi", priority=2_000_001_000), -997),
        (burstable("1Gi", priority=2_000_000_000), 999),
    ],
)
def test_kubelet_asks_for_an_oom_score_by_the_memory_request(one: Pod, score: int) -> None:
    container = next(each for each in one.containers if each.name == "x")
    cgroup = requirements.cgroup_of(one, container, memory_capacity=CAPACITY)
    assert cgroup == CGroup(256, 0, 100_000, 0, score)


def test_the_kubelet_asks_for_shares_quota_and_limit() -> None:
    whole = Pod.from_manifest(
        {
            "metadata": {"name": "p", "uid": "u"},
            "spec": {
                "containers": [
                    {"name": "x", "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}},
                    {"name": "y", "resources": {"limits": {"cpu": "1m", "memory": "1Gi"}}},
                ]
            },
        }
    )
    asked = [requirements.cgroup_of(whole, one, memory_capacity=CAPACITY) for one in whole.containers]
    assert asked == [CGroup(1536, 150_000, 100_000, GIB, -997), CGroup(2, 1000, 100_000, GIB, -997)]


@pytest.mark.parametrize(
    ("qos", "cgroup", "wants"),
    [
        ("Guaranteed", CGroup(1024, 100_000, 100_000, GIB), Requirements(1000, 1000, GIB, GIB)),
        ("Guaranteed", CGroup(2), Requirements(None, 0, 0, None)),
        ("Burstable", CGroup(102, 20_000, 100_000, 0, 999), Requirements(100, 200, GIB, None)),
        ("Burstable", CGroup(102, 0, 100_000, 4 * GIB, 998), Requirements(100, None, 2 * GIB, 4 * GIB)),
        ("Burstable", CGroup(102, 0, 100_000, GIB, 998), Requirements(100, None, None, GIB)),
        ("Burstable", CGroup(2, 0, 0, 0, 1000), Requirements()),
        ("BestEffort", CGroup(2, 50_000, 100_000, 0, 1000), Requirements(None, 500)),
    ],
)
def test_requirements_are_estimated_from_cgroup_values(qos: str, cgroup: CGroup, wants: Requirements) -> None:
    assert requirements.estimate(cgroup, QOSClass(qos), memory_capacity=CAPACITY) == wants


@pytest.mark.parametrize(
    ("text", "wants"),
    [
        (
            {"containers": {"c": {"requests": {"cpu": "1500m", "memory": "1Gi"}, "limits": {"cpu": 2}}}},
            Requirements(1500, 2000, GIB, None),
        ),
        ({"containers": {"other": {}}}, None),
        ({"containers": {"c": {"requests": {"cpu": "lots"}}}}, None),
        ([], None),
    ],
)
def test_requirements_may_be_annotated(text: object, wants: Requirements | None) -> None:
    annotations = {requirements.ANNOTATION: json.dumps(text)}
    assert requirements.from_annotation(Sandbox("s", "p", "n", annotations=annotations), "c") == wants


def test_an_annotation_that_is_no_json_is_passed_over() -> None:
    assert (
        requirements.from_annotation(Sandbox("s", "p", "n", annotations={requirements.ANNOTATION: "{"}), "c")
        is None
    )
