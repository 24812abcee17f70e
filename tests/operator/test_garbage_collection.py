"""Full collections look at nothing that has outlived one; circles that ended since go within the hour."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from numazones_operator.garbage_collection import EVERYTHING_AFTER, GarbageCollection


class Circle:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


class Clock:
    """Stands still until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def collecting(clock: Clock) -> Iterator[None]:
    gc.collect()
    with GarbageCollection(clock=clock):
        yield


def test_what_outlives_a_full_collection_is_not_looked_at_again() -> None:
    mirror = [Circle()]
    assert any(one is mirror for one in gc.get_objects())
    gc.collect()
    assert not any(one is mirror for one in gc.get_objects())


def test_collections_of_the_young_set_nothing_aside() -> None:
    mirror = [Circle()]
    gc.collect(1)
    assert any(one is mirror for one in gc.get_objects())


def test_circles_that_ended_before_a_full_collection_go() -> None:
    ended = weakref.ref(Circle())
    gc.collect()
    assert ended() is None


def test_circles_that_lived_through_one_go_within_the_hour(clock: Clock) -> None:
    circle = Circle()
    ended = weakref.ref(circle)
    gc.collect()
    del circle
    gc.collect()
    assert ended() is not None
    clock.now += EVERYTHING_AFTER
    gc.collect()
    assert ended() is None


def test_at_the_end_everything_is_looked_at_again(clock: Clock) -> None:
    mirror = [Circle()]
    with GarbageCollection(clock=clock):
        gc.collect()
    assert any(one is mirror for one in gc.get_objects())
