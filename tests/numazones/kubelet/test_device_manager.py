"""Devices: hints, choice by affinity, health, reuse, the plugin's preference."""

from collections.abc import Iterable, Mapping, Sequence

import pytest

from numazones.kubelet.admission import Admission, admit
from numazones.kubelet.device_manager import (
    Device,
    DeviceManager,
    DeviceResource,
    DeviceState,
    InvalidDevices,
)
from numazones.kubelet.hints import Hint, ResourceHints, unsatisfiable
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.kubelet.rejection import Rejection
from numazones.kubelet.startup import KubeletManagers
from tests.numazones.kubelet.building import configuration, container, gpus, machine, node, pod, sidecar


def device_node(policy: str, devices: Mapping[str, tuple[Device, ...]], **config: str) -> Node:
    """Only the Device Manager decides; four NUMA nodes."""
    return node(machine(4, cores=1), devices=devices, policy=policy, cpus="none", memory="None", **config)


def hints(
    devices: Mapping[str, tuple[Device, ...]], count: int, *, over_hosting_nodes: bool = True
) -> tuple[Hint, ...]:
    manager = DeviceManager.start(devices, 0b1111, over_hosting_nodes=over_hosting_nodes, skips_claimed=True)
    (found,) = manager.container_hints(DeviceState(), "u", "c", (("vendor/gpu", count),), {})
    return found.all()


def rejection(admission: Admission) -> str:
    return admission.message.removeprefix("Allocate failed due to ").removesuffix(", which is unexpected")


def test_hints_cover_only_numa_nodes_that_host_a_device() -> None:
    assert hints(gpus((1,), (3,)), 1) == (Hint(0b0010, True), Hint(0b1000, True), Hint(0b1010, False))


def test_hints_for_no_devices_still_name_numa_nodes() -> None:
    assert hints(gpus((1,), (3,)), 0) == (Hint(0b0010, True), Hint(0b1000, True), Hint(0b1010, False))


def test_before_1_36_hints_cover_all_numa_nodes() -> None:
    found = hints(gpus((1,), (3,)), 2, over_hosting_nodes=False)
    assert [hint.affinity for hint in found] == [0b1010, 0b1011, 0b1110, 0b1111]
    assert [hint.affinity for hint in found if hint.preferred] == [0b1010]
    older = device_node("restricted", gpus((1,), (3,)), version="1.35")
    assert not older.kubelet.devices.over_hosting_nodes


def test_a_device_on_two_numa_nodes_counts_for_both() -> None:
    assert hints(gpus((0, 1), (0, 1)), 2) == (Hint(0b01, True), Hint(0b10, True), Hint(0b11, False))


def test_devices_without_topology_have_no_preference_among_others() -> None:
    assert hints(gpus((), ()), 1) == (Hint(None, True),)
    assert hints(gpus((0,), ()), 2) == (Hint(None, False),)


def test_more_than_there_are_cannot_be_had() -> None:
    assert hints(gpus((0,)), 2) == (Hint(None, False),)


def test_aligned_devices_come_first_then_others_then_those_without_topology() -> None:
    start = device_node("none", gpus((), (2,), (1,), (0,)))
    first = admit(start, pod("u", container("c", vendor_gpu="1")))
    assert first.containers["c"].devices == {"vendor/gpu": ("gpu-0",)}  # no affinity: the lowest id
    aligned = admit(
        device_node("best-effort", gpus((), (2,), (1,), (0,))), pod("u", container("c", vendor_gpu="3"))
    )
    assert aligned.containers["c"].device_numas == {"vendor/gpu": (0, 1, 2)}


def test_unhealthy_devices_are_unassignable_but_count_for_hint_width() -> None:
    devices = {"vendor/gpu": (Device("a", (0,), healthy=False), Device("b", (0,)), Device("c", (1,)))}
    assert hints(devices, 2) == (Hint(0b11, False),)
    given = admit(device_node("best-effort", devices), pod("u", container("c", vendor_gpu="2")))
    assert given.containers["c"].devices == {"vendor/gpu": ("b", "c")}


def test_no_healthy_device_is_a_rejection_even_for_none_wanted() -> None:
    sick = {"vendor/gpu": (Device("a", (0,), healthy=False),)}
    for count in ("0", "1"):
        admission = admit(device_node("none", sick), pod("u", container("c", vendor_gpu=count)))
        assert rejection(admission) == (
            "no healthy devices present; cannot allocate unhealthy devices vendor/gpu"
        )


def test_too_few_devices_are_rejected_with_numbers() -> None:
    admission = admit(device_node("none", gpus((0,), (1,))), pod("u", container("c", vendor_gpu="3")))
    assert (
        rejection(admission)
        == "requested number of devices unavailable for vendor/gpu. Requested: 3, Available: 2"
    )


def test_resources_without_a_plugin_are_left_to_others() -> None:
    assert admit(device_node("none", {}), pod("u", container("c", vendor_gpu="3"))).admitted


def test_init_containers_leave_their_devices_sidecars_keep_them() -> None:
    asked = pod(
        "u",
        container("app", vendor_gpu="1"),
        init=(container("init", vendor_gpu="2"), sidecar("side", vendor_gpu="1")),
    )
    admission = admit(device_node("none", gpus((0,), (0,))), asked)
    given = {name: allocation.devices["vendor/gpu"] for name, allocation in admission.containers.items()}
    assert given == {"init": ("gpu-0", "gpu-1"), "side": ("gpu-0",), "app": ("gpu-1",)}


@pytest.mark.parametrize(
    ("count", "asked", "given"),
    [
        (1, (("gpu-1", "gpu-2"), (), 1), ("gpu-2",)),
        (2, None, ("gpu-1", "gpu-2")),  # all that are aligned: there is no choice
        (
            3,
            (("gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4"), ("gpu-1", "gpu-2"), 3),
            ("gpu-1", "gpu-2", "gpu-4"),
        ),
        (
            4,
            (("gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4"), ("gpu-1", "gpu-2"), 4),
            ("gpu-1", "gpu-2", "gpu-3", "gpu-4"),
        ),
    ],
)
def test_plugin_preference_applies_to_aligned_devices_then_the_rest(
    count: int, asked: tuple[tuple[str, ...], tuple[str, ...], int] | None, given: tuple[str, ...]
) -> None:
    calls: list[tuple[str, tuple[str, ...], tuple[str, ...], int]] = []

    def highest(resource: str, available: Sequence[str], must: Sequence[str], size: int) -> Iterable[str]:
        calls.append((resource, tuple(available), tuple(must), size))
        return ["unknown", *sorted(available, reverse=True)[: size - len(must)], *must]

    config = configuration("best-effort", cpus="none", memory="None")
    devices = gpus((), (0,), (0,), (1,), (1,))
    manager = Node.fresh(machine(), config, devices, preferred_allocation=highest).kubelet.devices
    state = manager.allocate(
        DeviceState(), "u", "c", limits=(("vendor/gpu", count),), affinity=0b01, reusable={}
    )
    assert manager.resources["vendor/gpu"].ids(state.allocated["vendor/gpu"]) == given
    assert calls == ([] if asked is None else [("vendor/gpu", *asked)])


@pytest.mark.parametrize(
    ("count", "asked", "given"),
    [
        (1, None, ("gpu-1",)),  # what is reused is enough
        (2, (("gpu-1", "gpu-2", "gpu-3"), ("gpu-1",), 2), ("gpu-1", "gpu-3")),
        (3, None, ("gpu-1", "gpu-2", "gpu-3")),  # all that are aligned
        (
            4,
            (("gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4"), ("gpu-1", "gpu-2", "gpu-3"), 4),
            ("gpu-1", "gpu-2", "gpu-3", "gpu-4"),
        ),
    ],
)
def test_a_plugin_is_told_to_include_what_init_containers_leave(
    count: int, asked: tuple[tuple[str, ...], tuple[str, ...], int] | None, given: tuple[str, ...]
) -> None:
    calls: list[tuple[tuple[str, ...], tuple[str, ...], int]] = []

    def highest(_: str, available: Sequence[str], must: Sequence[str], size: int) -> Iterable[str]:
        calls.append((tuple(available), tuple(must), size))
        return [*sorted(set(available) - set(must), reverse=True)[: size - len(must)], *must]

    config = configuration("best-effort", cpus="none", memory="None")
    devices = gpus((), (0,), (0,), (0,), (1,))
    manager = Node.fresh(machine(), config, devices, preferred_allocation=highest).kubelet.devices
    left = DeviceState().assign("u", "init", "vendor/gpu", 0b00010)
    state = manager.allocate(
        left, "u", "c", limits=(("vendor/gpu", count),), affinity=0b01, reusable={"vendor/gpu": 0b00010}
    )
    assert manager.resources["vendor/gpu"].ids(state.assignments["u"]["c"]["vendor/gpu"]) == given
    assert calls == ([] if asked is None else [asked])


@pytest.mark.parametrize(
    ("affinity", "count", "given"),
    [
        (0b01, 1, ("gpu-3",)),
        (0b01, 2, ("gpu-1", "gpu-3")),  # of another NUMA node, though gpu-0 comes first
        (0b01, 3, ("gpu-1", "gpu-2", "gpu-3")),
        (0b01, 4, ("gpu-0", "gpu-1", "gpu-2", "gpu-3")),
        (0b10, 1, ("gpu-1",)),
        (None, 1, ("gpu-0",)),
        (None, 2, ("gpu-0", "gpu-1")),
    ],
)
def test_devices_without_topology_come_last_under_an_affinity(
    affinity: int | None, count: int, given: tuple[str, ...]
) -> None:
    devices = gpus((), (1,), (1,), (0,))
    manager = DeviceManager.start(devices, 0b11, over_hosting_nodes=True, skips_claimed=True)
    limits = (("vendor/gpu", count),)
    state = manager.allocate(DeviceState(), "u", "c", limits=limits, affinity=affinity, reusable={})
    assert manager.resources["vendor/gpu"].ids(state.allocated["vendor/gpu"]) == given


def test_hints_have_to_cover_what_may_be_reused() -> None:
    manager = DeviceManager.start(
        gpus((0,), (1,), (1,), ()), 0b11, over_hosting_nodes=True, skips_claimed=True
    )
    taken = DeviceState({"vendor/gpu": 0b0010})

    def found(count: int, reusable: int) -> tuple[Hint, ...]:
        (one,) = manager.container_hints(taken, "u", "c", (("vendor/gpu", count),), {"vendor/gpu": reusable})
        return one.all()

    assert found(1, 0b0010) == (Hint(0b10, True), Hint(0b11, False))
    assert found(2, 0b0010) == (Hint(0b10, True), Hint(0b11, False))
    assert found(3, 0b0010) == (Hint(0b11, True),)
    assert found(1, 0b1000) == (Hint(0b01, True), Hint(0b10, True), Hint(0b11, False))
    assert found(5, 0b0010) == (Hint(None, False),)


def test_numa_nodes_offer_free_devices_and_local_reusable_ones() -> None:
    manager = DeviceManager.start(
        gpus((0,), (1,), (1,), (), (0, 1)), 0b11, over_hosting_nodes=True, skips_claimed=True
    )
    resource = manager.resources["vendor/gpu"]
    state = DeviceState({"vendor/gpu": 0b00110})
    offered = {
        (mask, reusable): manager.offer(state, resource, mask, reusable)
        for mask in (0b01, 0b10, 0b11)
        for reusable in (0, 0b00010, 0b01000)
    }
    assert offered == {
        (0b01, 0): 2,
        (0b01, 0b00010): 2,
        (0b01, 0b01000): 2,
        (0b10, 0): 1,
        (0b10, 0b00010): 2,
        (0b10, 0b01000): 1,
        (0b11, 0): 2,
        (0b11, 0b00010): 3,
        (0b11, 0b01000): 2,
    }


def test_the_books_tell_who_has_which_devices() -> None:
    books = DeviceState().assign("u", "a", "vendor/gpu", 0b01).assign("u", "a", "vendor/nic", 0b1)
    books = books.assign("u", "b", "vendor/gpu", 0b10).assign("v", "a", "vendor/gpu", 0b100)
    assert books == DeviceState(
        {"vendor/gpu": 0b111, "vendor/nic": 0b1},
        {
            "u": {"a": {"vendor/gpu": 0b01, "vendor/nic": 0b1}, "b": {"vendor/gpu": 0b10}},
            "v": {"a": {"vendor/gpu": 0b100}},
        },
    )
    assert books.remove("u") == DeviceState({"vendor/gpu": 0b100}, {"v": {"a": {"vendor/gpu": 0b100}}})
    assert books.remove("nobody") is books


def test_unregistered_resource_is_rejected_while_held_and_skipped_otherwise() -> None:
    resource = DeviceResource.of("vendor/gpu", gpus((0,))["vendor/gpu"], registered=False)
    manager = DeviceManager({"vendor/gpu": resource}, 0b11)
    held = DeviceState().assign("other", "c", "vendor/gpu", 0b1)

    def allocate(state: DeviceState) -> DeviceState:
        limits = (("vendor/gpu", 1),)
        return manager.allocate(state, "u", "c", limits=limits, affinity=None, reusable={})

    with pytest.raises(Rejection, match="due to cannot allocate unregistered device vendor/gpu,"):
        allocate(held)
    assert allocate(held.remove("other")) == DeviceState()
    for state, lists in ((held, 1), (DeviceState(), 0)):
        hints = manager.container_hints(state, "u", "c", (("vendor/gpu", 1),), {})
        assert len(list(hints)) == lists


def test_resources_served_by_dynamic_resource_allocation_are_skipped() -> None:
    claimed = Pod.from_api(
        {
            "metadata": {"uid": "u"},
            "spec": {"containers": [container("c", vendor_gpu="5", vendor_nic="1")]},
            "status": {
                "extendedResourceClaimStatus": {
                    "requestMappings": [
                        {"containerName": "c", "resourceName": "vendor/gpu", "requestName": "r"}
                    ]
                }
            },
        }
    )
    devices = {**gpus((0,)), "vendor/nic": (Device("nic-0", (0,)),)}
    admission = admit(device_node("none", devices), claimed)
    assert admission.containers["c"].devices == {"vendor/nic": ("nic-0",)}


def test_an_id_twice_is_rejected() -> None:
    with pytest.raises(InvalidDevices, match="vendor/gpu: a device id appears twice"):
        DeviceManager.start(
            {"vendor/gpu": (Device("a"), Device("a"))}, 1, over_hosting_nodes=True, skips_claimed=True
        )


@pytest.mark.parametrize(
    ("container_", "count", "led"),
    [
        ("c", 1, ResourceHints("vendor/gpu", (0b1000,))),
        ("c", 2, unsatisfiable("vendor/gpu")),
        ("d", 1, ResourceHints("vendor/gpu", (0b0010,))),  # which has none of its own yet
        (None, 1, ResourceHints("vendor/gpu", (0b1000,))),
        (None, 2, unsatisfiable("vendor/gpu")),
    ],
)
def test_holder_of_devices_gets_hints_for_these_or_none(
    container_: str | None, count: int, led: ResourceHints
) -> None:
    """As a kubelet asks again for a pod that it admitted before a restart."""
    manager = DeviceManager.start(gpus((1,), (3,)), 0b1111, over_hosting_nodes=True, skips_claimed=True)
    held = DeviceState().assign("u", "c", "vendor/nic", 0b1).assign("u", "c", "vendor/gpu", 0b10)
    limits = (("vendor/gpu", count),)
    (found,) = (
        manager.pod_hints(held, "u", limits)
        if container_ is None
        else manager.container_hints(held, "u", container_, limits, {})
    )
    assert (found.preferred, found.any_numa, found.resource) == (led.preferred, led.any_numa, led.resource)


def test_hints_of_a_pod_cover_what_all_its_containers_hold() -> None:
    manager = DeviceManager.start(gpus((1,), (3,)), 0b1111, over_hosting_nodes=True, skips_claimed=True)
    held = DeviceState().assign("u", "c", "vendor/gpu", 0b01).assign("u", "d", "vendor/gpu", 0b10)
    (found,) = manager.pod_hints(held, "u", (("vendor/gpu", 2),))
    assert found.all() == (Hint(0b1010, True),)


@pytest.mark.parametrize(
    ("count", "healthy", "message"),
    [
        (1, True, ""),
        (2, True, 'pod "u" container "c" changed request for resource "vendor/gpu" from 1 to 2'),
        (1, False, "previously allocated devices are no longer healthy; cannot allocate unhealthy devices"),
    ],
)
def test_devices_held_before_a_restart_are_kept_or_explained(
    count: int, *, healthy: bool, message: str
) -> None:
    devices = {"vendor/gpu": (Device("gpu-0", (0,), healthy=healthy), Device("gpu-1", (1,)))}
    start = device_node("none", devices)
    held = {"u": {"c": {"vendor/gpu": ("gpu-0",)}}}
    again = Node.restore(KubeletManagers.start(start.config, start.machine, devices), device_assignments=held)
    admission = admit(again, pod("u", container("c", vendor_gpu=str(count))))
    assert rejection(admission).startswith(message)
    assert admission.admitted is (message == "")
    if admission.admitted:
        assert admission.node.device_assignments == held
