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
from click import Command, Context
from click.testing import Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checks.programs.kubectl.test_every_command import DUMP, READERS
from kubectl_numazones.documents import DOCUMENTS
from kubectl_numazones.kubectl_completion import main as complete
from kubectl_numazones.main import commands as program_commands
from kubectl_numazones.printing.output import _OutputType, filled
from kubectl_numazones.printing.zone_figures import ZoneFigures
from numazones.api.place import Place
from numazones.apimachinery.answer import parts_of
from numazones.apimachinery.jsonpath import InvalidJSONPath
from numazones.errors import NumazonesError
from tests import plugin
from tests.follow_advice import objects_of
from tests.kubectl.documented import differences, objects_in
from tests.kubectl.terminal import on_terminal
from tests.kubectl.test_advice_followed import REQUESTS, pod
from tests.laws import examples
from tests.places import DATA
from tests.random_clusters import SimulatedNode, clusters

RECORDING = DATA / "recordings/one-node"
DOCUMENT = {"items": [{"node": "a", "free": 1, "in": {"x": 2}}, {"node": "b", "free": None}]}


ASKED: dict[str, tuple[object, ...]] = {
    **{command: (*arguments, "-f", DUMP) for command, arguments in READERS.items()},
    "why, for several pods": ("why", "-A", "-f", DUMP),
    "replay": ("replay", RECORDING),
    "clean": ("clean", "--rejected", "-A", "-f", DUMP),
}
"""What is asked for each document; ``gate`` and ``idle`` need more than a dump, and are tested there."""
ANSWERED = sorted(set(DOCUMENTS) - {"gate", "idle"})


def answer(run: Callable[..., Result], *arguments: object) -> str:
    done = run(*arguments)
    assert done.exception is None, done.output
    return done.stdout


@pytest.mark.parametrize("name", ANSWERED)
def test_answer_has_the_fields_that_are_described_and_no_others(
    run: Callable[..., Result], name: str
) -> None:
    document = json.loads(answer(run, *ASKED[name], "-o", "json"))
    assert not list(differences(document, DOCUMENTS[name]))


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    cluster=clusters(most_pods=12),
    requests=REQUESTS,
    name=st.sampled_from(sorted(set(ANSWERED) - {"replay"})),
)
def test_of_any_cluster_every_field_is_described(
    cluster: tuple[list[SimulatedNode], list[Any]],
    requests: dict[str, str],
    name: str,
    run: Callable[..., Result],
    tmp_path: Path,
) -> None:
    nodes, _ = cluster
    by_name = {node.spec.name: node for node in nodes}
    rejected = pod("rejected", requests)
    rejected["spec"]["nodeName"] = nodes[0].spec.name
    rejected["status"] = {"phase": "Failed", "reason": "TopologyAffinityError", "message": "no"}
    gated = pod("gated", requests, schedulingGates=[{"name": "example.com/wait"}])
    dump = tmp_path / "dump.json"
    bodies = list(objects_of(by_name, [pod("stuck", requests), rejected, gated]))
    dump.write_text(json.dumps({"kind": "List", "items": bodies}))
    asked = {
        **ASKED,
        "why": ("why", "stuck", "-n", "team"),
        "who": ("who", nodes[0].spec.name),
        "size": ("size", "4xcpu=3,memory=1Gi", "--node", nodes[0].spec.name),
    }
    arguments = [item for item in asked[name] if item not in ("-f", DUMP)]
    done = run(*arguments, "-f", dump, "-o", "json")
    if done.exception is not None:  # what is not known has no document
        assert isinstance(done.exception, NumazonesError)
        return
    assert not list(differences(json.loads(done.stdout), DOCUMENTS[name]))


def test_every_field_says_what_it_is() -> None:
    for document in DOCUMENTS.values():
        for kind in objects_in(document):
            assert kind.__doc__
            for part in parts_of(kind):
                assert part.sentence, f"{kind.__name__}.{part.name}"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"node": "a", "numaIDs": [0]}, []),
        ({"node": "a"}, [".numaIDs is missing"]),
        ({"node": "a", "numaIDs": ["0"]}, [".numaIDs[0] is '0', and no int"]),
        ({"node": "a", "numaIDs": [0], "zone": 1}, [".zone is not described"]),
    ],
)
def test_what_is_not_as_described_is_found(value: Any, said: list[str]) -> None:
    assert list(differences(value, Place)) == said


@pytest.mark.parametrize("name", ANSWERED)
def test_yaml_says_the_same_as_json(run: Callable[..., Result], name: str) -> None:
    in_yaml = yaml.safe_load(answer(run, *ASKED[name], "-o", "yaml"))
    assert in_yaml == json.loads(answer(run, *ASKED[name], "-o", "json"))


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
    done = plugin.ended(*arguments)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tpo",), "unknown command 'tpo'; did you mean top?"),
        (("top", "-o", "jsn"), "unknown output format 'jsn'; did you mean json?"),
        (("top", "-o", "xml"), "use text, wide, name, json, yaml or jsonpath=…"),
        (("top", "-o", "jsonpath={.a"), "has unbalanced braces"),
        (("top", "-o", "jsonpath="), "jsonpath needs a template"),
        (("top", "--as-group", "admins"), "--as-group needs --as"),
    ],
)
def test_wrong_word_is_named_with_the_intended_one(arguments: tuple[str, ...], said: str) -> None:
    code, output = program(*arguments)
    assert code == 2
    assert said in output


@pytest.mark.parametrize("name", ANSWERED)
def test_a_template_is_filled_from_the_document_of_every_command(
    run: Callable[..., Result], name: str
) -> None:
    document = json.loads(answer(run, *ASKED[name], "-o", "json"))
    template = " ".join(f"{{.{field}}}" for field in document)
    assert answer(run, *ASKED[name], "-o", f"jsonpath={template}") == f"{filled(template, document)}\n"


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("who", "worker-1"), ["pod/web-1", "pod/cache-1"]),
        (("who", "worker-1", "0"), ["pod/web-1"]),
        (("why", "-A"), ["pod/trainer-1", "pod/trainer-2"]),
        (("fit", "cpu=3", "--replicas", "3"), ["node/worker-1", "node/worker-2"]),
    ],
)
def test_what_is_listed_is_named_for_pipes(
    run: Callable[..., Result], arguments: tuple[str, ...], names: list[str]
) -> None:
    assert sorted(answer(run, *arguments, "-f", DUMP, "-o", "name").splitlines()) == sorted(names)


def test_zones_are_named_as_kubectl_get_takes_them(run: Callable[..., Result]) -> None:
    assert answer(run, *ASKED["top"], "-o", "name").splitlines()[0] == "numazone.numazones.io/worker-1-numa-0"


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_names_of_nodes_stay_whole_on_every_terminal(columns: int) -> None:
    lines = on_terminal(columns, "top", "-f", DUMP).splitlines()
    assert max(map(len, lines)) <= columns
    assert [line.split()[0] for line in lines[1:5]] == ["worker-1", "worker-1", "worker-2", "worker-2"]
    assert ("POLICY" in lines[0]) == (columns >= 80)


def test_the_wide_table_leaves_nothing_out() -> None:
    output = on_terminal(80, "top", "-o", "wide", "-f", DUMP)
    assert "single-numa-node" in output
    assert "MEM-FREE" in output


def test_a_zone_is_named_as_its_object() -> None:
    assert ZoneFigures("worker-1", 3, "none", None, None, ()).name == "worker-1-numa-3"


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
    with_document = {
        name
        for name in program_commands.list_commands(Context(program_commands))
        if any(isinstance(option.type, _OutputType) for option in command_named(name).params)
    }
    assert {name.partition(",")[0] for name in DOCUMENTS} == with_document


def command_named(name: str) -> Command:
    found = program_commands.get_command(Context(program_commands), name)
    assert found is not None
    return found
