"""Contents of ResourceSlices: the NUMA node of a device, and which slices make up a pool."""

from typing import Any

import pytest

from numazones.apimachinery.api_object import InvalidObject
from numazones.dra.devices import Slice, numas_of, pools_of
from tests.numazones.dra.building import device, resource_slice

STANDARD = "resource.kubernetes.io/numaNode"


@pytest.mark.parametrize(
    ("driver", "attributes", "expected"),
    [
        ("gpu.example", {STANDARD: {"int": 0}}, (0,)),
        ("gpu.example", {STANDARD: {"ints": [3]}}, (3,)),
        ("gpu.example", {STANDARD: {"ints": [2, 3, 2]}}, (2, 3)),
        ("dra.cpu", {"dra.cpu/numaNodeID": {"int": 1}}, (1,)),
        ("dra.net", {"dra.net/numaNode": {"int": 1}}, (1,)),
        ("dra.memory", {"dra.net/numaNode": {"int": 1}}, (1,)),
        ("gpu.amd.example", {"gpu.amd.example/numaNode": {"int": 1}}, (1,)),
        ("gpu.vendor.example", {"gpu.vendor.example/numa": {"int": 1}}, (1,)),
        # The standard one is the one that counts.
        ("dra.cpu", {STANDARD: {"int": 0}, "dra.cpu/numaNodeID": {"int": 1}}, (0,)),
        ("dra.cpu", {STANDARD: {"int": -1}, "dra.cpu/numaNodeID": {"int": 1}}, (1,)),
        # What nobody says is not known, and never NUMA node 0.
        ("gpu.example", {}, ()),
        ("gpu.example", {STANDARD: {"int": -1}}, ()),
        ("gpu.example", {STANDARD: {"ints": []}}, ()),
        ("gpu.example", {STANDARD: {"ints": [0, -1]}}, ()),
        ("gpu.example", {STANDARD: {"int": True}}, ()),
        ("gpu.example", {STANDARD: {"int": 1 << 62}}, ()),
        ("gpu.example", {STANDARD: {"string": "0"}}, ()),
        ("gpu.example", {STANDARD: "0"}, ()),
        ("gpu.example", {"other.example/numaNode": {"int": 1}}, ()),
    ],
)
def test_the_numa_nodes_of_a_device(
    driver: str, attributes: dict[str, Any], expected: tuple[int, ...]
) -> None:
    assert numas_of(driver, attributes) == expected


def test_names_without_a_domain_are_the_drivers() -> None:
    body = resource_slice(
        device(
            "cpudevnuma000",
            attributes={"numaNodeID": {"int": 1}, "smtEnabled": {"bool": False}},
            capacity={"cpu": {"value": "32"}},
            allowMultipleAllocations=True,
        ),
        driver="dra.cpu",
    )
    (found,) = Slice.from_api(body).devices
    assert found.numas == (1,)
    assert found.attribute("dra.cpu/numaNodeID") == ("int", 1)
    assert found.attribute("dra.cpu/smtEnabled") == ("bool", False)
    assert found.attribute("dra.net/numaNode") is None
    assert found.capacity["dra.cpu/cpu"].value() == 32
    assert found.shareable


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ({"string": "pci0000:3a"}, ("pci0000:3a",)),
        ({"strings": ["pci0000:3a", "pci0000:5d"]}, ("pci0000:3a", "pci0000:5d")),
        ({"int": 3}, ()),
        (None, ()),
    ],
)
def test_the_pcie_roots_of_a_device(attribute: object, expected: tuple[str, ...]) -> None:
    body = resource_slice(device("gpu-0", attributes={"resource.kubernetes.io/pcieRoot": attribute}))
    assert Slice.from_api(body).devices[0].pcie_root == expected


def test_a_pool_is_its_latest_generation() -> None:
    slices = [
        resource_slice(device("old"), name="a", generation=1),
        resource_slice(device("new-0"), name="b", generation=2, count=2),
        resource_slice(device("new-1"), name="c", generation=2, count=2),
        resource_slice(device("older"), name="d", generation=0),
    ]
    (pool,) = pools_of(map(Slice.from_api, slices))
    assert [one.name for one in pool.devices] == ["new-0", "new-1"]
    assert pool.complete


def test_a_pool_is_incomplete_while_slices_are_missing() -> None:
    (pool,) = pools_of([Slice.from_api(resource_slice(device("gpu-0"), count=2))])
    assert not pool.complete


def test_devices_may_say_for_themselves_which_node_they_are_in() -> None:
    body = resource_slice(
        device("gpu-0", nodeName="worker-7"), device("gpu-1"), node="", perDeviceNodeSelection=True
    )
    assert [one.node for one in Slice.from_api(body).devices] == ["worker-7", ""]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"bindingConditions": [1]}, "bindingConditions is not a list of strings"),
        ({"bindingConditions": "Ready"}, "bindingConditions must be a list, not str"),
        (
            {
                "nodeSelector": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": 1, "operator": "Exists"}]}]
                }
            },
            "nodeSelector has a key or operator that is not a string",
        ),
    ],
)
def test_fields_of_another_type_are_named(fields: dict[str, Any], problem: str) -> None:
    body = resource_slice(device("gpu-0", **fields), node="", perDeviceNodeSelection=True)
    with pytest.raises(InvalidObject, match=problem):
        Slice.from_api(body)


@pytest.mark.parametrize(
    ("effect", "expected"), [("NoSchedule", True), ("NoExecute", True), ("None", False), ("", False)]
)
def test_taints_that_keep_claims_away(effect: str, *, expected: bool) -> None:
    body = resource_slice(device("gpu-0", taints=[{"key": "broken", "effect": effect}]))
    assert Slice.from_api(body).devices[0].tainted is expected
