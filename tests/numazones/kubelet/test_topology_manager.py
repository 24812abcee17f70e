"""Merging hints: the fast way against a slow, obvious one, and the policies' rules."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numazones import cpuset
from numazones.kubelet import cures
from numazones.kubelet.config import InvalidConfiguration
from numazones.kubelet.hints import Hint, ResourceHints, indifferent, unsatisfiable
from numazones.kubelet.rejection import KubeletCrash, KubeletHang
from numazones.kubelet.topology_manager import TopologyManager
from tests.laws import examples
from tests.numazones.kubelet.building import configuration, machine
from tests.numazones.kubelet.slow_merge import slow_merge


@st.composite
def managers(draw: st.DrawFn) -> TopologyManager:
    numas = draw(st.integers(1, 5))
    distances = {
        numa: tuple(draw(st.sampled_from([10, 12, 20])) for _ in range(numas)) for numa in range(numas)
    }
    policy = draw(st.sampled_from(["best-effort", "restricted", "single-numa-node"]))
    closest = draw(st.booleans()) and policy != "single-numa-node"
    return TopologyManager(policy, False, (1 << numas) - 1, prefer_closest=closest, distances=distances)


@st.composite
def hints(draw: st.DrawFn, numa_mask: int) -> ResourceHints:
    kind = draw(st.sampled_from(["masks", "masks", "masks", "masks", "any", "none"]))
    if kind == "any":
        return indifferent("r")
    if kind == "none":
        return unsatisfiable("r")
    masks = draw(st.lists(st.integers(1, numa_mask), unique=True, min_size=1, max_size=9))
    preferred = tuple(mask for mask in masks if draw(st.booleans()))
    others = tuple(mask for mask in masks if mask not in preferred)
    return ResourceHints("r", preferred, lambda: others)


@st.composite
def cases(draw: st.DrawFn) -> tuple[TopologyManager, list[ResourceHints]]:
    manager = draw(managers())
    return manager, [draw(hints(manager.numa_mask)) for _ in range(draw(st.integers(0, 4)))]


@settings(max_examples=examples(600))
@given(cases())
def test_the_fast_merge_equals_the_full_cross_product(
    case: tuple[TopologyManager, list[ResourceHints]],
) -> None:
    manager, resources = case
    expected = slow_merge(manager, [resource.all() for resource in resources])
    merged, admitted = manager.merge(resources)
    if manager.policy == "best-effort":
        assert (merged, admitted) == (expected, True)
    else:
        assert admitted == expected.preferred
        if admitted:
            assert merged == expected
        elif manager.policy == "restricted":
            assert manager.merge_non_preferred(resources) == expected


@given(cases())
def test_the_order_of_resources_does_not_matter(case: tuple[TopologyManager, list[ResourceHints]]) -> None:
    manager, resources = case
    shuffled = list(reversed(resources))
    assert manager.merge(resources) == manager.merge(shuffled)


def listed(*preferred: int, others: tuple[int, ...] = ()) -> ResourceHints:
    return ResourceHints("r", preferred, lambda: others)


@pytest.mark.parametrize(
    ("policy", "resources", "merged", "admitted"),
    [
        ("best-effort", [], Hint(0b11, True), True),
        ("single-numa-node", [], Hint(None, True), True),
        ("restricted", [listed(0b10, 0b01)], Hint(0b01, True), True),
        ("restricted", [listed(0b01), listed(0b10)], Hint(None, False), False),
        ("best-effort", [listed(0b01), listed(0b10)], Hint(0b11, False), True),
        (
            "best-effort",
            [listed(0b01, others=(0b11,)), listed(0b10, others=(0b11,))],
            Hint(0b01, False),
            True,
        ),
        ("restricted", [listed(0b11)], Hint(0b11, True), True),
        ("single-numa-node", [listed(0b11)], Hint(None, False), False),
        ("best-effort", [unsatisfiable("r"), listed(0b10)], Hint(0b10, False), True),
        ("restricted", [unsatisfiable("r"), listed(0b10)], Hint(None, False), False),
        ("restricted", [indifferent("r"), listed(0b10)], Hint(0b10, True), True),
        ("best-effort", [unsatisfiable("r")], Hint(0b11, False), True),
        ("best-effort", [listed()], Hint(0b11, False), True),
    ],
)
def test_each_policy_merges_and_admits_by_its_rule(
    policy: str, resources: list[ResourceHints], merged: Hint, *, admitted: bool
) -> None:
    assert TopologyManager(policy, False, 0b11).merge(resources) == (merged, admitted)


@pytest.mark.parametrize(
    ("lists", "merged"),
    [
        ([(0b0011, 0b1100), (0b1100, 0b0110)], 0b1100),  # as many as the widest request needs
        ([(0b0011, 0b1100), (0b0011, 0b1100)], 0b0011),  # among equals the lowest
        ([(0b0011, 0b1100), (0b1100, 0b0101, 0b1010)], 0b1100),  # it must lie within a mask of each
        ([(0b0011,), (0b0110,)], 0b0010),  # fewer, if there is nothing better
        ([(0b0111, 0b1110), (0b0111,)], 0b0111),
        ([(0b01111,), (0b11100, 0b00011), (0b01110,)], 0b01100),  # of fewer, as many as possible
        ([(0b1, 0b11100, 0b1100000), (0b10, 0b11100, 0b1100000)], 0b1100000),  # of more, as few as possible
        ([(0b1, 0b11100), (0b11, 0b11100)], 0b1),  # fewer rather than more
        ([(0b0111, 0b1000), (0b1110, 0b1100000)], 0b0110),  # as many as needed, though nothing lists it
        ([(0b1,), (0b10,)], 0b1111111),  # nothing in common: all
        ([(0b10,), (0b100,)], 0b1111111),
        ([(), (0b100, 0b10)], 0b10),  # what cannot be had restricts nothing
        ([(), ()], 0b1111111),
    ],
)
def test_mask_closest_to_the_widest_request_wins_without_preferred_hint(
    lists: list[tuple[int, ...]], merged: int
) -> None:
    resources = [listed(others=masks) for masks in lists]
    manager = TopologyManager("best-effort", False, 0b1111111)
    assert manager.merge(resources) == (Hint(merged, False), True)
    assert slow_merge(manager, [resource.all() for resource in resources]) == Hint(merged, False)
    # The ids of NUMA nodes may have gaps.
    spread = [listed(others=tuple(map(_every_third, masks))) for masks in lists]
    gaps = TopologyManager("best-effort", False, _every_third(0b1111111))
    assert gaps.merge(spread) == (Hint(_every_third(merged), False), True)


def _every_third(mask: int) -> int:
    return sum(1 << 3 * numa for numa in cpuset.ids(mask))


@pytest.mark.parametrize(
    ("lists", "merged"),
    [
        ([(0b011, 0b101, 0b110), (0b011, 0b101, 0b110)], 0b110),
        ([(0b001, 0b010), (0b001, 0b010)], 0b001),  # one NUMA node is as near to itself as another
        ([(0b111, 0b001), (0b111, 0b010)], 0b001),
        ([(0b01111,), (0b11101,), (0b10110, 0b11010)], 0b01000),
    ],
)
def test_nearer_numa_nodes_are_taken_where_that_is_asked_for(
    lists: list[tuple[int, ...]], merged: int
) -> None:
    distances = {
        0: (10, 30, 20, 40, 40),
        1: (30, 10, 12, 40, 40),
        2: (20, 12, 10, 40, 40),
        3: (40, 40, 40, 9, 15),
        4: (40, 40, 40, 15, 10),
    }
    manager = TopologyManager("best-effort", False, 0b11111, prefer_closest=True, distances=distances)
    resources = [listed(others=masks) for masks in lists]
    assert manager.merge(resources) == (Hint(merged, False), True)
    assert slow_merge(manager, [resource.all() for resource in resources]) == Hint(merged, False)


def test_affinity_becomes_none_on_a_single_numa_node_machine() -> None:
    assert TopologyManager("single-numa-node", False, 0b1).merge([listed(0b1)]) == (Hint(None, True), True)
    assert TopologyManager("restricted", False, 0b1).merge([listed(0b1)]) == (Hint(0b1, True), True)


def test_closer_numa_nodes_win_if_asked_for() -> None:
    distances = {0: (10, 30, 20), 1: (30, 10, 12), 2: (20, 12, 10)}
    pairs = [listed(0b011, 0b101, 0b110)]
    assert TopologyManager("restricted", False, 0b111, distances=distances).merge(pairs)[0].affinity == 0b011
    closest = TopologyManager("restricted", False, 0b111, prefer_closest=True, distances=distances)
    assert closest.merge(pairs)[0].affinity == 0b110


def test_numa_id_gaps_crash_the_kubelet_on_distances() -> None:
    config = configuration("restricted", options={"prefer-closest-numa-nodes": "true"})
    manager = TopologyManager.start(config, machine(2, ids=(0, 3)))
    assert manager.merge([listed(0b0001)])[1]
    with pytest.raises(KubeletCrash) as crash:
        manager.merge([listed(0b0001, 0b1000)])
    assert str(crash.value) == (
        "the kubelet would crash: prefer-closest-numa-nodes compares distances of NUMA nodes 3, "
        "but the ids of this machine's NUMA nodes have gaps"
    )


def test_numa_id_gaps_crash_without_a_common_preferred_mask() -> None:
    config = configuration("best-effort", options={"prefer-closest-numa-nodes": "true"})
    manager = TopologyManager.start(config, machine(2, ids=(0, 3)))
    with pytest.raises(KubeletCrash, match="would crash"):
        manager.merge([listed(0b0001, others=(0b1000, 0b1001)), listed(0b1000, others=(0b0001, 0b1001))])


@pytest.mark.parametrize(("lower", "upper"), [(7, 13), (0, 2)])
def test_distances_that_no_comparison_asks_for_may_be_missing(lower: int, upper: int) -> None:
    config = configuration("best-effort", options={"prefer-closest-numa-nodes": "true"})
    manager = TopologyManager.start(config, machine(2, ids=(lower, upper)))
    hints = [listed(1 << lower), listed(others=(1 << lower | 1 << upper,))]
    assert manager.merge(hints) == (Hint(1 << lower, False), True)
    assert manager.merge([listed(others=(1 << upper,))]) == (Hint(1 << upper, False), True)
    assert manager.merge([listed(1 << lower, 1 << lower | 1 << upper)]) == (Hint(1 << lower, True), True)


def test_sixteen_numa_nodes_are_merged_without_blowing_up() -> None:
    manager = TopologyManager("best-effort", False, (1 << 16) - 1)
    wide = [
        listed(
            others=tuple(mask for mask in range(1, 1 << 16) if mask.bit_count() >= 8 and mask & 1 << shift)
        )
        for shift in range(3)
    ]
    assert manager.merge(wide) == (Hint(0b11111111, False), True)


def test_hints_on_few_numa_nodes_bound_the_search_over_many() -> None:
    lower, all_of_them = (1 << 12) - 1, (1 << 24) - 1
    hints = [listed(others=(lower,)), listed(others=(lower, all_of_them - lower))]
    assert TopologyManager("best-effort", False, all_of_them).merge(hints) == (Hint(lower, False), True)


@pytest.mark.parametrize(
    "manager",
    [
        TopologyManager("best-effort", False, 0b1111),
        TopologyManager("best-effort", False, 0b1001111),
        TopologyManager(
            "best-effort", False, 0b11, prefer_closest=True, distances=dict.fromkeys((0, 1), (1, 1))
        ),
    ],
)
def test_intersections_are_not_counted_if_the_best_one_shows(
    manager: TopologyManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(TopologyManager, "_intersections")
    hints = [listed(0b10, others=(0b11,)), listed(0b01, others=(0b11,))]
    assert manager.merge(hints) == (Hint(0b01, False), True)


WITHOUT_SCORE = 0


@pytest.mark.parametrize(
    ("strategy", "weights", "scores", "numa"),
    [
        # In percent of CPUs and of memory on NUMA nodes 0 and 1; a resource without a weight has weight 1.
        (-1, {"cpu": 1}, [(60, 10), (10, 50)], 0),
        (-1, {"cpu": 1}, [(60, 10), (20, 52)], 1),
        (1, {}, [(1, 1), (WITHOUT_SCORE, WITHOUT_SCORE)], 1),
        (-1, {}, [(WITHOUT_SCORE, WITHOUT_SCORE), (1, 1)], 1),
        (1, {}, [(90, WITHOUT_SCORE), (50, 60)], 1),
        (0, {}, [(1, 1), (9, 9)], 0),
    ],
)
def test_numa_nodes_are_scored_by_weighted_averages(
    strategy: int, weights: dict[str, int], scores: list[tuple[int, int]], numa: int
) -> None:
    manager = TopologyManager("restricted", False, 0b11, strategy=strategy, weights=weights)
    hints = [ResourceHints("cpu", (0b01, 0b10)), ResourceHints("memory", (0b01, 0b10))]
    merged, _ = manager.merge(
        hints, None, lambda resource, mask: scores[mask.bit_length() - 1][resource == "memory"]
    )
    assert merged == Hint(1 << numa, True)


def test_strategy_does_nothing_where_scores_are_not_known() -> None:
    manager = TopologyManager("best-effort", False, 0b11, strategy=-1)
    assert manager.merge([listed(0b01, 0b10)]) == (Hint(0b01, True), True)
    assert manager.merge_non_preferred([listed(others=(0b01, 0b10))]) == Hint(0b01, False)


@pytest.mark.parametrize(("numas", "hangs"), [(12, False), (13, True)])
def test_hints_of_many_numa_nodes_are_not_counted(numas: int, hangs: bool) -> None:  # noqa: FBT001
    manager = TopologyManager("restricted", False, (1 << numas) - 1)
    few = [ResourceHints(name, (0b1,), nodes=numas) for name in ("cpu", "memory", "vendor/gpu")]
    if not hangs:
        assert manager.merge(few) == (Hint(0b1, True), True)
        return
    with pytest.raises(KubeletHang, match=r"cpu \(8191\), memory \(8191\), vendor/gpu \(8191\)"):
        manager.merge(few)


# As in the reference's case "cycle": 0 and 1 are equal, 1 and 2 as well, and yet 2 is preferred to 0.
@pytest.mark.parametrize(
    ("preferred", "candidates", "winner"),
    [
        ({(2, 0)}, (0, 1, 2), 2),
        ({(1, 0), (2, 0)}, (0, 1, 2), 1),
        (set(), (0, 1), 0),
        ({(0, 1)}, (0, 1), 0),
        ({(5, 2)}, (2, 5), 5),
    ],
)
def test_the_tie_break_is_one_pass_by_increasing_numa_id(
    preferred: set[tuple[int, int]], candidates: tuple[int, ...], winner: int
) -> None:
    manager = TopologyManager("single-numa-node", False, 0xFF, prefer_most_allocated=True)
    hint, _ = manager.merge(
        [listed(*(1 << numa for numa in candidates))], lambda one, other: (one, other) in preferred
    )
    assert hint == Hint(1 << winner, True)


@pytest.mark.parametrize(
    ("options", "gates", "message"),
    [
        ({"nearest": "true"}, {}, 'unknown Topology Manager Policy option: "nearest"'),
        (
            {"prefer-closest-numa-nodes": "ja"},
            {},
            (
                'bad value for option "prefer-closest-numa-nodes": '
                'strconv.ParseBool: parsing "ja": invalid syntax'
            ),
        ),
        (
            {"max-allowable-numa-nodes": "7"},
            {},
            'the minimum value of "max-allowable-numa-nodes" should not be less than 8',
        ),
        (
            {"max-allowable-numa-nodes": "9223372036854775808"},
            {},
            (
                'unable to convert policy option to integer "max-allowable-numa-nodes": '
                'strconv.Atoi: parsing "9223372036854775808": value out of range'
            ),
        ),
        (
            {"prefer-most-allocated-numa-node": "yes"},
            {"TopologyManagerPolicyAlphaOptions": False},
            (
                "topology manager policy alpha-level options not enabled, "
                'but option "prefer-most-allocated-numa-node" provided'
            ),
        ),
    ],
)
def test_options_are_rejected_in_the_kubelets_words(
    options: dict[str, str], gates: dict[str, bool], message: str
) -> None:
    with pytest.raises(InvalidConfiguration) as rejected:
        TopologyManager.start(configuration("restricted", options=options, gates=gates), machine())
    assert str(rejected.value) == message


WIDER = {"max-allowable-numa-nodes": "9"}
BOTH = {"prefer-closest-numa-nodes": "true", "prefer-most-allocated-numa-node": "true"}
DISTANCES = {0: (10, 20), 1: (20, 10)}


@pytest.mark.parametrize(
    ("policy", "scope", "options", "started"),
    [
        ("none", "pod", BOTH, TopologyManager("none", False, 0b11)),
        ("restricted", "pod", {}, TopologyManager("restricted", True, 0b11, distances=DISTANCES)),
        ("restricted", "container", BOTH, TopologyManager("restricted", False, 0b11, True, False, DISTANCES)),
        ("best-effort", "pod", BOTH, TopologyManager("best-effort", True, 0b11, True, False, DISTANCES)),
        (
            "best-effort",
            "pod",
            {**WIDER, **BOTH},
            TopologyManager("best-effort", True, 0b11, True, False, DISTANCES),
        ),
        (
            "single-numa-node",
            "pod",
            BOTH,
            TopologyManager("single-numa-node", True, 0b11, False, True, DISTANCES),
        ),
        (
            "single-numa-node",
            "container",
            dict.fromkeys(BOTH, "false"),
            TopologyManager("single-numa-node", False, 0b11, False, False, DISTANCES),
        ),
    ],
)
def test_which_options_count_depends_on_the_policy(
    policy: str, scope: str, options: dict[str, str], started: TopologyManager
) -> None:
    assert TopologyManager.start(configuration(policy, scope=scope, options=options), machine()) == started


def test_policy_none_does_not_look_at_its_options() -> None:
    assert TopologyManager.start(configuration("none", options={"nearest": "x"}), machine()).policy == "none"


def test_misspelt_option_is_answered_with_the_one_meant() -> None:
    misspelt = configuration(options={"prefer-closest-numa-node": "true"})
    with pytest.raises(InvalidConfiguration) as rejected:
        TopologyManager.start(misspelt, machine())
    assert rejected.value.cure.endswith("did you mean prefer-closest-numa-nodes?")


def test_more_numa_nodes_than_allowed_are_rejected() -> None:
    beyond_masks = (*range(8), 64)
    for hardware, cure in (
        (machine(9, cores=1), cures.allowed_numa_nodes(9)),
        (machine(12, cores=1), cures.allowed_numa_nodes(12)),
        (machine(9, cores=1, ids=beyond_masks), cures.NO_ALIGNMENT),
        (machine(20), cures.NO_ALIGNMENT),
    ):
        message = "unsupported on machines with more than 8 NUMA Nodes"
        with pytest.raises(InvalidConfiguration, match=message) as rejected:
            TopologyManager.start(configuration("best-effort"), hardware)
        assert rejected.value.cure == cure
    wider = configuration("best-effort", options={"max-allowable-numa-nodes": "+9"})
    assert TopologyManager.start(wider, machine(9, cores=1)).numa_mask == 0x1FF


def test_unknown_distances_are_rejected_only_where_they_count() -> None:
    blind = machine(distances=False)
    assert TopologyManager.start(configuration("restricted"), blind).policy == "restricted"
    with pytest.raises(InvalidConfiguration) as rejected:
        TopologyManager.start(configuration("restricted", options={"prefer-closest-numa-nodes": "1"}), blind)
    assert str(rejected.value) == (
        "cannot discover NUMA topology: error getting NUMA distances from cadvisor"
    )
