"""Random numbers depend on seed, run and place, and on nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from numazones.whatif.random_numbers import RandomNumbers

random = st.builds(RandomNumbers, st.integers(0, 2**64), st.integers(0, 1000))


@given(random, st.integers(1, 10**6), st.integers(0, 1000))
def test_a_number_is_within_its_bound_and_always_the_same(
    drawn: RandomNumbers, bound: int, place: int
) -> None:
    number = drawn.below(bound, "place", place)
    assert 0 <= number < bound
    drawn.below(7, "elsewhere")
    assert drawn.below(bound, "place", place) == number


@given(random, st.lists(st.integers(), max_size=30))
def test_shuffling_keeps_all_items(drawn: RandomNumbers, items: list[int]) -> None:
    assert sorted(drawn.permutation(items)) == sorted(items)


def test_runs_and_seeds_differ_and_numbers_spread() -> None:
    numbers = [
        RandomNumbers(seed, run).below(10, "n", place)
        for seed in (1, 2)
        for run in (0, 1)
        for place in range(50)
    ]
    assert all(10 <= numbers.count(digit) <= 35 for digit in range(10))
    orders = {tuple(RandomNumbers(seed, run).permutation(range(20))) for seed in (1, 2) for run in range(20)}
    assert len(orders) == 40


def test_published_results_can_be_had_again() -> None:
    assert [RandomNumbers(1, 0).below(100, "n", place) for place in range(6)] == [71, 74, 92, 21, 79, 96]
