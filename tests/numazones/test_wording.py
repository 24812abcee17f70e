"""Numbers agree with their nouns."""

import pytest

from numazones.wording import first_of, pluralize, some_of


@pytest.mark.parametrize(("number", "said"), [(0, "0 pods"), (1, "1 pod"), (2, "2 pods")])
def test_one_is_singular_and_none_is_plural(number: int, said: str) -> None:
    assert pluralize(number, "pod") == said


def test_of_many_names_some_are_told_and_how_many_more_there_are() -> None:
    assert some_of("ab", most=2) == "a, b"
    assert some_of("abcd", most=2) == "a, b and 2 more"
    assert first_of(["a"]) == "a"
    assert first_of(["a", "b", "c"]) == "a (and 2 more)"
