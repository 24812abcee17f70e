"""Numbers agree with their nouns."""

import pytest

from numazones.wording import counted


@pytest.mark.parametrize(("number", "said"), [(0, "0 pods"), (1, "1 pod"), (2, "2 pods")])
def test_one_is_singular_and_none_is_plural(number: int, said: str) -> None:
    assert counted(number, "pod") == said
