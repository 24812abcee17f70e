"""A command reads of a dump what its answer needs, and loads what it reads with."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from kubectl_numazones.cluster import BadDump
from tests.kubectl.conftest import cluster, written

Run = Callable[..., Result]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_dumps_that_windows_shells_wrote_are_read(
    run: Run, dump: Path, tmp_path: Path, encoding: str
) -> None:
    path = tmp_path / "dump.json"
    path.write_text(dump.read_text(), encoding=encoding)
    assert run("top", "-f", path).output == run("top", "-f", dump).output != ""


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
        "sys.exit(7 if any(name.startswith('numazones.policies.') for name in sys.modules) else 0)"
    )
    ended = [
        subprocess.run(
            [sys.executable, "-c", program, *command, "-f", path], check=False, capture_output=True
        )
        for path in (dump, marked)
    ]
    assert [one.returncode for one in ended] == [0, 7]
