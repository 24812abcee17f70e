"""The three vectors that every implementation of the pods fingerprint must give."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.api.fingerprint import fingerprint

VECTORS = [
    (
        [("ns1", "n1"), ("ns1", "n2"), ("ns2", "n1"), ("ns3", "n1"), ("ns3", "n2")],
        "pfp0v001b92008c14168b3a6",
    ),
    ([], "pfp0v001ef46db3751d8e999"),
    ([("ns-1", "pod-1"), ("ns-2", "pod-2"), ("ns-2", "pod-3")], "pfp0v0013b68d754c0817837"),
]


@pytest.mark.parametrize(("pods", "expected"), VECTORS)
def test_vectors_of_version_1(pods: list[tuple[str, str]], expected: str) -> None:
    assert fingerprint(pods) == expected


names = st.tuples(st.text(max_size=5), st.text(max_size=5))


@given(st.lists(names), st.randoms())
def test_order_of_pods_does_not_matter_but_their_number_does(
    pods: list[tuple[str, str]], random: Random
) -> None:
    shuffled = pods.copy()
    random.shuffle(shuffled)
    assert fingerprint(shuffled) == fingerprint(pods)
    assert fingerprint([*pods, ("a", "b")]) != fingerprint(pods)
