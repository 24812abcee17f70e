"""Memory zones: offers, over-commitment, what others are moved to."""

from collections.abc import Mapping

import pytest

from numazones import cpuset
from numazones.kubelet.demand import QOSClass
from numazones_topology_aware.memory import MemoryAllocator, MemoryState, NoMemory
from numazones_topology_aware.memory_types import DRAM, HBM, PMEM
from numazones_topology_aware.topology import MemoryNode, Topology
from tests.models.topology_aware.machines import GIB, hardware


def allocator(*, far: tuple[int, ...] = (), movable: str = "") -> MemoryAllocator:
    """Two sockets with a DRAM node of 2 GiB each, and nodes without CPUs."""
    nodes = Topology.discover(hardware(numas=1, far=far)).memory_nodes
    mask = cpuset.parse(movable)
    return MemoryAllocator(
        {
            number: MemoryNode(
                number, one.cpus, one.capacity, one.kind, not mask >> number & 1, one.distances
            )
            for number, one in nodes.items()
        }
    )


def take(
    memory: MemoryAllocator,
    state: MemoryState,
    owner: str,
    gib: float,
    nodes: str,
    *,
    types: int = DRAM,
    qos: str = "Guaranteed",
) -> tuple[str | None, Mapping[str, str], MemoryState]:
    """Zone, others' new zones, and the state with the offer taken if there was one."""
    offer, state = memory.offer(
        state, owner=owner, qos=QOSClass(qos), size=int(gib * GIB), affinity=cpuset.parse(nodes), types=types
    )
    if offer is None:
        return None, {}, state
    moves = {name: cpuset.format(zone) for name, zone in offer.moves.items()}
    return cpuset.format(offer.zone), moves, memory.commit(state, owner, offer)


def test_a_claim_is_served_near_its_pool() -> None:
    memory = allocator()
    zone, moves, state = take(memory, MemoryState(), "a", 1, "0")
    assert (zone, moves) == ("0", {})
    assert memory.free(state, cpuset.parse("0")) == GIB
    assert memory.free(state, cpuset.parse("0-1")) == 3 * GIB


@pytest.mark.parametrize(
    ("first", "second", "third", "moved"),
    [
        # lower QoS classes before higher ones
        (("a", 1.0, "Guaranteed"), ("b", 0.9, "Burstable"), 1.0, {"b": "0-1"}),
        (("a", 1.0, "BestEffort"), ("b", 0.9, "Burstable"), 1.0, {"a": "0-1"}),
        # smaller before larger ones
        (("a", 1.2, "Burstable"), ("b", 0.8, "Burstable"), 0.5, {"b": "0-1"}),
        # younger before older ones
        (("a", 1.0, "Burstable"), ("b", 1.0, "Burstable"), 0.5, {"b": "0-1"}),
    ],
)
def test_the_least_important_claims_are_moved_to_a_wider_zone(
    first: tuple[str, float, str], second: tuple[str, float, str], third: float, moved: dict[str, str]
) -> None:
    memory, state = allocator(), MemoryState()
    for name, size, qos in (first, second):
        _, _, state = take(memory, state, name, size, "0", qos=qos)
    zone, moves, state = take(memory, state, "c", third, "0")
    assert (zone, moves) == ("0", moved)
    for name, where in moved.items():
        assert cpuset.format(state.claims[name].zone) == where


def test_claim_larger_than_all_memory_gets_no_offer() -> None:
    memory = allocator()
    zone, _, state = take(memory, MemoryState(), "a", 5, "0")
    assert zone is None
    assert {cpuset.format(one): used for one, used in state.zones.items()} == {"0": 0, "0-1": 0}
    assert not state.claims


def test_empty_zones_are_gone_with_the_next_commit_or_removal() -> None:
    memory = allocator()
    _, _, state = take(memory, MemoryState(), "a", 5, "0")
    _, _, state = take(memory, state, "b", 1, "1")
    assert set(state.zones) == {cpuset.parse("1")}
    assert memory.remove(state, "b").zones == {}
    assert memory.remove(state, "unknown") is state


def test_one_owner_has_one_claim() -> None:
    memory = allocator()
    _, _, state = take(memory, MemoryState(), "a", 1, "0")
    assert take(memory, state, "a", 1, "0")[0] is None


def test_missing_types_are_added_from_the_nearest_nodes() -> None:
    memory = allocator(far=(8 * GIB, GIB))
    assert [memory.nodes[node].kind for node in (2, 3)] == [PMEM, HBM]
    assert take(memory, MemoryState(), "a", 1, "0", types=PMEM)[0] == "2"
    assert take(memory, MemoryState(), "a", 1, "0", types=DRAM | HBM)[0] == "0,3"
    assert take(memory, MemoryState(), "a", 1, "1", types=DRAM)[0] == "1"


def test_movable_memory_is_joined_by_normal_memory() -> None:
    memory = allocator(far=(8 * GIB,), movable="2")
    assert take(memory, MemoryState(), "a", 1, "2", types=PMEM)[0] == "0,2"


def test_without_any_normal_memory_nothing_is_offered() -> None:
    memory = allocator(movable="0-1")
    assert take(memory, MemoryState(), "a", 1, "0")[0] is None


def test_no_nodes_no_offer() -> None:
    assert take(allocator(), MemoryState(), "a", 1, "")[0] is None


def test_missing_memory_types_count_as_the_pools() -> None:
    assert take(allocator(), MemoryState(), "a", 1, "0", types=HBM)[0] == "0"


def test_zone_grows_by_the_nearest_nodes_of_all_wanted_types() -> None:
    memory = allocator(far=(8 * GIB, 8 * GIB))
    _, _, state = take(memory, MemoryState(), "a", 1, "2", types=PMEM)
    zones, state = memory.widen(state, "a", DRAM | PMEM)
    assert {name: cpuset.format(zone) for name, zone in zones.items()} == {"a": "0,2-3"}
    assert cpuset.parse("2") in state.zones  # left behind
    assert memory.widen(state, "a", DRAM | PMEM)[1] is state


def test_widening_needs_a_claim_nodes_and_memory() -> None:
    memory = allocator()
    with pytest.raises(NoMemory, match="has no memory claim"):
        memory.widen(MemoryState(), "a", DRAM)
    _, _, state = take(memory, MemoryState(), "a", 1, "0-1")
    with pytest.raises(NoMemory, match="no further NUMA nodes"):
        memory.widen(state, "a", DRAM | PMEM)


def test_types_of_memory_are_guessed_by_size() -> None:
    kinds = {
        number: node.kind
        for number, node in Topology.discover(hardware(numas=1, far=(GIB, 2 * GIB))).memory_nodes.items()
    }
    assert kinds == {0: DRAM, 1: DRAM, 2: HBM, 3: PMEM}
