"""Objects that change one by one: the allocator sees what it would see of all of them read afresh."""

import random
from typing import Any

from numazones.dra.allocated import AllocatedDevices
from numazones.dra.allocation import AllocationOutcome
from numazones.dra.claims import DeviceClaim
from numazones.dra.cluster_devices import ClusterDevices
from numazones.dra.device_classes import DeviceClass
from numazones.dra.device_tables import DeviceTables
from numazones.dra.devices import Slice
from numazones.dra.rules import AllocatorRules
from numazones.dra.slices import AllocationNode
from tests.numazones.dra.building import GPU, claim, device, device_class, resource_slice, result

VERSION, NEWER = "v1.36.3", "v1.36.4"
CLASS = DeviceClass.from_api(device_class(GPU, f'device.driver == "{GPU}"'))
ASKED = DeviceClaim.from_api(claim(name="asked"))
NODES = ("a", "b", "c")
COUNTERS = [{"name": "set", "counters": {"slots": {"value": "2"}}}]


def random_slice(draw: random.Random, name: str) -> Slice:
    node = draw.choice(NODES)
    everywhere: dict[str, Any] = {"allNodes": True}
    pool, reach = draw.choice([(node, {}), (node, {}), ("shared", everywhere)])
    names = draw.sample(["gpu-0", "gpu-1", "gpu-2"], draw.randint(1, 2))
    takes = [{"counterSet": "set", "counters": {"slots": {"value": "1"}}}]
    parts: dict[str, Any] = {"consumesCounters": takes} if draw.random() < 0.3 else {}
    body = resource_slice(
        *(device(one, draw.randint(0, 1), **parts) for one in names),
        name=name,
        pool=pool,
        node="" if reach else node,
        generation=draw.randint(1, 2),
        count=draw.randint(1, 2),
        **reach,
    )
    if draw.random() < 0.3:
        body["spec"] = {**body["spec"], "sharedCounters": COUNTERS, "devices": []}
    return Slice.from_api(body)


def random_claim(draw: random.Random, name: str) -> DeviceClaim:
    held = draw.sample(["gpu-0", "gpu-1", "gpu-2"], draw.randint(0, 2))
    where = {"pool": draw.choice([*NODES, "shared"])}
    shared: dict[str, Any] = {"shareID": name, "consumedCapacity": {"memory": "1Gi"}}
    shares = shared if draw.random() < 0.3 else {}
    return DeviceClaim.from_api(claim(*(result(one, **where, **shares) for one in held), name=name))


def outcomes(found: ClusterDevices) -> dict[str, tuple[type[AllocationOutcome], Any]]:
    said = {node: found.allocate(AllocationNode(node), [ASKED]) for node in NODES}
    return {
        node: (type(one), [given.key for part in getattr(one, "claims", ()) for given in part.devices])
        for node, one in said.items()
    }


def test_changing_objects_one_by_one_equals_reading_all_afresh() -> None:
    draw = random.Random(38)
    for _ in range(40):
        tables = DeviceTables()
        tables.take_version("a", VERSION)
        tables.take_class(None, CLASS)
        slices: dict[str, Slice] = {}
        claims: dict[str, DeviceClaim] = {}
        before: dict[str, Any] = {}
        for step in range(25):
            if step == 12:
                tables.take_version("b", NEWER)
            name = f"object-{draw.randint(0, 4)}"
            gone = draw.random() < 0.25
            if draw.random() < 0.6:
                new = None if gone else random_slice(draw, name)
                concerned = tables.take_slice(slices.pop(name, None), new)
                slices |= {} if new is None else {name: new}
            else:
                made = None if gone else random_claim(draw, name)
                concerned = tables.take_claim(claims.pop(name, None), made)
                claims |= {} if made is None else {name: made}
            if (current := tables.current) is None:
                assert not slices
                before = {}
                continue
            ordered = sorted(slices.values(), key=lambda one: one.name)
            fresh = ClusterDevices.of(
                ordered, [CLASS], claims.values(), version=NEWER if step >= 12 else VERSION
            )
            now = outcomes(current)
            assert now == outcomes(fresh)
            assert current.published.keys() == fresh.published.keys()
            if before and concerned is not None:
                changed = {node for node in NODES if before[node] != now[node]}
                assert changed <= set(concerned)
            before = now


def test_allocating_on_top_counts_as_allocated_and_copies_nothing() -> None:
    tables = DeviceTables()
    tables.take_version("a", VERSION)
    tables.take_class(None, CLASS)
    tables.take_slice(None, Slice.from_api(resource_slice(device("g0"), device("g1"), node="a", pool="a")))
    current = tables.current
    assert current is not None
    found = [current]
    given = []
    for _ in range(2):
        outcome = found[-1].allocate(AllocationNode("a"), [ASKED])
        given += [one.device.name for one in outcome.claims[0].devices]  # type: ignore[union-attr]
        found.append(found[-1].after(outcome))  # type: ignore[arg-type]
    assert given == ["g0", "g1"]
    assert outcomes(found[2])["a"][1] == []
    assert outcomes(current)["a"][1] == [(GPU, "a", "g0")]
    assert found[2].slices is current.slices
    tables.take_claim(None, DeviceClaim.from_api(claim(result("g0", pool="a"))))
    assert outcomes(current)["a"][1] == [(GPU, "a", "g1")]


def rules_of(tables: DeviceTables) -> AllocatorRules | str | None:
    return None if tables.current is None else tables.current.rules


def test_a_missing_right_makes_answers_unknown_by_name() -> None:
    tables = DeviceTables()
    assert rules_of(tables) is None
    assert tables.take_unreadable(["resourceslices.resource.k8s.io"])
    assert rules_of(tables) == "there is no permission to read resourceslices.resource.k8s.io"
    assert not tables.take_unreadable(["resourceslices.resource.k8s.io"])
    assert tables.take_unreadable([])
    assert rules_of(tables) is None


def test_the_newest_kubelet_decides_the_rules() -> None:
    tables = DeviceTables()
    assert tables.take_version("a", "v1.35.1")
    assert not tables.take_version("b", "v1.34.0")
    assert tables.take_version("c", VERSION)
    assert not tables.take_version("c", VERSION)
    assert tables.take_version("c", "")
    tables.take_slice(None, Slice.from_api(resource_slice(device("g"))))
    assert tables.current is not None
    assert tables.current.version == "v1.35.1"


def test_amounts_that_further_claims_take_are_added() -> None:
    def held(name: str, memory: str, *, whole: str) -> DeviceClaim:
        amounts: dict[str, Any] = {"shareID": name, "consumedCapacity": {"memory": memory}}
        return DeviceClaim.from_api(claim(result("gpu-0", **amounts), result(whole), name=name))

    claims = [
        held("a", "1Gi", whole="gpu-1"),
        held("b", "2Gi", whole="gpu-2"),
        held("c", "4Gi", whole="gpu-3"),
    ]
    first, *more = (AllocatedDevices.of_claims([one]) for one in claims)
    added = first
    for one in more:
        added = added.with_more(one)
    together = AllocatedDevices.of_claims(claims)
    assert {key: dict(taken) for key, taken in added.capacity.items()} == together.capacity
    assert (set(added.devices), set(added.shared)) == (together.devices, together.shared)
    assert first == AllocatedDevices.of_claims(claims[:1])
