"""Go's sorting."""

from hypothesis import given
from hypothesis import strategies as st

from numazones.policies.topology_aware.go_sort import go_sorted


@given(st.lists(st.integers(0, 40), max_size=200))
def test_a_strict_order_is_sorted(items: list[int]) -> None:
    assert go_sorted(items, lambda one, other: one < other) == sorted(items)


@given(st.integers(0, 300), st.integers(1, 300), st.booleans())
def test_patterns_are_sorted(length: int, period: int, descending: bool) -> None:  # noqa: FBT001
    items = [-(number % period) if descending else number % period for number in range(length)]
    assert go_sorted(items, lambda one, other: one < other) == sorted(items)


def test_up_to_twelve_items_without_an_order_stay_where_they_are() -> None:
    assert go_sorted(list("hellogoworld"), lambda _one, _other: False) == list("hellogoworld")


def test_a_comparison_that_always_says_yes_turns_up_to_twelve_items_around() -> None:
    assert go_sorted([1, 2, 3], lambda _one, _other: True) == [3, 2, 1]
