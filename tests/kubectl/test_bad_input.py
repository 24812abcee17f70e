"""Bad input ends with one line that names the thing and the cure, and with a fitting exit code."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from kubectl_numazones.cluster import BadDump, NotThere
from numazones.errors import NumazonesError

Run = Callable[..., Result]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("cut.json", '{"kind": "List", "items": [{"ki', "is cut off or no JSON"),
        ("list.json", "[1, 2]", "not a Kubernetes object"),
        ("text.yaml", "just words", "not a Kubernetes object"),
        ("bad.yaml", "a: [", "is not valid YAML"),
        ("items.json", '{"kind": "List", "items": [3]}', "are not objects"),
        ("empty.json", '{"kind": "List", "items": []}', "holds no nodes"),
    ],
)
def test_a_dump_that_is_none_is_named(run: Run, tmp_path: Path, name: str, content: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    error = run("top", "-f", path).exception
    assert isinstance(error, NumazonesError)
    assert said in str(error)


def test_a_file_that_is_not_there_is_named(run: Run, tmp_path: Path) -> None:
    error = run("top", "-f", tmp_path / "nowhere.json").exception
    assert isinstance(error, BadDump)
    assert "nowhere.json: No such file" in str(error)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("why", "nobody"), "pod default/nobody is not among the 4 pods read"),
        (("why", "waiting"), "there is one in namespace team: -n team"),
        (("who", "nowhere"), "node nowhere is not among the 2 nodes read (worker-1, worker-2)"),
        (("who", "worker-1", "7"), "node worker-1 has no NUMA node 7; it has 0, 1"),
        (("why", "deploy/web"), "Deployment default/web owns none of the "),
    ],
)
def test_names_that_are_not_there_are_answered_with_those_that_are(
    run: Run, dump: Path, arguments: tuple[str, ...], said: str
) -> None:
    error = run(*arguments, "-f", dump).exception
    assert isinstance(error, NotThere)
    assert said in str(error)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("fit", "cpu=none"), 2, "is not a shape"),
        (("fit",), 2, "give either a SHAPE"),
        (("wy", "pod"), 2, "No such command 'wy'"),
        (("who", "nowhere"), 2, "error: node nowhere is not among"),
    ],
)
def test_the_program_ends_with_one_line_on_stderr(
    dump: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    extra = ("-f", str(dump)) if arguments[0] != "wy" else ()
    program = str(Path(sys.executable).with_name("kubectl-numazones"))
    ended = subprocess.run([program, *arguments, *extra], capture_output=True, text=True, check=False)
    assert ended.returncode == code
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not ended.stdout
