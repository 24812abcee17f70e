"""A command reads of a dump what its answer needs, and loads what it reads with."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from kubectl_numazones.reading.bad_dump import BadDump
from tests.kubectl.small_cluster import cluster, written

Run = Callable[..., Result]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_dumps_that_windows_shells_wrote_are_read(
    run: Run, dump: Path, tmp_path: Path, encoding: str
) -> None:
    path = tmp_path / "dump.json"
    path.write_text(dump.read_text(), encoding=encoding)
    assert run("top", "-f", path).output == run("top", "-f", dump).output != ""


def lists_by_kind(items: list[Any]) -> str:
    """Lists as the API server has them, one a line: their items do not tell their kind."""
    kinds = {item["kind"] for item in items}
    return "\n".join(
        json.dumps(
            {
                "kind": f"{kind}List",
                "items": [
                    {key: part for key, part in item.items() if key != "kind"}
                    for item in items
                    if item["kind"] == kind
                ],
            }
        )
        for kind in sorted(kinds)
    )


FORMS: dict[str, Callable[[list[Any]], str]] = {
    "indented": lambda items: json.dumps({"apiVersion": "v1", "items": items, "kind": "List"}, indent=4),
    "the kind last": lambda items: json.dumps(
        {"kind": "List", "items": [dict(reversed(item.items())) for item in items]}
    ),
    "escaped": lambda items: json.dumps({"kind": "List", "items": items}).replace('"Pod"', '"\\u0050od"'),
    "every object twice": lambda items: json.dumps({"kind": "List", "items": items + items}),
    "lists in YAML": lambda items: yaml.safe_dump({"kind": "List", "items": items}),
    "a YAML stream": yaml.safe_dump_all,
    "lists by kind": lists_by_kind,
}


@pytest.mark.parametrize("command", [("top",), ("why", "team/waiting"), ("doctor",)])
@pytest.mark.parametrize("form", FORMS)
def test_objects_are_the_same_in_whatever_form_they_come(
    run: Run, dump: Path, tmp_path: Path, form: str, command: tuple[str, ...]
) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    suffix = "yaml" if "YAML" in form else "json"
    texts = FORMS[form](cluster())
    for number, text in enumerate(texts.split("\n") if form == "lists by kind" else [texts]):
        (folder / f"{number}.{suffix}").write_text(text)
    assert run(*command, "-f", folder).output == run(*command, "-f", dump).output != ""


def test_invalid_object_is_named_however_late_it_comes(run: Run, dump: Path, tmp_path: Path) -> None:
    bad = written(tmp_path / "bad.json", [*cluster(), 7])
    for command in (("top",), ("why", "team/waiting")):
        said = run(*command, "-f", bad).exception
        assert isinstance(said, BadDump)
        assert str(said) == f"{bad}: the items of its List are not objects"


def test_top_answers_although_a_pod_has_not_its_form(run: Run, dump: Path, tmp_path: Path) -> None:
    items = cluster()
    next(item for item in items if item["kind"] == "Pod")["spec"]["containers"] = "none"
    bad = written(tmp_path / "bad.json", items)
    assert run("top", "-f", bad).output == run("top", "-f", dump).output
    assert isinstance(run("why", "team/waiting", "-f", bad).exception, BadDump)


@pytest.mark.parametrize("command", [("top",), ("why", "team/waiting"), ("fit", "cpu=1")])
def test_other_placement_models_are_loaded_where_a_node_shows_one(
    command: tuple[str, ...], dump: Path, tmp_path: Path
) -> None:
    items = json.loads(dump.read_text())["items"]
    items[0]["metadata"]["labels"]["node.koordinator.sh/cpu-bind-policy"] = "FullPCPUsOnly"
    marked = written(tmp_path / "marked.json", items)
    program = (
        "import sys; from kubectl_numazones.main import commands;"
        "commands.main(sys.argv[1:], standalone_mode=False);"
        "sys.exit(7 if 'numazones_koordinator.placement' in sys.modules else 0)"
    )
    ended = [
        subprocess.run(
            [sys.executable, "-c", program, *command, "-f", path], check=False, capture_output=True
        )
        for path in (dump, marked)
    ]
    assert [one.returncode for one in ended] == [0, 7]
