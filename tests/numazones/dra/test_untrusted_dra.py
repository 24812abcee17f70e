"""Objects of resource.k8s.io of any form: they are read, or it is said what is wrong with them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from numazones.api.dynamic_resources import by_numa
from numazones.apimachinery.api_object import InvalidObject
from numazones.dra.amounts import node_devices
from numazones.dra.claims import DeviceClaim
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Slice, pools_of
from tests.numazones.dra.building import NODE, claim, device, device_class, resource_slice, result

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("4Gi")
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_WHOLE = {
    "slice": resource_slice(
        device(
            "gpu-0",
            0,
            capacity={"memory": {"value": "80Gi"}},
            allowMultipleAllocations=True,
            consumesCounters=[{"counterSet": "c", "counters": {"slots": {"value": "1"}}}],
            taints=[{"key": "t", "effect": "None"}],
        ),
        sharedCounters=[{"name": "c", "counters": {"slots": {"value": "4"}}}],
    ),
    "claim": claim(
        result("gpu-0", shareID="1", consumedCapacity={"memory": "4Gi"}),
        pods=("uid",),
        constraints=[{"requests": ["one"], "matchAttribute": "resource.kubernetes.io/numaNode"}],
    ),
    "class": device_class("gpu", 'device.driver == "gpu.example"', resource="gpu.example/gpu"),
}


def paths(value: Any, so_far: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [so_far, *(path for key, item in inner for path in paths(item, (*so_far, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The document with something else at one place."""
    if not path:
        return new
    if isinstance(value, dict):
        return {**value, path[0]: replaced(value[path[0]], path[1:], new)}
    return [replaced(item, path[1:], new) if at == path[0] else item for at, item in enumerate(value)]


@given(st.data())
def test_any_value_at_any_place_is_read_or_named(data: st.DataObject) -> None:
    bodies = dict(_WHOLE)
    kind = data.draw(st.sampled_from(sorted(bodies)))
    bodies[kind] = replaced(bodies[kind], data.draw(st.sampled_from(paths(bodies[kind]))), data.draw(_JSON))
    try:
        one = Slice.from_api(bodies["slice"])
        asked = DeviceClaim.from_api(bodies["claim"])
        meant = DeviceClass.from_api(bodies["class"])
    except InvalidObject:
        return
    found = node_devices(NODE, pools_of([one]), [asked])
    for rows in by_numa(found, [meant], range(4)).values():
        for row in rows:
            if row.devices is not None:
                assert row.allocated is not None
                assert row.available is not None
                assert row.allocated <= row.devices
                assert 0 <= row.available <= row.devices
    assert found.allocated.keys() <= found.devices.keys()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=8),
)
def test_devices_are_free_or_allocated_and_admin_access_takes_none(
    devices: list[tuple[int, bool]], results: list[tuple[int, bool]]
) -> None:
    body = resource_slice(
        *(device(f"gpu-{at}", numa if known else None) for at, (numa, known) in enumerate(devices))
    )
    asked = [claim(result(f"gpu-{at}", adminAccess=admin)) for at, admin in results]
    found = node_devices(NODE, pools_of([Slice.from_api(body)]), map(DeviceClaim.from_api, asked))
    taken = {f"gpu-{at}" for at, admin in results if not admin}
    assert {name for *_, name in found.available} == {f"gpu-{at}" for at in range(len(devices))} - taken
    rows = [row for rows in by_numa(found, [], range(4)).values() for row in rows]
    assert sum(row.devices or 0 for row in rows) == len(devices)
    assert sum((row.allocated or 0) + (row.available or 0) for row in rows) == len(devices)
