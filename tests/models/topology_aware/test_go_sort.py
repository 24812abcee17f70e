"""Go's sorting."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones_topology_aware.go_sort import _Sorter, go_sorted


@given(st.lists(st.integers(0, 40), max_size=200))
def test_a_strict_order_is_sorted(items: list[int]) -> None:
    assert go_sorted(items, lambda one, other: one < other) == sorted(items)


@given(st.integers(0, 300), st.integers(1, 300), st.booleans())
def test_patterns_are_sorted(length: int, period: int, descending: bool) -> None:  # noqa: FBT001
    items = [-(number % period) if descending else number % period for number in range(length)]
    assert go_sorted(items, lambda one, other: one < other) == sorted(items)


@given(st.lists(st.integers(), min_size=13, max_size=150), st.randoms(use_true_random=False))
def test_an_erratic_comparison_still_ends_with_all_items(items: list[int], chance: random.Random) -> None:
    ordered = go_sorted(items, lambda _one, _other: chance.random() < 0.5)
    assert sorted(ordered) == sorted(items)


@given(st.lists(st.integers(0, 40), max_size=60))
def test_after_too_many_bad_pivots_a_heap_sort_ends_it(items: list[int]) -> None:
    ordered = list(items)
    _Sorter(ordered, lambda one, other: one < other).sort(0, len(ordered), limit=0)
    assert ordered == sorted(items)


@pytest.mark.parametrize("length", [13, 49, 50, 100, 1000])
def test_descending_items_are_turned_around(length: int) -> None:
    items = list(range(length, 0, -1))
    assert go_sorted(items, lambda one, other: one < other) == sorted(items)


@pytest.mark.parametrize("swapped", [(0, 1), (3, 4), (97, 98), (98, 99)])
def test_nearly_sorted_items_are_repaired(swapped: tuple[int, int]) -> None:
    items = list(range(100))
    one, other = swapped
    items[one], items[other] = items[other], items[one]
    assert go_sorted(items, lambda first, second: first < second) == sorted(items)


def test_up_to_twelve_unordered_items_stay_in_place() -> None:
    assert go_sorted(list("hellogoworld"), lambda _one, _other: False) == list("hellogoworld")


def test_always_true_comparison_reverses_up_to_twelve_items() -> None:
    assert go_sorted([1, 2, 3], lambda _one, _other: True) == [3, 2, 1]
