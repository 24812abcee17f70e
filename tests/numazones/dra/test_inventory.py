"""Devices asked node by node: what comes one by one is the same as what is read at once."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.dra.amounts import node_devices
from numazones.dra.claims import DeviceClaim
from numazones.dra.devices import Slice
from numazones.dra.inventory import Inventory
from numazones.errors import ObjectFault
from tests.numazones.dra.building import GPU, claim, device, resource_slice, result

NODES = ("worker-1", "worker-2")


def slices(name: str, pool: str, node: str, generation: int, devices: int) -> Slice:
    return Slice.from_api(
        resource_slice(
            *(device(f"gpu-{at}", at % 2) for at in range(devices)),
            name=name,
            pool=pool,
            node=node,
            generation=generation,
        )
    )


_SLICES = st.builds(
    slices,
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["one", "two"]),
    st.sampled_from(NODES),
    st.integers(1, 2),
    st.integers(0, 3),
)
_RESULTS = st.builds(
    lambda at, pool: result(f"gpu-{at}", pool=pool), st.integers(0, 3), st.sampled_from(["one", "two"])
)
_CLAIMS = st.builds(
    lambda name, results: DeviceClaim.from_api(claim(*results, name=name)),
    st.sampled_from(["x", "y", "z"]),
    st.lists(_RESULTS, max_size=3),
)
_CHANGES = st.lists(st.tuples(_SLICES | _CLAIMS, st.booleans()), max_size=25)


@given(_CHANGES)
def test_it_follows_changes_and_names_the_nodes_concerned(changes: list[tuple[Any, bool]]) -> None:
    followed = Inventory()
    known: dict[tuple[type, str], Any] = {}
    for item, gone in changes:
        before = {node: followed.of(node) for node in NODES}
        key = (type(item), item.name)
        old, new = known.get(key), None if gone else item
        take: Any = followed.take_slice if isinstance(item, Slice) else followed.take_claim
        concerned = take(old, new)
        known.pop(key, None)
        if new is not None:
            known[key] = new
        fresh = Inventory(
            (one for one in known.values() if isinstance(one, Slice)),
            (one for one in known.values() if isinstance(one, DeviceClaim)),
        )
        for node in NODES:
            assert followed.of(node) == fresh.of(node)
            if node not in concerned:
                assert followed.of(node) == before[node]


@pytest.mark.parametrize("bad", ["ResourceClaim team/x", "ResourceSlice a"])
def test_what_raises_is_told_and_leaves_its_driver_incomplete(
    monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    told: list[ObjectFault] = []

    def picky(node: str, pools: Any, claims: Any) -> Any:
        pools, claims = list(pools), list(claims)
        if any(one.name == "x" for one in claims) if "Claim" in bad else pools:
            raise RecursionError("too deep")
        return node_devices(node, pools, claims)

    monkeypatch.setattr("numazones.dra.inventory.node_devices", picky)
    followed = Inventory(tell=told.append)
    followed.take_slice(None, slices("a", "one", "worker-1", 1, 2))
    for name, at in (("x", 0), ("y", 1)):
        followed.take_claim(None, DeviceClaim.from_api(claim(result(f"gpu-{at}", pool="one"), name=name)))
    assert followed.of("worker-1").incomplete == {GPU}
    assert [str(fault) for fault in told] == [f"{bad}: RecursionError: too deep"]
