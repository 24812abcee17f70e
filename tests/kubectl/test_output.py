"""The forms of answers: documents as they are described, templates, tables that fit, completion."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from pydantic import ConfigDict, TypeAdapter, with_config

from kubectl_numazones.documents import DOCUMENTS
from kubectl_numazones.kubectl_completion import main as complete
from kubectl_numazones.output import filled
from kubectl_numazones.zone_figures import Zone
from numazones.jsonpath import InvalidJSONPath
from tests.kubectl.terminal import PROGRAM, on_terminal
from tests.kubectl.test_every_command import DUMP, READERS

RECORDING = Path(__file__).parents[1] / "data/recordings/one-node"
DOCUMENT = {"items": [{"node": "a", "free": 1, "in": {"x": 2}}, {"node": "b", "free": None}]}


def answer(run: Callable[..., Result], command: str, form: str) -> str:
    arguments = READERS.get(command, (command, RECORDING))
    source = ("-f", DUMP) if command in READERS else ()
    done = run(*arguments, "-o", form, *source)
    assert done.exception is None, done.output
    return done.output


@pytest.mark.parametrize("command", sorted(DOCUMENTS))
def test_an_answer_has_the_fields_that_are_described_and_no_others(
    run: Callable[..., Result], command: str
) -> None:
    document = json.loads(answer(run, command, "json"))
    described = with_config(ConfigDict(extra="forbid", strict=True))(DOCUMENTS[command])
    TypeAdapter(described).validate_python(document)


@pytest.mark.parametrize("command", sorted(DOCUMENTS))
def test_yaml_says_the_same_as_json(run: Callable[..., Result], command: str) -> None:
    assert yaml.safe_load(answer(run, command, "yaml")) == json.loads(answer(run, command, "json"))


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.items[*].node}", "a b"),
        ("{.items[0]}", '{"node": "a", "free": 1, "in": {"x": 2}}'),
        ('{range .items[*]}{.node}{"\\t"}{.free}{"\\n"}{end}', "a\t1\nb\tnull\n"),
        ("{range .items[*]}[{range .in}{.x}{end}]{end}", "[2][]"),
        ('{.items[?(@.node=="b")].node} end', "b end"),
        ("{.missing}", ""),
        ("plain", "plain"),
    ],
)
def test_a_template_is_filled_as_kubectl_fills_it(template: str, text: str) -> None:
    assert filled(template, DOCUMENT) == text


@pytest.mark.parametrize("template", ["{end}", "{range .items[*]}", "{.items", "items}", "{.items[}"])
def test_a_template_that_is_none_is_an_error(template: str) -> None:
    with pytest.raises(InvalidJSONPath):
        filled(template, DOCUMENT)


def program(*arguments: object) -> tuple[int, str]:
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tpo",), "there is no command 'tpo'; did you mean top?"),
        (("top", "-o", "jsn"), "there is no form 'jsn'; did you mean json?"),
        (("top", "-o", "xml"), "there are text, wide, name, json, yaml and jsonpath=…"),
        (("top", "-o", "jsonpath={.a"), "has a brace too many or too few"),
        (("top", "-o", "jsonpath="), "jsonpath needs a template"),
        (("top", "--as-group", "admins"), "--as-group needs --as"),
    ],
)
def test_a_word_that_is_wrong_is_named_with_the_one_that_is_meant(
    arguments: tuple[str, ...], said: str
) -> None:
    code, output = program(*arguments)
    assert code == 2
    assert said in output


def test_zones_are_named_as_kubectl_get_takes_them(run: Callable[..., Result]) -> None:
    assert answer(run, "top", "name").splitlines()[0] == "numazone.numazones.io/worker-1-numa-0"


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_names_of_nodes_stay_whole_on_every_terminal(columns: int) -> None:
    lines = on_terminal(columns, "top", "-f", DUMP).splitlines()
    assert max(map(len, lines)) <= columns
    assert [line.split()[0] for line in lines[1:5]] == ["worker-1", "worker-1", "worker-2", "worker-2"]
    assert ("POLICY" in lines[0]) == (columns == 200)


def test_the_wide_table_leaves_nothing_out() -> None:
    output = on_terminal(80, "top", "-o", "wide", "-f", DUMP)
    assert "single-numa-node" in output
    assert "MEM-FREE" in output


def test_a_zone_is_named_as_its_object() -> None:
    assert Zone("worker-1", 3, "none", None, None, ()).name == "worker-1-numa-3"


def completed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    complete(list(words))
    return capsys.readouterr().out.splitlines()


def test_kubectl_completes_commands_options_and_forms(capsys: pytest.CaptureFixture[str]) -> None:
    assert [line.partition("\t")[0] for line in completed(capsys, "t")] == ["top", "tree", ":4"]
    assert completed(capsys, "top", "-o", "js") == ["json", "jsonpath=", ":4"]
    assert "--sort-by" in [line.partition("\t")[0] for line in completed(capsys, "top", "--so")]
    assert completed(capsys, "top", "-f", "") == [":0"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH")
def test_the_real_kubectl_finds_the_completion() -> None:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["kubectl", "__complete", "numazones", "wh"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == ["why", "who", "whatif", ":4"]


def test_every_command_with_a_document_is_described() -> None:
    without: set[Any] = {"why", "live", "tree", "report", "whatif", "sweep"}
    assert set(DOCUMENTS) == (set(READERS) | {"replay"}) - without
