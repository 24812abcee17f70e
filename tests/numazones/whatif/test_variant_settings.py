"""Differences between variants of an experiment, as people write them."""

import pytest

from numazones.prediction.node_choice import NodeChoice
from numazones.whatif.settings import IneffectiveSetting, parse_variant, split_variant


def test_the_scheduler_s_choice_is_told_from_settings_of_kubelets() -> None:
    settings = parse_variant(["topologyManagerScope=pod", " placement = best-fit "])
    assert settings == {"topologyManagerScope": "pod", "placement": "best-fit"}
    assert split_variant(settings) == ({"topologyManagerScope": "pod"}, NodeChoice.BEST_FIT)
    assert split_variant(parse_variant([])) == ({}, None)


def test_of_a_key_given_twice_the_last_value_counts() -> None:
    assert parse_variant(["placement=pack", "placement=exact"]) == {"placement": "exact"}


WAYS = "default, nrt, exact, pack, best-fit, scarce, shapes"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "placement=best",
            f"placement=best: unknown placement; use one of {WAYS}",
        ),
        (
            "placement=",
            f"placement=: unknown placement; use one of {WAYS}",
        ),
        ("placement", "'placement' is not a setting; write KEY=VALUE"),
        ("placements=pack", "placements is not a setting that affects admission; did you mean placement?"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(IneffectiveSetting) as error:
        parse_variant([text])
    assert str(error.value).startswith(message)
