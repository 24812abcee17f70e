"""Laws of the allocator on random nodes, checked by code that shares nothing with its search."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations, product
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from numazones.apimachinery import quantity
from numazones.dra.allocated import AllocatedDevices
from numazones.dra.allocation import Allocated, AllocationOutcome, ClaimAllocation, DoesNotFit
from numazones.dra.allocator import Allocator
from numazones.dra.claims import DeviceClaim
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Slice
from numazones.dra.rules import rules
from numazones.dra.slices import AllocationNode, DeviceSlices
from tests.laws import examples
from tests.numazones.dra.building import GPU, NODE, device, device_class, resource_slice

NUMA = "resource.kubernetes.io/numaNode"
OWN = f"{GPU}/model"
SELECTORS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "true": lambda _: True,
    f'device.attributes["{GPU}"].?model.orValue("") == "big"': lambda one: model(one) == "big",
    'device.attributes["resource.kubernetes.io"].?numaNode.orValue(-1) < 1': lambda one: (
        numa(one) in (None, 0)
    ),
    f'"memory" in device.capacity["{GPU}"]': lambda one: "memory" in one["capacity"],
    "!device.allowMultipleAllocations": lambda one: not one.get("allowMultipleAllocations"),
}
"""Expression → the same, of an API object."""
Scenario = dict[str, Any]


def model(one: dict[str, Any]) -> str | None:
    found: str | None = one["attributes"].get("model", {}).get("string")
    return found


def numa(one: dict[str, Any]) -> int | None:
    found: int | None = one["attributes"].get(NUMA, {}).get("int")
    return found


@st.composite
def devices(draw: st.DrawFn, name: str) -> dict[str, Any]:
    attributes = {"model": {"string": draw(st.sampled_from(["big", "small"]))}} if draw(st.booleans()) else {}
    fields: dict[str, Any] = {"attributes": attributes, "capacity": {}}
    if draw(st.booleans()):
        fields["capacity"] = {"memory": {"value": str(draw(st.integers(2, 6)))}}
        fields["allowMultipleAllocations"] = draw(st.booleans())
    if draw(st.integers(0, 4)) == 0:
        fields["taints"] = [{"key": "broken", "effect": draw(st.sampled_from(["NoSchedule", "None"]))}]
    if draw(st.integers(0, 3)) == 0:
        amounts = {"slots": {"value": str(draw(st.integers(1, 3)))}}
        fields["consumesCounters"] = [{"counterSet": "set", "counters": amounts}]
    return device(name, draw(st.sampled_from([0, 1, None])), **fields)


@st.composite
def requests(draw: st.DrawFn, name: str) -> dict[str, Any]:
    exactly: dict[str, Any] = {
        "deviceClassName": "gpus",
        "allocationMode": "ExactCount",
        "count": draw(st.integers(1, 3)),
        "selectors": [
            {"cel": {"expression": text}}
            for text in draw(st.lists(st.sampled_from(sorted(SELECTORS)), max_size=2))
        ],
    }
    if draw(st.integers(0, 3)) == 0:
        exactly["tolerations"] = [{"operator": "Exists"}]
    if draw(st.integers(0, 3)) == 0:
        exactly["capacity"] = {"requests": {"memory": str(draw(st.integers(1, 4)))}}
    return {"name": name, "exactly": exactly}


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    found = [draw(devices(f"gpu-{at}")) for at in range(draw(st.integers(1, 7)))]
    cut = draw(st.integers(0, len(found)))
    counters = [{"name": "set", "counters": {"slots": {"value": str(draw(st.integers(1, 5)))}}}]
    slices = [
        resource_slice(*found[:cut], name="b", count=3),
        resource_slice(*found[cut:], name="a", count=3),
        resource_slice(name="c", count=3, sharedCounters=counters),
    ]
    claims = []
    for at in range(draw(st.integers(1, 2))):
        names = [f"r{r}" for r in range(draw(st.integers(1, 2)))]
        constraints = []
        if draw(st.booleans()):
            covered = draw(st.sampled_from([[], names[:1], names]))
            constraints.append({"matchAttribute": draw(st.sampled_from([NUMA, OWN])), "requests": covered})
        spec = {"requests": [draw(requests(name)) for name in names], "constraints": constraints}
        claims.append({"metadata": {"name": f"c{at}", "namespace": "team"}, "spec": {"devices": spec}})
    return {"slices": slices, "claims": claims, "held": draw(st.lists(st.integers(0, 6), max_size=2))}


def answer(scenario: Scenario, *, slices: list[dict[str, Any]] | None = None) -> AllocationOutcome:
    gpus = DeviceClass.from_api(device_class("gpus", f'device.driver == "{GPU}"'))
    allocator = Allocator(
        DeviceSlices(map(Slice.from_api, slices or scenario["slices"])),
        {"gpus": gpus},
        AllocatedDevices(frozenset((GPU, NODE, f"gpu-{at}") for at in scenario["held"])),
        rules("v1.36.3"),
    )
    return allocator.allocate(
        AllocationNode(NODE),
        [DeviceClaim.from_api(body) for body in scenario["claims"]],
    )


def published(scenario: Scenario) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for body in scenario["slices"] for one in body["spec"]["devices"]}


def tolerable(one: dict[str, Any], request: dict[str, Any]) -> bool:
    taints = [taint for taint in one.get("taints", ()) if taint["effect"] != "None"]
    return not taints or bool(request.get("tolerations"))


def wrongs(scenario: Scenario, allocations: tuple[ClaimAllocation, ...]) -> Iterator[str]:
    """Everything that an allocation violates."""
    known = published(scenario)
    used: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    for body, allocation in zip(scenario["claims"], allocations, strict=True):
        spec = body["spec"]["devices"]
        given: dict[str, list[dict[str, Any]]] = {}
        for result in allocation.devices:
            one = known[result.device.name]
            given.setdefault(result.request, []).append(one)
            used[one["name"]] += 1
            taken[one["name"]] += sum(amount.value() for amount in result.consumed.values())
        for request in spec["requests"]:
            yield from wrongs_of_request(request, given.get(request["name"], []))
        for constraint in spec["constraints"]:
            covered = constraint["requests"] or list(given)
            key = constraint["matchAttribute"].removeprefix(f"{GPU}/")
            values = [one["attributes"].get(key) for name in covered for one in given.get(name, ())]
            if None in values or any(value != values[0] for value in values):
                yield f"{key} differs: {values}"
    yield from wrongs_of_devices(scenario, used, taken)


def wrongs_of_request(request: dict[str, Any], given: list[dict[str, Any]]) -> Iterator[str]:
    exactly = request["exactly"]
    if len(given) != exactly["count"] or len({one["name"] for one in given}) != len(given):
        yield f"{request['name']} has {len(given)} devices"
    for one in given:
        for selector in exactly["selectors"]:
            if not SELECTORS[selector["cel"]["expression"]](one):
                yield f"{one['name']} is not selected"
        if not tolerable(one, exactly):
            yield f"{one['name']} is tainted"
        for name in exactly.get("capacity", {}).get("requests", {}):
            if name not in one["capacity"]:
                yield f"{one['name']} has no {name}"


def wrongs_of_devices(scenario: Scenario, used: Counter[str], taken: Counter[str]) -> Iterator[str]:
    known = published(scenario)
    for name, times in used.items():
        shareable = known[name].get("allowMultipleAllocations")
        if int(name.removeprefix("gpu-")) in scenario["held"]:
            yield f"{name} was taken before"
        if times > 1 and not shareable:
            yield f"{name} is given {times} times"
        if shareable and taken[name] > quantity.parse(known[name]["capacity"]["memory"]["value"]).value():
            yield f"more of {name} is given than there is"
    slots = [
        int(counters["counters"]["slots"]["value"])
        for name, one in known.items()
        if used[name] or int(name.removeprefix("gpu-")) in scenario["held"]
        for counters in one.get("consumesCounters", ())
    ]
    (total,) = (
        body["spec"]["sharedCounters"] for body in scenario["slices"] if "sharedCounters" in body["spec"]
    )
    taking = any(known[name].get("consumesCounters") for name in used)
    if taking and sum(slots) > int(total[0]["counters"]["slots"]["value"]):
        yield "more slots are taken than there are"


@given(scenarios())
@settings(max_examples=examples(500))
def test_what_is_allocated_satisfies_every_request_constraint_and_limit(scenario: Scenario) -> None:
    outcome = answer(scenario)
    assert isinstance(outcome, (Allocated, DoesNotFit))
    if isinstance(outcome, Allocated):
        assert list(wrongs(scenario, outcome.claims)) == []
    else:
        assert outcome.reason


@given(scenarios(), st.randoms(use_true_random=False))
@settings(max_examples=examples(300))
def test_the_order_of_slices_and_other_nodes_mean_nothing(scenario: Scenario, draw: random.Random) -> None:
    elsewhere = resource_slice(device("gpu-0", 0), name="d", pool="worker-2", node="worker-2")
    slices = [*scenario["slices"], elsewhere]
    draw.shuffle(slices)
    before, after = answer(scenario), answer(scenario, slices=slices)
    assert after == before
    assert after.steps == before.steps


@given(scenarios())
@settings(max_examples=examples(300))
def test_a_node_without_room_has_no_allocation_at_all(scenario: Scenario) -> None:
    """Every choice of devices is tried, where each device can be had once."""
    known = published(scenario)
    assume(not any(one.get("allowMultipleAllocations") for one in known.values()))
    outcome = answer(scenario)
    if isinstance(outcome, DoesNotFit):
        assert not any(True for _ in every_allocation(scenario))


def every_allocation(scenario: Scenario) -> Iterator[object]:
    known = published(scenario)
    free = {name for name in known if int(name.removeprefix("gpu-")) not in scenario["held"]}
    wanted = [
        [set(chosen) for chosen in combinations(sorted(free), request["exactly"]["count"])]
        for body in scenario["claims"]
        for request in body["spec"]["devices"]["requests"]
    ]
    for chosen in product(*wanted):
        if len(set().union(*chosen)) < sum(map(len, chosen)):
            continue
        if fits(scenario, [[known[name] for name in names] for names in chosen]):
            yield chosen


def fits(scenario: Scenario, chosen: list[list[dict[str, Any]]]) -> bool:
    left = iter(chosen)
    used: Counter[str] = Counter()
    for body in scenario["claims"]:
        spec = body["spec"]["devices"]
        given = {request["name"]: next(left) for request in spec["requests"]}
        for request in spec["requests"]:
            if any(wrongs_of_request(request, given[request["name"]])) or any(
                request["exactly"].get("capacity", {}).get("requests", {}).get("memory", "0")
                > one["capacity"].get("memory", {"value": "0"})["value"]
                for one in given[request["name"]]
            ):
                return False
            used.update(one["name"] for one in given[request["name"]])
        for constraint in spec["constraints"]:
            key = constraint["matchAttribute"].removeprefix(f"{GPU}/")
            covered = constraint["requests"] or list(given)
            values = [one["attributes"].get(key) for name in covered for one in given[name]]
            if None in values or any(value != values[0] for value in values):
                return False
    return not any(wrongs_of_devices(scenario, used, Counter()))
