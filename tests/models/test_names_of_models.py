"""Library and programs ask placements, and know no model."""

import re
from importlib.metadata import EntryPoint, entry_points

import pytest

from numazones.placement import models
from tests.places import ROOT

FOLDERS = (
    *("exporter", "kubectl", "numazones", "operator", "support"),
    *("lab/numazones_apiserver", "lab/numazones_simulator"),  # benchmarks measure models by name
)
FILES = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".py", ".js", ".css", ".html"}
]
WORDS = re.compile(
    # Words, also as parts of names in snake_case and CamelCase; a "primitive" is none.
    r"koord|topology[-_ ]?aware|(?<![a-z])nri(?![a-z])",
    re.IGNORECASE,
)


def test_there_are_models_and_files_to_look_at() -> None:
    assert len(models.models()) > 1
    assert len(FILES) > 300


@pytest.mark.parametrize("entry", entry_points(group=models.ENTRY_POINTS), ids=lambda entry: entry.name)
def test_neither_library_nor_programs_name_a_model(entry: EntryPoint) -> None:
    model, package = models.model(entry.name), entry.module.partition(".")[0]
    names = {model.name, model.source, model.decider, package, *(kind.group for kind in model.objects)}
    assert files_with(re.compile("|".join(map(re.escape, names)), re.IGNORECASE)) == []


def test_neither_library_nor_programs_speak_of_a_model() -> None:
    assert files_with(WORDS) == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("primitive", False),
        ("enriched", False),
        ("topology, aware of NUMA nodes", False),
        ("Koordinator's", True),
        ("koordlet", True),
        ("KoordScheduler", True),
        ("topology-aware", True),
        ("numazones_topology_aware", True),
        ("TopologyAwarePolicy", True),
        ("an NRI plugin", True),
        ("config.nri", True),
        ("nri_message", True),
    ],
)
def test_a_name_is_told_from_other_words(text: str, *, named: bool) -> None:
    assert bool(WORDS.search(text)) == named


def files_with(pattern: re.Pattern[str]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in FILES if pattern.search(path.read_text(encoding="utf-8"))]
