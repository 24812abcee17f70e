"""One name for one thing: no public class shares its name with another class or a type alias."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("numazones", "support", "exporter", "operator", "kubectl", "lab")


def alias_name(statement: ast.stmt) -> str:
    """Return the name of the type alias that a statement defines; empty if it defines none."""
    match statement:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value)
            | ast.AnnAssign(
                target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias"), value=ast.expr() as value
            )
        ) if name[0].isupper() and not name.isupper() and not isinstance(value, ast.Call):
            return name
    return ""


def shared_names(root: Path) -> dict[str, list[str]]:
    """Return class name → the modules that define it as a class or an alias, where there are several."""
    modules = defaultdict(list)
    classes = set()
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py")):
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.ClassDef):
                classes.add(statement.name)
            name = statement.name if isinstance(statement, ast.ClassDef) else alias_name(statement)
            if name and not name.startswith("_"):
                modules[name].append(str(path.relative_to(root)))
    return {name: found for name, found in modules.items() if name in classes and len(found) > 1}


def test_each_class_name_stands_for_one_thing() -> None:
    assert shared_names(ROOT) == {}


SHARED = {"Shape": ["kubectl/a.py", "lab/b.py"]}


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("class Shape: ...", "class Shape: ...", SHARED),
        ("Shape = dict[str, int]", "class Shape: ...", SHARED),
        ("class Shape: ...", "Shape: TypeAlias = dict[str, int]", SHARED),
        ("Shape = dict[str, int]", "Shape = dict[str, int]", {}),
        ("class Shape: ...", "Shape = TypeVar('Shape')", {}),
        ("class _Shape: ...", "class _Shape: ...", {}),
    ],
)
def test_second_class_or_alias_of_a_name_is_found(
    tmp_path: Path, first: str, second: str, found: dict[str, list[str]]
) -> None:
    for path, text in (("kubectl/a.py", first), ("lab/b.py", second)):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n", encoding="utf-8")
    assert shared_names(tmp_path) == found
