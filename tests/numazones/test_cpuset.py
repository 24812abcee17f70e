import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones import cpuset


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("", []),
        (" \n", []),
        ("0", [0]),
        ("0-3", [0, 1, 2, 3]),
        ("0-2,8", [0, 1, 2, 8]),
        ("8,0-2", [0, 1, 2, 8]),
        (" 1, 3-4\n", [1, 3, 4]),
        ("5-5", [5]),
        ("1,1-2", [1, 2]),
    ],
)
def test_the_linux_list_format_is_read(text: str, members: list[int]) -> None:
    assert list(cpuset.ids(cpuset.parse(text))) == members


@pytest.mark.parametrize(
    "text", ["a", "1-", "-1", "3-1", "1,,2", ",", "0x1", "0-3-5", "1 2", "65536", "0-99999999999"]
)
def test_other_texts_are_rejected_and_quoted(text: str) -> None:
    with pytest.raises(cpuset.InvalidCPUSet, match="is not a CPU list"):
        cpuset.parse(text)


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ([], ""),
        ([0], "0"),
        ([0, 1], "0-1"),
        ([0, 2], "0,2"),
        ([63, 64, 65, 200], "63-65,200"),
        ([3, 2, 1, 7], "1-3,7"),
    ],
)
def test_the_written_form_is_canonical(members: list[int], text: str) -> None:
    assert cpuset.format(cpuset.of(members)) == text


@given(st.sets(st.integers(0, 300)))
def test_writing_and_reading_returns_the_set(members: set[int]) -> None:
    cpus = cpuset.of(members)
    assert cpus.bit_count() == len(members)
    assert list(cpuset.ids(cpus)) == sorted(members)
    assert cpuset.parse(cpuset.format(cpus)) == cpus
