"""One name for one thing: no two public classes of the product or the lab share a name."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("numazones", "support", "exporter", "operator", "kubectl", "lab")


def shared_names(root: Path) -> dict[str, list[str]]:
    """Return class name → the modules that define it, for public names with more than one."""
    modules = defaultdict(list)
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py")):
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
                modules[statement.name].append(str(path.relative_to(root)))
    return {name: found for name, found in modules.items() if len(found) > 1}


def test_each_class_name_stands_for_one_thing() -> None:
    assert shared_names(ROOT) == {}


@pytest.mark.parametrize(
    ("name", "found"), [("Shape", {"Shape": ["kubectl/a.py", "lab/b.py"]}), ("_Shape", {})]
)
def test_a_second_public_class_of_a_name_is_found(
    tmp_path: Path, name: str, found: dict[str, list[str]]
) -> None:
    for path in ("kubectl/a.py", "lab/b.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(f"class {name}:\n    pass\n", encoding="utf-8")
    assert shared_names(tmp_path) == found
