"""Merging hints: policies, exclusivity, the walk's order, messages."""

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones_koordinator.books import Use
from numazones_koordinator.combination import Found, Offer, Walk, replaces
from numazones_koordinator.status import Rejected, SchedulerCrash
from numazones_koordinator.topology_manager import (
    Exclusivity,
    Hint,
    Hints,
    Merging,
    exclusivity,
    mask_text,
)

FREE = Exclusivity(False, ())
IDLE, S, SH = Use.IDLE, Use.SINGLE, Use.SHARED


def likes(numas: int, score: int = 0) -> Hint:
    return Hint(numas, True, score)


def takes(numas: int, score: int = 0) -> Hint:
    return Hint(numas, False, score)


def merge(
    providers: Sequence[Hints | None], policy: str, *, numas: int = 2, exclusive: Exclusivity = FREE
) -> Hint:
    return Merging(policy, tuple(range(numas)), exclusive).best(providers)


@pytest.mark.parametrize(
    ("states", "numas", "word", "violated"),
    [
        ((IDLE, S), 0b01, "Preferred", False),
        ((SH, S), 0b11, "Preferred", False),
        ((SH, SH), 0b01, "", False),
        ((SH, SH), 0b01, "required", False),
        ((IDLE, S), 0b01, "Required", False),
        ((SH, S), 0b01, "Required", True),
        ((SH, SH), 0b01, "Required", True),
        ((S, SH), 0b01, "Required", False),
        ((SH, S), 0b11, "Required", True),
        ((SH, IDLE), 0b11, "Required", False),
        ((SH, SH), 0b11, "Required", False),
    ],
)
def test_exclusivity_separates_single_numa_node_pods_from_spanning_ones(
    states: tuple[Use, Use], numas: int, word: str, *, violated: bool
) -> None:
    assert exclusivity(word, states).violated_by(numas) is violated


def test_common_preferred_sets_rank_by_size_score_and_ids() -> None:
    cpu = [likes(0b01, 10), likes(0b10, 20), likes(0b11, 99)]
    memory = [likes(0b01, 10), likes(0b10, 20), likes(0b11, 99)]
    assert merge([{"cpu": cpu, "memory": memory}, None], "Restricted") == likes(0b10, 40)
    assert merge([{"cpu": [likes(1, 5), likes(2, 5)]}], "Restricted") == likes(0b01, 5)
    assert merge([{"cpu": [likes(0b11)]}, {"gpu": [likes(0b11, 500)]}], "BestEffort") == likes(0b11, 500)


def test_single_numa_node_takes_one_or_omits_whole_machine() -> None:
    hints = {"cpu": [likes(0b01), takes(0b11)]}
    assert merge([hints], "SingleNUMANode") == likes(0b01)
    assert merge([{"cpu": [likes(0b1)]}], "SingleNUMANode", numas=1) == Hint(None, True)
    assert merge([None], "SingleNUMANode") == Hint(None, True)
    with pytest.raises(Rejected, match=r"Unaligned NUMA Hint cause cpu prefer \[11\] among \[11\]"):
        merge([{"cpu": [likes(0b11)]}], "SingleNUMANode")


def test_resources_that_fit_nowhere_are_named() -> None:
    for policy in ("Restricted", "SingleNUMANode"):
        with pytest.raises(Rejected) as rejected:
            merge([{"memory": [], "cpu": [], "gpu": [likes(1)]}], policy)
        assert rejected.value.status.reasons == ("Unsatisfied NUMA cpu", "Unsatisfied NUMA memory")
    assert merge([{"memory": [], "cpu": [likes(1)]}], "BestEffort") == takes(0b11)


@pytest.mark.parametrize(("policy", "separator"), [("Restricted", " & "), ("SingleNUMANode", ",")])
def test_misalignment_is_reported_in_the_schedulers_words(policy: str, separator: str) -> None:
    with pytest.raises(Rejected) as rejected:
        merge([{"cpu": [likes(0b01), takes(0b11)]}, {"gpu": [likes(0b10)]}], policy)
    assert rejected.value.status.message == (
        f"Unaligned NUMA Hint cause cpu prefer [01] among [01 11]{separator}gpu prefer [10] among [10]"
    )


def test_best_effort_without_preferred_set_depends_on_walk_order() -> None:
    """Both NUMA nodes are shared; node 1 scores higher, but {0,1} with {0} comes late and is unsatisfied."""
    hints = [likes(0b01, 10), likes(0b10, 20), takes(0b11, 15)]
    exclusive = exclusivity("Required", (SH, SH))
    assert merge([{"cpu": hints, "memory": hints}], "BestEffort", exclusive=exclusive) == takes(0b11)
    assert merge([{"cpu": hints}], "BestEffort", exclusive=exclusive) == takes(0b10, 20)


def test_what_violates_exclusivity_loses_its_preference() -> None:
    hints: Hints = {"cpu": [likes(0b11, 50)]}
    exclusive = exclusivity("Required", (S, IDLE))
    assert merge([hints], "BestEffort", exclusive=exclusive) == takes(0b11, 50)
    with pytest.raises(Rejected, match="Unaligned"):
        merge([hints], "Restricted", exclusive=exclusive)
    with pytest.raises(Rejected, match=r"Unaligned NUMA Hint cause $"):
        merge([None], "Restricted", exclusive=exclusive)


def test_scheduler_crashes_on_words_and_ids_it_does_not_know() -> None:
    with pytest.raises(SchedulerCrash, match="'Strict' is not a NUMA topology policy"):
        merge([None], "Strict")
    gaps = Merging("Restricted", (0, 5), exclusivity("Required", (IDLE, IDLE)))
    with pytest.raises(SchedulerCrash, match="looks up NUMA node 5 in a list of 2"):
        gaps.best([{"cpu": [likes(1 << 5)]}])
    with pytest.raises(SchedulerCrash, match="looks up NUMA node 5"):
        gaps.best([{"cpu": []}])
    assert gaps.best([{"cpu": [likes(1)]}]) == likes(1)
    assert gaps.preferred_hint([{"cpu": [likes(1)]}]) is None
    spared = Merging("Restricted", (0, 5), exclusivity("Preferred", (IDLE, IDLE)))
    assert spared.best([{"cpu": [likes(1 << 5)]}]) == likes(1 << 5)


def test_devices_on_unlisted_numa_nodes_do_not_count() -> None:
    assert merge([None, {"gpu": [likes(0b110, 500)]}], "BestEffort") == takes(0b11)
    assert merge([None, {"gpu": [likes(0b110, 500)]}], "Restricted") == Hint(0b10, True, 0, unsatisfied=True)


@pytest.mark.parametrize(
    ("numas", "text"),
    [
        (1, "01"),
        (2, "10"),
        (3, "11"),
        (4, "100"),
        (5, "0101"),
        (7, "0111"),
        (8, "1000"),
        (15, "1111"),
        (16, "10000"),
        (17, "010001"),
        (1 << 63, "1" + "0" * 63),
        (None, "<nil>"),
    ],
)
def test_sets_are_printed_as_upstream_prints_them(numas: int | None, text: str) -> None:
    assert mask_text(numas) == text


NUMAS = 4
EVERY = (1 << NUMAS) - 1
offers = st.builds(
    lambda numas, score, named, unsatisfied: Offer(
        numas if named else EVERY, named, score if named else 0, unsatisfied
    ),
    st.integers(1, EVERY),
    st.integers(0, 3),
    st.sampled_from((True, True, True, False)),
    st.sampled_from((False, False, True)),
)


def walked(lists: list[list[Offer]]) -> Found:
    """The released walk, combination by combination."""
    best = Found(EVERY, 0, unsatisfied=False)
    for chosen in product(*lists):
        numas = EVERY
        for offer in chosen:
            numas &= offer.numas
        if not numas:
            continue
        named = [offer for offer in chosen if offer.named]
        widest = max((offer.numas.bit_count() for offer in named), default=0)
        unsatisfied = any(offer.unsatisfied for offer in chosen) or widest not in {0, numas.bit_count()}
        found = Found(numas, sum(offer.score for offer in named if offer.numas == numas), unsatisfied)
        if replaces(found, best):
            best = found
    return best


@given(st.lists(st.lists(offers, min_size=1, max_size=7), min_size=1, max_size=4))
def test_the_outcome_of_the_walk_is_found_without_walking(lists: list[list[Offer]]) -> None:
    assert Walk(lists).outcome(Found(EVERY, 0, unsatisfied=False)) == walked(lists)


hints = st.builds(Hint, st.integers(1, EVERY), st.booleans(), st.integers(0, 3))
in_order = st.lists(hints, min_size=1, max_size=8, unique_by=lambda hint: hint.numas).map(
    lambda found: sorted(found, key=lambda hint: ((hint.numas or 0).bit_count(), hint.numas))
)


@given(st.lists(in_order, min_size=1, max_size=3), st.lists(st.sampled_from(Use), min_size=4, max_size=4))
def test_a_preferred_set_is_found_as_by_the_released_walk(lists: list[list[Hint]], uses: list[Use]) -> None:
    """Preferred beats not, then as in the walk; sets that violate exclusivity are not preferred."""
    exclusive = exclusivity("Required", uses)
    best: Hint | None = None
    for chosen in product(*lists):
        numas = chosen[0].numas or 0
        preferred = all(hint.preferred and hint.numas == numas for hint in chosen)
        if preferred and not exclusive.violated_by(numas):
            hint = Hint(numas, True, sum(hint.score for hint in chosen))
            if best is None or replaces(
                Found(numas, hint.score, False), Found(best.numas or 0, best.score, False)
            ):
                best = hint
    providers = [{str(index): offered for index, offered in enumerate(lists)}]
    merging = Merging("BestEffort", tuple(range(NUMAS)), exclusive)
    assert merging.preferred_hint(providers) == best
    if best is not None:
        assert merging.best(providers) == best
