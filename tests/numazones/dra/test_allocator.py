"""Allocations by hand: what callers of the allocator read from an answer, and why claims do not fit."""

from typing import Any

import pytest

from numazones.dra.allocated import AllocatedDevices
from numazones.dra.allocation import (
    Allocated,
    AllocationFailed,
    AllocationOutcome,
    AllocationUnknown,
    DoesNotFit,
)
from numazones.dra.allocator import Allocator
from numazones.dra.claims import DeviceClaim
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Slice
from numazones.dra.rules import UnknownRules, rules
from numazones.dra.slices import AllocationNode, DeviceSlices
from tests.numazones.dra.building import GPU, NODE, claim, device, device_class, resource_slice, result

NUMA = "resource.kubernetes.io/numaNode"
ROOT = "resource.kubernetes.io/pcieRoot"


def request(name: str = "gpus", count: int = 1, **fields: Any) -> dict[str, Any]:
    exactly = {"deviceClassName": "gpus", "allocationMode": "ExactCount", "count": count, **fields}
    return {"name": name, "exactly": exactly}


def gpus(*numas: int, **fields: Any) -> list[dict[str, Any]]:
    """GPUs on NUMA nodes; two of a NUMA node are on one PCIe root."""
    return [
        device(f"gpu-{at}", numa, attributes={ROOT: {"string": f"pci0000:{numa}{at // 2}"}}, **fields)
        for at, numa in enumerate(numas)
    ]


def allocated(
    *slices: dict[str, Any],
    held: tuple[dict[str, Any], ...] = (),
    version: str = "v1.36.2",
    expression: str = f'device.driver == "{GPU}"',
    labels: dict[str, str] | None = None,
    **devices: Any,
) -> AllocationOutcome:
    """Return what one claim gets on a node with these slices."""
    classes = [device_class("gpus", expression), device_class("nics", 'device.driver == "nic.example"')]
    allocator = Allocator(
        DeviceSlices(map(Slice.from_api, slices)),
        {one.name: one for one in map(DeviceClass.from_api, classes)},
        AllocatedDevices.of_claims([DeviceClaim.from_api(claim(*held, name="other"))]),
        rules(version),
    )
    return allocator.allocate(
        AllocationNode(NODE, labels or {}),
        [DeviceClaim.from_api(claim(**{"requests": [request()], **devices}))],
    )


def test_devices_of_an_answer_know_their_numa_node() -> None:
    outcome = allocated(
        resource_slice(*gpus(0, 1, 1)),
        held=(result("gpu-0"),),
        requests=[request(count=2)],
        constraints=[{"matchAttribute": NUMA}],
    )
    assert isinstance(outcome, Allocated)
    (found,) = outcome.claims
    assert [(one.key, one.device.numa) for one in found.devices] == [
        ((GPU, NODE, "gpu-1"), 1),
        ((GPU, NODE, "gpu-2"), 1),
    ]


NIC = resource_slice(device("nic-0", 0), name="nics", driver="nic.example")
EVERY = {"name": "gpus", "exactly": {"deviceClassName": "gpus", "allocationMode": "All"}}
TWO_OR_THREE = {
    "name": "gpus",
    "firstAvailable": [{"name": f"of-{count}", **request(count=count)["exactly"]} for count in (2, 3)],
}
SHARED = {"capacity": {"memory": {"value": "4Gi"}}, "allowMultipleAllocations": True}
BROKEN = {"key": "broken", "effect": "NoSchedule"}
NOT_FIRST_ROOT = 'device.attributes["resource.kubernetes.io"].pcieRoot != "pci0000:00"'


@pytest.mark.parametrize(
    ("devices", "claimed", "reason"),
    [
        (
            gpus(0, 0, 1, 1),
            {"requests": [request(count=4)], "constraints": [{"matchAttribute": ROOT}]},
            ": 4 devices of class gpus on one PCIe root: at most 2 are free on any",
        ),
        (
            gpus(0, 1),
            {"requests": [request(count=2)], "constraints": [{"matchAttribute": NUMA}]},
            ": 2 devices of class gpus on one NUMA node: at most 1 is free on any",
        ),
        (
            [*gpus(1, 0, 1), {**gpus(0, 0, 0, 1)[3], "taints": [BROKEN]}, device("taken", 0)],
            {"requests": [request(count=9, selectors=[{"cel": {"expression": NOT_FIRST_ROOT}}])]},
            (", request gpus: needs 9 devices of class gpus; 2 are free (5 on the node: 1 allocated, "
            "1 not matched by its selectors, 1 tainted)"),
        ),
        (
            gpus(0, 1),
            {"requests": [request("one"), request("two"), request("three")]},
            (
                ", request three: 1 device of class gpus would fit alone, but not together with the requests "
                "before it"
            ),
        ),
        ([], {}, ", request gpus: needs 1 device of class gpus; the node has none"),
        (
            [],
            {"requests": [EVERY]},
            ", request gpus: needs all devices of class gpus, and none of the node's devices match",
        ),
        (
            [*gpus(0), device("taken", 0)],
            {"requests": [EVERY]},
            ", request gpus: needs all 2 devices of class gpus; 1 is not free",
        ),
        (
            gpus(0),
            {"requests": [TWO_OR_THREE]},
            (
                ", request gpus: needs 2 devices of class gpus; 1 is free (1 on the node), "
                "or needs 3 devices of class gpus; 1 is free (1 on the node)"
            ),
        ),
        (
            gpus(0, 1),
            {"requests": [TWO_OR_THREE], "constraints": [{"matchAttribute": NUMA}]},
            ", request gpus: 2 devices of class gpus are free, but cannot be allocated together",
        ),
        (
            gpus(0, 0),
            {"requests": [request(count=2)], "constraints": [{"distinctAttribute": NUMA}]},
            f": 2 devices of class gpus with distinct {NUMA}: the free devices have only 1 value",
        ),
        (
            [device("a"), device("b")],
            {"requests": [request(count=2)], "constraints": [{"distinctAttribute": NUMA}]},
            f": 2 devices of class gpus with distinct {NUMA}: no free device has this attribute",
        ),
        (
            gpus(0, 1, 1),
            {
                "requests": [request("one", 2), request("two", 2)],
                "constraints": [{"distinctAttribute": NUMA, "requests": ["one"]}],
            },
            (
                ", request two: 2 devices of class gpus would fit alone, but not together with the requests "
                "before it"
            ),
        ),
        (
            gpus(0, 1, 1),
            {
                "requests": [request(count=2), request("nic", deviceClassName="nics")],
                "constraints": [{"matchAttribute": NUMA}],
            },
            (
                ": 2 devices of class gpus and 1 device of class nics on one NUMA node: the closest, 0, has "
                "1 of class gpus and 1 of class nics free, 2 devices in all"
            ),
        ),
        (
            [device("shared", 0, **SHARED)],
            {"requests": [request(capacity={"requests": {"memory": "8Gi"}})]},
            (
                ", request gpus: needs 1 device of class gpus; none is free (1 on the node: 1 without enough "
                "capacity)"
            ),
        ),
        (
            gpus(0),
            {"requests": [request(count=2)], "version": "v1.34.1"},
            ", request gpus: needs 2 devices of class gpus; 1 is free (1 on the node)",
        ),
    ],
)  # fmt: skip
def test_a_node_without_room_names_what_is_missing(
    devices: list[dict[str, Any]], claimed: dict[str, Any], reason: str
) -> None:
    outcome = allocated(resource_slice(*devices), NIC, held=(result("taken"),), **claimed)
    assert isinstance(outcome, DoesNotFit)
    assert outcome.reason == f"claim team/claim{reason}"


def test_a_pool_that_is_being_updated_is_named() -> None:
    outcome = allocated(resource_slice(*gpus(0), count=2))
    assert isinstance(outcome, DoesNotFit)
    assert outcome.reason.endswith(f"devices of some pools are ignored: pool {GPU}/{NODE} is being updated")


def test_a_selector_that_cannot_be_evaluated_is_unknown_by_name() -> None:
    outcome = allocated(resource_slice(*gpus(0)), expression="device.attributes.exists(k, v, true)")
    assert outcome == AllocationUnknown(
        "class gpus: selector #0 cannot be evaluated by numazones: it uses a comprehension with two "
        "variables",
        1,
    )


def test_a_selector_that_fails_is_the_schedulers_error() -> None:
    outcome = allocated(resource_slice(*gpus(0)), expression=f'device.attributes["{GPU}"].model == "x"')
    assert outcome == AllocationFailed("class gpus: selector #0: CEL runtime error: no such key: model", 1)


def test_device_as_a_whole_cannot_be_evaluated() -> None:
    outcome = allocated(resource_slice(*gpus(0)), expression="[device] == [device]")
    assert isinstance(outcome, AllocationUnknown)
    assert outcome.reason.endswith("it uses device as a whole, without one of its fields")


def test_slice_that_reaches_no_node_has_no_devices_for_it() -> None:
    outcome = allocated(resource_slice(*gpus(0), node=""))
    assert isinstance(outcome, DoesNotFit)
    assert outcome.reason.endswith("needs 1 device of class gpus; the node has none")


def test_node_selector_that_cannot_be_read_makes_the_answer_unknown() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Near", "values": ["a"]}]}]
    outcome = allocated(resource_slice(*gpus(0), node="", nodeSelector={"nodeSelectorTerms": terms}))
    assert isinstance(outcome, AllocationUnknown)
    assert outcome.reason == "the node selector in ResourceSlice slice-1 cannot be read"


def test_devices_behind_one_node_selector_require_it_once() -> None:
    here = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["a"]}]}
    selector: dict[str, Any] = {"nodeSelector": {"nodeSelectorTerms": [here]}}
    outcome = allocated(
        resource_slice(*gpus(0), node="", **selector, pool="one"),
        resource_slice(device("gpu-9", 0), node="", **selector, pool="two", name="more"),
        requests=[request(count=2)],
        labels={"rack": "a"},
    )
    assert isinstance(outcome, Allocated)
    (found,) = outcome.claims
    assert [(one.key, one.operator, one.values) for one in found.requirements] == [("rack", "In", ("a",))]


def test_a_search_without_end_is_given_up() -> None:
    halves = [request(f"r{at}", 4) for at in range(6)]
    outcome = allocated(
        resource_slice(*gpus(*(at % 2 for at in range(46)))),
        requests=halves,
        constraints=[{"matchAttribute": NUMA}],
    )
    assert isinstance(outcome, AllocationUnknown)
    assert "50000 steps" in outcome.reason


@pytest.mark.parametrize("version", ["v1.34.1", "v1.35.0"])
def test_random_pools_are_answered_where_the_order_does_not_matter(version: str) -> None:
    gpu = resource_slice(*gpus(0, 1))
    nic = resource_slice(device("nic-0", 0), name="nics", driver="nic.example")
    alone, beside = allocated(gpu, version=version), allocated(gpu, nic, version=version)
    assert isinstance(alone, Allocated)
    assert isinstance(beside, Allocated)
    assert beside.claims == alone.claims
    other = resource_slice(device("more", 0), name="more", pool="other")
    assert isinstance(allocated(gpu, other, version=version), AllocationUnknown)


@pytest.mark.parametrize(
    ("version", "gates", "message"),
    [
        ("v1.33.4", {}, "Kubernetes 1.33 is not modelled"),
        (
            "v1.35.0",
            {"DRAConsumableCapacity": True},
            "1.35 is not modelled with DRAConsumableCapacity enabled",
        ),
        ("latest", {}, "'latest' is not a Kubernetes version"),
    ],
)
def test_rules_that_are_not_modelled_are_named(version: str, gates: dict[str, bool], message: str) -> None:
    with pytest.raises(UnknownRules, match=message):
        rules(version, gates)


def test_gates_choose_the_implementation() -> None:
    assert rules().implementation == "incubating"
    off = {"DRAConsumableCapacity": False, "DRADeviceBindingConditions": False}
    assert rules("v1.36.0", off).implementation == "stable"
    lists = rules("v1.36.0", {"DRAListTypeAttributes": True})
    assert (lists.implementation, lists.lists, lists.lists_in_selectors) == ("incubating", False, True)
