"""Memory per NUMA node: tables, groups, hints, blocks."""

from dataclasses import replace

import pytest

from numazones import cpuset
from numazones.kubelet import cures
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.config import InvalidConfiguration, KubeletConfiguration
from numazones.kubelet.explanation import explain
from numazones.kubelet.hints import Hint, ResourceHints, indifferent, unsatisfiable
from numazones.kubelet.machine import Machine, NUMANode
from numazones.kubelet.machine_state import Block
from numazones.kubelet.memory_manager import MemoryManager, MemoryState, hand_on, matching_reservations
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.kubelet.rejection import KubeletCrash, Rejection
from tests.numazones.kubelet.building import GI, configuration, container, machine, node, pod, sidecar

PAGES = machine(2, hugepages={2048: 512, 1048576: 2})


def memory_node(policy: str = "none", hardware: Machine | None = None, **config: object) -> Node:
    """Only the Memory Manager decides."""
    return node(hardware or machine(), policy=policy, cpus="none", **config)  # type: ignore[arg-type]


FRESH = memory_node("restricted")


def free(state: Node, kind: str = "memory") -> list[int]:
    return [numa.memory[kind].free for numa in state.machine_state.values()]


def groups(state: Node) -> list[tuple[int, ...]]:
    return [tuple(cpuset.ids(numa.cells)) for numa in state.machine_state.values()]


def asking(uid: str, memory: str, **limits: str) -> Pod:
    return pod(uid, container("c", "500m", memory, **limits))


def test_hugepages_and_reservations_are_taken_out_of_regular_memory() -> None:
    manager = MemoryManager.start(configuration(), PAGES)
    assert manager.allocatable == {
        "hugepages-1Gi": (2 * GI, 2 * GI),
        "hugepages-2Mi": (GI, GI),
        "memory": (12 * GI, 13 * GI),
    }


def test_excessive_memory_reservation_wraps_around_as_in_the_kubelet() -> None:
    small = machine(2, memory=GI // 2)
    assert MemoryManager.start(configuration(), small).allocatable["memory"] == (2**64 - GI // 2, GI // 2)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"memory": "static"}, 'unknown policy: "static"'),
        ({"memory": "BestEffort"}, 'policy "BestEffort" is not available for platform "linux"'),
        (
            {"reservedMemory": [], "systemReserved": {}},
            "[memorymanager] you should specify the system reserved memory",
        ),
        (
            {"reservedMemory": [{"numaNode": 7, "limits": {"memory": "1Gi"}}]},
            "the reserved memory configuration references a NUMA node 7 that does not exist on this machine",
        ),
        (
            {"systemReserved": {"memory": "1Gi"}, "evictionHard": {"memory.available": "100Mi"}},
            (
                'the total amount "1Gi" of type "memory" is not equal to the value "1124Mi" '
                "determined by Node Allocatable feature"
            ),
        ),
        (
            {
                "systemReserved": {"memory": "1500M"},
                "reservedMemory": [{"numaNode": 1, "limits": {"memory": "1G"}}],
            },
            (
                'the total amount "1G" of type "memory" is not equal to the value "1500M" '
                "determined by Node Allocatable feature"
            ),
        ),
        (
            {
                "systemReserved": {"memory": "1536Mi"},
                "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1.5Gi"}}],
            },
            "could not covert a variable of type Quantity to int64",
        ),
        (
            {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-2Mi": "2Mi"}}]},
            (
                'the total amount "2Mi" of type "hugepages-2Mi" is not equal to the value "0" '
                "determined by Node Allocatable feature"
            ),
        ),
    ],
)
def test_configurations_are_rejected_in_the_kubelets_words(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfiguration) as rejected:
        MemoryManager.start(configuration(**fields), machine())  # type: ignore[arg-type]
    assert str(rejected.value) == message


def test_an_eviction_threshold_in_percent_counts_to_the_byte() -> None:
    def config(memory: str) -> KubeletConfiguration:
        reserved = [{"numaNode": 1, "limits": {"memory": memory}}]
        return configuration(evictionHard={"memory.available": "5%"}, reservedMemory=reserved)

    # 1Gi of systemReserved, and of 32Gi the single-precision 5 % that the kubelet computes.
    right = GI + 1717986944
    assert MemoryManager.start(config(str(right)), machine()).static
    with pytest.raises(InvalidConfiguration) as rejected:
        MemoryManager.start(config("2Gi"), machine())
    assert str(rejected.value) == (
        'the total amount "2Gi" of type "memory" is not equal to the value "2791728768" '
        "determined by Node Allocatable feature"
    )
    assert rejected.value.cure.startswith("make reservedMemory add up to 2791728768 bytes, which is ")
    assert "by the same amount: 644245120 less;" in rejected.value.cure
    with pytest.raises(InvalidConfiguration) as rejected:
        MemoryManager.start(config(str(right + GI)), machine())
    assert "by the same amount: 1Gi more;" in rejected.value.cure
    with pytest.raises(InvalidConfiguration) as rejected:
        MemoryManager.start(configuration(systemReserved={}), machine())
    assert ", which is kubeReserved, systemReserved and evictionHard together, or " in rejected.value.cure


def test_hugepages_are_not_reserved() -> None:
    reserved = [{"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-2Mi": "2Mi"}}]
    with pytest.raises(InvalidConfiguration) as rejected:
        MemoryManager.start(configuration(reservedMemory=reserved), PAGES)
    assert rejected.value.cure == cures.no_reservation_of("hugepages-2Mi")


def test_nothing_is_assigned_under_policy_none() -> None:
    started = MemoryManager.start(configuration(memory="None"), machine())
    assert (started, started.initial_state()) == (MemoryManager(0b11), MemoryState())


def test_a_share_that_a_running_kubelet_has_accepted_is_right() -> None:
    """Covers memory that the kernel counts differently for the machine than for its NUMA nodes."""
    reserved = [{"numaNode": 0, "limits": {"memory": "2Gi"}}]
    config = configuration(evictionHard={"memory.available": "5%"}, reservedMemory=reserved)
    assert MemoryManager.start(config.accepted, machine()).static
    assert configuration().accepted == configuration()


@pytest.mark.parametrize(
    ("reserved", "matching"),
    [
        ([], {0: 3}),
        ([(1, "memory", 1)], {0: 2, 1: 1}),
        ([(0, "memory", 1), (1, "memory", 4)], {0: 1, 1: 2}),
        ([(0, "memory", 4), (1, "memory", 4)], {0: 3}),
        ([(1, "memory", 1), (1, "memory", 1)], {0: 1, 1: 2}),
        ([(1, "memory", 1), (1, "hugepages-1Gi", 1)], {0: 2, 1: 1}),
        ([(1, "memory", 1), (7, "memory", 1)], {0: 2, 1: 1}),  # there is no NUMA node 7
    ],
)
def test_matching_reservations_change_as_little_as_they_must(
    reserved: list[tuple[int, str, int]], matching: dict[int, int]
) -> None:
    entries = [{"numaNode": numa, "limits": {kind: f"{gib}Gi"}} for numa, kind, gib in reserved]
    config = configuration(reservedMemory=entries, systemReserved={"memory": "3Gi"})
    found = matching_reservations(config, machine())
    assert found is not None
    assert {entry.numa: entry.limits[0][1].canonical() for entry in found} == {
        numa: f"{gib}Gi" for numa, gib in matching.items()
    }
    assert MemoryManager.start(replace(config, reserved_memory=found), machine()).static


def test_one_numa_node_is_preferred_where_it_holds_enough() -> None:
    manager = MemoryManager.start(configuration(), machine())
    state = manager.initial_state()
    hints = manager.container_hints(state, "u", "c", (("memory", 4 * GI),), {})
    assert hints[0].all() == (Hint(0b01, True), Hint(0b10, True), Hint(0b11, False))
    wide = manager.container_hints(state, "u", "c", (("memory", 20 * GI),), {})
    assert wide[0].all() == (Hint(0b11, True),)
    assert manager.container_hints(state, "u", "c", (("memory", 40 * GI),), {})[0].all() == (
        Hint(None, True),
    )
    everything = sum(manager.allocatable["memory"])
    all_of_it = manager.container_hints(state, "u", "c", (("memory", everything),), {})
    assert all_of_it[0].all() == (Hint(0b11, True),)
    (too_much,) = manager.container_hints(state, "u", "c", (("memory", everything + 1),), {})
    assert (too_much.resource, too_much.all()) == ("memory", (Hint(None, True),))


def test_memory_hints_keep_grouped_and_single_numa_nodes_apart() -> None:
    grouped = admit(memory_node("restricted"), asking("wide", "20Gi")).node
    assert groups(grouped) == [(0, 1), (0, 1)]
    hints = grouped.kubelet.memory.container_hints(grouped.memory, "u", "c", (("memory", GI),), {})
    assert hints[0].all() == (Hint(0b11, False),)
    single = admit(memory_node("restricted"), asking("small", "1Gi")).node
    rejected = admit(single, asking("wide", "20Gi"))
    # No set of NUMA nodes is left, which counts as no preference: the rejection comes in the allocation.
    assert (rejected.reason, rejected.message) == (
        "UnexpectedAdmissionError",
        (
            "Allocate failed due to [memorymanager] preferred hint violates NUMA node allocation, "
            "which is unexpected"
        ),
    )


def test_two_groups_of_numa_nodes_are_not_mixed() -> None:
    first = admit(memory_node("restricted", machine(4)), asking("wide", "20Gi")).node
    both = admit(first, asking("wider", "21Gi")).node
    assert groups(both) == [(0, 1), (0, 1), (2, 3), (2, 3)]
    hints = both.kubelet.memory.container_hints(both.memory, "u", "c", (("memory", GI),), {})
    assert hints[0].all() == (Hint(0b0011, False), Hint(0b1100, False))


@pytest.mark.parametrize(
    ("users", "groups", "hints"),
    [
        ((1, 1), (0b11, 0b11), (Hint(0b11, False),)),
        ((0, 0), (0b11, 0b11), (Hint(0b11, False),)),  # as a state file may have it
        ((1, 1), (0b01, 0b11), (Hint(0b01, True),)),  # NUMA node 0 was used alone since
        ((1, 0), (0b01, 0b10), (Hint(0b01, True), Hint(0b10, True))),
    ],
)
def test_groups_decide_which_numa_nodes_go_together(
    users: tuple[int, ...], groups: tuple[int, ...], hints: tuple[Hint, ...]
) -> None:
    state = FRESH.memory._replace(users=users, groups=groups)
    (found,) = FRESH.kubelet.memory.container_hints(state, "u", "c", (("memory", GI),), {})
    assert found.all() == hints


def test_reusable_memory_suffices_where_none_is_free() -> None:
    full = admit(memory_node("restricted"), asking("all", "31Gi")).node
    assert free(full) == [0, 0]
    requests = (("memory", 31 * GI),)
    for reusable, hints in (
        ({(0b11, "memory"): 31 * GI}, (Hint(0b11, True),)),
        ({(0b11, "memory"): 31 * GI - 1}, (Hint(None, True),)),
        ({}, (Hint(None, True),)),
    ):
        assert full.kubelet.memory.given(full.memory, "hugepages-2Mi", 0b11) == 0
        found = full.kubelet.memory.container_hints(full.memory, "u", "c", requests, reusable)
        assert found[0].all() == hints
    elsewhere = {(0b01, "memory"): GI}
    (found_there,) = full.kubelet.memory.container_hints(full.memory, "u", "c", (("memory", 1),), elsewhere)
    assert found_there.all() == (Hint(None, True),)  # NUMA node 0 is in a group with 1


def test_request_for_a_whole_numa_node_fits() -> None:
    manager = MemoryManager.start(configuration(), machine())
    assert manager.allocatable["memory"] == (15 * GI, 16 * GI)
    for amount, fewest in (
        (0, 1),
        (15 * GI, 1),
        (16 * GI, 1),
        (16 * GI + 1, 2),
        (31 * GI, 2),
        (31 * GI + 1, 2),
    ):
        assert manager.fewest_numas((("memory", amount),)) == fewest, amount


def test_numa_nodes_offer_free_and_reusable_memory_outside_groups() -> None:
    start = memory_node("restricted", PAGES)
    single = admit(start, asking("small", "1Gi", **{"hugepages-2Mi": "256Mi"})).node
    grouped = admit(start, asking("wide", "20Gi")).node
    reusable = {(0b01, "memory"): GI, (0b10, "hugepages-2Mi"): 2 * GI}
    for state, kind, offered in (
        (start, "memory", {0b01: 13 * GI, 0b10: 13 * GI, 0b11: 25 * GI}),
        (start, "hugepages-2Mi", {0b01: GI, 0b10: 3 * GI, 0b11: 2 * GI}),
        (start, "hugepages-16Gi", {0b01: 0, 0b10: 0, 0b11: 0}),
        (single, "memory", {0b01: 12 * GI, 0b10: 13 * GI, 0b11: 0}),
        (grouped, "memory", {0b01: 0, 0b10: 0, 0b11: 5 * GI}),
    ):
        manager, memory = state.kubelet.memory, state.memory
        assert {mask: manager.offer(memory, kind, mask, reusable) for mask in offered} == offered, kind
    blocked = {
        mask: (
            single.kubelet.memory.is_blocked(single.memory, mask),
            grouped.kubelet.memory.is_blocked(grouped.memory, mask),
        )
        for mask in (0b01, 0b10, 0b11)
    }
    assert blocked == {0b01: (False, True), 0b10: (False, True), 0b11: (True, False)}
    assert start.kubelet.memory.total_allocatable("memory", 0b11) == 25 * GI
    assert start.kubelet.memory.total_allocatable("hugepages-16Gi", 0b11) == 0


SINGLE = admit(FRESH, asking("small", "1Gi")).node
GROUPED = admit(FRESH, asking("wide", "20Gi")).node
FIRST_FULL = admit(FRESH, asking("wide", "15Gi")).node


@pytest.mark.parametrize(
    ("start", "hint", "amount", "taken"),
    [
        (FRESH, Hint(None, False), GI, 0b01),
        (FRESH, Hint(None, True), 20 * GI, 0b11),
        (FRESH, Hint(0b10, True), GI, 0b10),
        (FRESH, Hint(0b01, True), 15 * GI, 0b01),
        (FRESH, Hint(0b01, False), 15 * GI + 1, 0b11),
        (FRESH, Hint(0b01, True), 15 * GI + 1, "failed to find the extended preferred hint"),  # 1 has room
        (FRESH, Hint(0b01, True), 20 * GI, 0b11),
        (FRESH, Hint(0b01, False), 40 * GI, "failed to find NUMA nodes to extend the current topology hint"),
        (
            FRESH,
            Hint(None, False),
            40 * GI,
            "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
        ),
        (GROUPED, Hint(None, False), GI, 0b11),
        (GROUPED, Hint(0b10, True), 11 * GI, 0b10),  # a single NUMA node with enough is not questioned
        (FIRST_FULL, Hint(None, False), GI, 0b10),
        (GROUPED, Hint(None, True), GI, "failed to find the default preferred hint"),
        (SINGLE, Hint(0b11, True), GI, "preferred hint violates NUMA node allocation"),
    ],
)
def test_memory_extends_beyond_the_affinity_if_that_is_too_small(
    start: Node, hint: Hint, amount: int, taken: int | str
) -> None:
    def allocate() -> MemoryState:
        return start.kubelet.memory.allocate(
            start.memory, "u", "c", requests=(("memory", amount),), hint=hint, reusable={}
        )

    if isinstance(taken, int):
        assert allocate().assignments["u"] == {"c": (Block(taken, "memory", amount),)}
        return
    with pytest.raises(Rejection) as rejected:
        allocate()
    assert rejected.value.message == f"Allocate failed due to [memorymanager] {taken}, which is unexpected"


def test_a_group_is_filled_in_ascending_order_and_drained_likewise() -> None:
    start = memory_node()
    wide = admit(start, asking("wide", "20Gi")).node
    assert free(wide) == [0, 11 * GI]
    assert remove(wide, "wide").memory == start.memory


def test_blocks_name_their_numa_nodes_and_full_size() -> None:
    admission = admit(memory_node("none", PAGES), asking("u", "1Gi", **{"hugepages-2Mi": "256Mi"}))
    assert admission.containers["c"].memory == (
        Block(0b1, "hugepages-2Mi", 256 << 20),
        Block(0b1, "memory", GI),
    )
    assert [numa.assignments for numa in admission.node.machine_state.values()] == [2, 0]


def test_init_containers_leave_their_memory_to_later_ones() -> None:
    start = memory_node("single-numa-node")
    asked = pod(
        "u", container("app", 1, "3Gi"), init=(container("init", 1, "4Gi"), sidecar("side", 1, "2Gi"))
    )
    admission = admit(start, asked)
    sizes = {name: [block.size for block in given.memory] for name, given in admission.containers.items()}
    # The init container's block shrinks by what later containers reuse of it.
    assert sizes == {"init": [0], "side": [2 * GI], "app": [3 * GI]}
    # Once the app runs, the init container holds nothing any more.
    assert free(admission.node) == [15 * GI - 5 * GI, 16 * GI]
    assert "init" not in admission.node.memory.assignments["u"]


def test_a_container_reuses_memory_of_several_init_containers() -> None:
    inits = (container("first", 1, "4Gi"), container("second", 1, "2Gi"))
    admission = admit(memory_node("single-numa-node"), pod("u", container("app", 1, "3Gi"), init=inits))
    sizes = {name: [block.size for block in given.memory] for name, given in admission.containers.items()}
    assert sizes == {"first": [0], "second": [GI], "app": [3 * GI]}


LEFT = {(0b01, "memory"): 4}


@pytest.mark.parametrize(
    ("block", "init", "left"),
    [
        (Block(0b01, "memory", 6), True, {(0b01, "memory"): 6}),
        (Block(0b01, "memory", 3), True, LEFT),
        (Block(0b01, "memory", 3), False, {(0b01, "memory"): 1}),
        (Block(0b01, "memory", 6), False, {(0b01, "memory"): 0}),
        (Block(0b10, "memory", 3), True, {**LEFT, (0b10, "memory"): 3}),
        (Block(0b10, "memory", 0), True, {**LEFT, (0b10, "memory"): 0}),
        (Block(0b10, "memory", 3), False, LEFT),
    ],
)
def test_later_containers_may_reuse_the_largest_init_container(
    block: Block, left: dict[tuple[int, str], int], *, init: bool
) -> None:
    assert hand_on(LEFT, [block], init=init) == left


@pytest.mark.parametrize("memory", ["1.5Gi", "100000Gi", "1500m"])
def test_amounts_that_the_kubelet_cannot_convert_are_rejected(memory: str) -> None:
    admission = admit(memory_node("single-numa-node"), asking("u", memory))
    assert admission.message == (
        "Allocate failed due to [memorymanager] failed to represent quantity as int64, which is unexpected"
    )
    assert explain(admission).shortfall


def test_init_container_gives_up_reused_memory_by_type() -> None:
    pages = {"hugepages-2Mi": "512Mi"}
    asked = pod("u", container("app", 1, "3Gi"), init=(container("init", 1, "4Gi", **pages),))
    admission = admit(memory_node("single-numa-node", PAGES), asked)
    assert admission.containers["init"].memory == (
        Block(0b1, "hugepages-2Mi", 512 << 20),
        Block(0b1, "memory", GI),
    )
    assert admission.containers["app"].memory == (Block(0b1, "memory", 3 * GI),)


def test_the_api_server_normalises_what_users_write() -> None:
    manifest = {"metadata": {"uid": "u"}, "spec": {"containers": [container("c", 1, "1.5Gi")]}}
    assert admit(memory_node(), Pod.from_manifest(manifest)).admitted


def test_a_hugepage_size_that_the_machine_lacks_crashes_the_kubelet() -> None:
    crash = (
        "the kubelet would crash: under the static Memory Manager, a Guaranteed pod requests "
        "hugepages-1Gi, which some NUMA nodes of this machine lack"
    )
    with pytest.raises(KubeletCrash, match=crash):
        admit(memory_node(), asking("u", "1Gi", **{"hugepages-1Gi": "1Gi"}))
    uneven = Machine(machine().cpus, (NUMANode(0, GI * 4, ((2048, 1),)), NUMANode(1, GI * 4)))
    with pytest.raises(KubeletCrash, match="hugepages-2Mi"):
        admit(memory_node("none", uneven), asking("u", "1Gi", **{"hugepages-2Mi": "2Mi"}))


def test_non_guaranteed_pods_get_no_exclusive_memory() -> None:
    burstable = {"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    assert admit(memory_node(), pod("u", burstable)).containers["c"].memory == ()


def test_best_effort_may_store_a_narrow_affinity_which_memory_widens() -> None:
    start = node(machine(2, cores=4), policy="best-effort")
    admission = admit(start, pod("u", container("c", 2, "20Gi")))
    given = admission.containers["c"]
    assert given.affinity == Hint(0b11, False)
    assert given.memory == (Block(0b11, "memory", 20 * GI),)


def test_container_that_holds_memory_gets_its_hint_or_none() -> None:
    """As a kubelet asks again for a pod that it admitted before a restart."""
    manager = memory_node().kubelet.memory
    state = MemoryState(
        users=(1, 0),
        groups=(0b01, 0b10),
        free=manager.allocatable,
        reserved=manager.initial_state().reserved,
    )
    state = state.record("u", "c", (Block(0b01, "memory", GI),)).record("u", "none", ())
    (same,) = manager.container_hints(state, "u", "c", (("memory", GI),), {})
    assert same == ResourceHints("memory", (0b01,))
    for container_, requests in (("c", (("memory", 2 * GI),)), ("c", ()), ("none", ())):
        assert manager.container_hints(state, "u", container_, requests, {}) == (indifferent("memory"),)
    twice = state.record("u", "c", (Block(0b01, "memory", GI), Block(0b10, "memory", GI)))
    asked = (("memory", GI), ("hugepages-2Mi", GI))
    assert manager.container_hints(twice, "u", "c", asked, {}) == (
        ResourceHints("memory", (0b01, 0b10)),
        unsatisfiable("hugepages-2Mi"),
    )
    assert manager.remove(state, "nobody", ["c"]) is state
    assert manager.remove(state, "u", ["unknown"]) == state


def test_memory_of_whole_pods_stays_recorded_beside_others() -> None:
    whole = {"whole": (Block(0b01, "memory", GI),)}
    state = FRESH.memory._replace(pods=whole)
    given = FRESH.kubelet.memory.allocate(
        state, "u", "c", requests=(("memory", GI),), hint=Hint(0b01, True), reusable={}
    )
    assert given.pods == given.record("u", "c", ()).pods == whole
    assert FRESH.kubelet.memory.remove(given, "u", ["c"]) == state
