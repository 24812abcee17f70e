"""The plugin and the page ask placements, and know no model."""

import re
from pathlib import Path

import pytest

from numazones.placement import models

ROOT = Path(__file__).parents[2]
FILES = [
    path
    for folder in ("kubectl", "program")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".py", ".js", ".css", ".html"}
]


def test_there_are_models_and_files_to_look_at() -> None:
    assert len(models.models()) > 1
    assert len(FILES) > 50


@pytest.mark.parametrize("model", models.models().values(), ids=lambda model: model.name)
def test_neither_plugin_nor_page_names_a_model(model: models.Model) -> None:
    packages = type(model).__module__.partition(".")[0]
    names = {model.name, model.source, model.decider, packages, *(kind.group for kind in model.objects)}
    pattern = re.compile("|".join(map(re.escape, names)), re.IGNORECASE)
    found = [
        str(path.relative_to(ROOT)) for path in FILES if pattern.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []
