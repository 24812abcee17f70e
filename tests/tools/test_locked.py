"""The lock of the demo is the part of the lock that its programs need."""

from tests.places import ROOT
from tools.locked import demo


def test_the_demos_lock_is_the_part_that_its_programs_need() -> None:
    assert (ROOT / "requirements-demo.txt").read_text() == demo(), "run: make lock"
    assert not {"mypy", "mkdocs", "playwright", "distributed"} & {
        line.partition("==")[0] for line in demo().splitlines()
    }
