"""Damaged input to every command that reads files: one line that names it, or an answer; never a traceback.

Seeded, so that a failure comes back: values of every field of every kind are replaced or dropped, files are
cut or overwritten.
"""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import yaml
from click.testing import Result

from kubectl_numazones.reading import recording
from kubectl_numazones.reading.bad_dump import BadDump
from numazones.errors import NumazonesError
from numazones.kubelet.machine import Machine
from tests.kubectl.healthy_cluster import healthy
from tests.kubectl.small_cluster import written
from tests.places import DATA

Run = Callable[..., Result]
DATA = DATA / "kubectl"
RECORDED = DATA / "recorded"
_LONGEST = 1000
COMMANDS: dict[str, tuple[object, ...]] = {
    "size": ("size", "4xcpu=2,memory=1Gi", "--node", "worker-1"),
    "plan": ("plan", "--effort", "50"),
    "why-not": ("plan", "--why-not", "team/web-1"),
    "report": ("report", "-o", "/dev/null"),
    "whatif": ("whatif", "--set", "topologyManagerPolicy=restricted", "--runs", "1"),
    "sweep": (
        "sweep",
        "--vary",
        "topologyManagerPolicy=restricted",
        "--vary",
        "topologyManagerScope=pod",
        "--runs",
        "1",
    ),
    "doctor": ("doctor",),
    "live": ("live",),
    "why": ("why", "trainer-1", "-n", "team"),
}
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 3, 1e308, 10**40, float("nan"), "", "x", "\0", "-5", "UnknownPolicy"),
    *("0-99999999999", "99999999999999999999999Ei", "1e999999", "9999999999999"),
    *([], [[]], [None], ["x"], {}, {"a": 1}, json.loads("[" * 300 + "]" * 300)),
)
CONTENTS = (
    *(b"", b"\0" * 10, b"\xff\xfe\0garbage", b"\x1f\x8b\x08\0", b"{", b"[]", b"null", b"3", b'"x"', b"{}"),
    *(b"[" * 100_000, b"- " * 100_000, b"kind: [", b"a: &a [*a]\n", b'{"kind": "List", "items": [null]}'),
)
OTHERS: list[dict[str, Any]] = [
    {
        "apiVersion": "numazones.io/v1alpha1",
        "kind": "RebalanceRecommendation",
        "metadata": {"name": "room-1"},
        "spec": {
            "goal": "pod team/trainer",
            "moves": [{"pod": {"namespace": "team", "name": "web-1"}, "target": {"node": "worker-2"}}],
            "placements": [{"pod": {"namespace": "team", "name": "trainer"}}],
            "gain": {"before": 0, "after": 1},
        },
        "status": {"phase": "Proposed"},
    },
    {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "team"},
        "spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}},
        "status": {"disruptionsAllowed": 0},
    },
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "p"}, "value": 5},
    {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": "worker-1"},
        "spec": {"devices": [{"type": "gpu", "minor": 0, "health": True, "topology": {"nodeID": 0}}]},
    },
    {
        "apiVersion": "config.nri/v1alpha1",
        "kind": "TopologyAwarePolicy",
        "metadata": {"name": "default", "namespace": "kube-system"},
        "spec": {"pinCPU": True, "reservedResources": {"cpu": "1"}},
    },
]


def whole() -> list[dict[str, Any]]:
    """A cluster with an object of each kind that commands read."""
    cluster: list[dict[str, Any]] = json.loads((DATA / "dump.json").read_text())["items"]
    return [*cluster, *(item for item in healthy() if item["kind"] not in {"Node", "NUMAZone"}), *OTHERS]


def places(items: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values in nested lists and mappings."""
    for key, value in items.items() if isinstance(items, dict) else enumerate(items):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def damaged(items: list[Any], draw: random.Random) -> tuple[list[Any], str]:
    """The items with one value replaced or dropped, and which."""
    number = draw.randrange(len(items))
    found = list(items)
    one: Any = deepcopy(items[number])  # the others stay as they are
    found[number] = one
    if not isinstance(one, dict):
        return found, "as it is"
    *path, last = draw.choice(list(places(one)))
    value = draw.choice(VALUES)
    spot: Any = one
    for key in path:
        spot = spot[key]
    if isinstance(spot, dict) and draw.random() < 0.15:
        del spot[last]
        return found, f"without {one.get('kind', one.get('op'))}: {path} {last}"
    spot[last] = value
    return found, f"{one.get('kind', one.get('op'))}: {path} {last} = {value!r:.40}"


def ends_well(result: Result, what: object) -> bool:
    """Return whether a command answered; else it says in one line what is wrong."""
    error = result.exception
    if error is None:
        codes: set[object] = {None, 0, 1, 2}
        assert result.return_value in codes, what
        return True
    assert isinstance(error, NumazonesError | click.ClickException), (what, repr(error))
    said = str(error)
    assert said.strip(), what
    assert "\n" not in said, (what, said)
    assert len(said) < _LONGEST, (what, said)
    return False


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``live`` load what it would show, and end there."""
    stream = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr("kubectl_numazones.commands.live.sys", SimpleNamespace(stdin=stream, stdout=stream))
    monkeypatch.setattr("kubectl_numazones.live.app.Live.run", lambda _view: None)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_damaged_field_is_named_or_does_not_matter(name: str, run: Run, tmp_path: Path) -> None:
    draw, items = random.Random(name), whole()
    answers = 0
    for _ in range(25):
        broken, what = damaged(items, draw)
        path = written(tmp_path / "dump.json", broken)
        answers += ends_well(run(*COMMANDS[name], "-f", path), what)
    assert 0 < answers < 25


@pytest.mark.usefixtures("terminal")
def test_a_file_that_holds_no_objects_is_named(run: Run, tmp_path: Path) -> None:
    for suffix in (".json", ".yaml"):
        for number, content in enumerate(CONTENTS):
            path = tmp_path / f"dump-{number}{suffix}"
            path.write_bytes(content)
            for name, arguments in list(COMMANDS.items())[number % 3 :: 3]:
                result = run(*arguments, "-f", path)
                assert not ends_well(result, (name, content[:20]))
                assert path.name in str(result.exception) or content in {b"", b"null"}, (name, content[:20])
            assert not ends_well(run("replay", path), content[:20])
            assert not ends_well(run("plan", "--policy", path, "-f", DATA / "dump.json"), content[:20])


@pytest.mark.usefixtures("terminal")
def test_a_dump_that_is_cut_off_is_named(run: Run, tmp_path: Path) -> None:
    items = {"kind": "List", "items": whole()}
    draw = random.Random(1)
    for name, text in (("dump.json", json.dumps(items)), ("dump.yaml", yaml.safe_dump(items))):
        path = tmp_path / name
        for arguments in COMMANDS.values():
            path.write_text(text[: draw.randrange(len(text))])
            ends_well(run(*arguments, "-f", path), (name, path.stat().st_size))


def test_entries_of_a_directory_that_cannot_be_read_are_named(run: Run, tmp_path: Path) -> None:
    shutil.copy(DATA / "dump.json", tmp_path / "a.json")
    (tmp_path / "directory.json").mkdir()
    (tmp_path / "notes.txt").write_bytes(b"\0")
    assert run("top", "-f", tmp_path).return_value == 0
    for target in ("nowhere", "b.json"):
        link = tmp_path / "b.json"
        link.symlink_to(tmp_path / target)
        error = run("top", "-f", tmp_path).exception
        assert isinstance(error, BadDump)
        assert str(link) in str(error)
        link.unlink()


def test_file_that_nests_too_deeply_does_not_end_the_process(tmp_path: Path) -> None:
    path = tmp_path / "deep.yaml"
    path.write_bytes(b"[" * 100_000)
    program = str(Path(sys.executable).with_name("kubectl-numazones"))
    ended = subprocess.run([program, "top", "-f", path], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(
        f"error: {path} is truncated or not valid YAML (it is nested more than 64 levels deep)"
    )


def test_yaml_that_only_looks_deep_is_read(run: Run, tmp_path: Path) -> None:
    items = json.loads((DATA / "dump.json").read_text())
    items["items"][0]["metadata"]["annotations"] = {"brackets": "[{" * 2000}
    path = tmp_path / "dump.yaml"
    path.write_text(yaml.safe_dump(items))
    assert run("top", "-f", path).return_value == 0


RECORDING_COMMANDS: tuple[tuple[object, ...], ...] = (
    ("replay",),
    ("size", "4xcpu=2,memory=1Gi", "--node", "node-1", "-f"),
    ("whatif", "--set", "topologyManagerPolicy=restricted", "--runs", "1", "-f"),
    (
        "sweep",
        "--vary",
        "topologyManagerPolicy=restricted",
        "--vary",
        "topologyManagerScope=pod",
        "--runs",
        "1",
        "-f",
    ),
)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RECORDED, tmp_path / "recorded"))


READ_MACHINE = recording._machine


@cache
def recorded_machine() -> Machine:
    return READ_MACHINE(RECORDED / "node-1" / "sys.tar.gz")


@pytest.fixture
def unpacked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the recorded machine once, which these tests do not damage: unpacking its tree takes the time."""
    monkeypatch.setattr("kubectl_numazones.reading.recording._machine", lambda _packed: recorded_machine())


@pytest.mark.usefixtures("unpacked_once")
def test_damaged_operation_of_a_recording_is_named_or_harmless(run: Run, recorded: Path) -> None:
    lines = list(map(json.loads, (RECORDED / "replay.jsonl").read_text().splitlines()))
    draw = random.Random(2)
    for count in range(40):
        broken, what = damaged(lines, draw)
        (recorded / "replay.jsonl").write_text("\n".join(map(json.dumps, broken)))
        arguments = RECORDING_COMMANDS[count % len(RECORDING_COMMANDS)]
        ends_well(run(*arguments, recorded), (arguments[0], what))


@pytest.mark.usefixtures("unpacked_once")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        (("observed", "podresources_list", "container-1", "cpu_ids"), "0-99999999"),
        (("observed", "podresources_list", "container-1", "cpu_ids"), [1 << 34]),
        (("observed", "podresources_list", "container-1", "cpu_ids"), [-1]),
        (("observed", "podresources_list", "container-1", "memory"), [{}]),
        (
            ("observed", "podresources_list", "container-1", "memory"),
            [{"type": "memory", "numa": [1 << 34], "size": 1}],
        ),
        (("pod", "metadata"), "x"),
        (("pod", "spec", "containers"), 3),
        (("node",), 7),
        (("uid",), None),
    ],
)
def test_the_line_of_a_damaged_operation_is_named(
    field: tuple[str, ...], value: object, run: Run, recorded: Path
) -> None:
    lines = list(map(json.loads, (RECORDED / "replay.jsonl").read_text().splitlines()))
    number = next(number for number, line in enumerate(lines) if line["op"] == "hold")
    spot = lines[number]
    for key in field[:-1]:
        spot = spot[key]
    if value is None:
        del spot[field[-1]]
    else:
        spot[field[-1]] = value
    (recorded / "replay.jsonl").write_text("\n".join(map(json.dumps, lines)))
    error = run("replay", recorded).exception
    assert isinstance(error, BadDump)
    assert f"replay.jsonl, line {number + 1}: " in str(error)


@pytest.mark.usefixtures("unpacked_once")
def test_damaged_file_of_a_recording_is_named_or_harmless(run: Run, recorded: Path) -> None:
    draw = random.Random(3)
    for count, name in enumerate(
        ("kubelet-config.yaml", "node.json", "device_plugins.json", "numazones.json")
    ):
        path = recorded / "node-1" / name
        text = path.read_text()
        held = yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text)
        contents = [
            *(content for content in CONTENTS if draw.random() < 0.3),
            text[: len(text) // 2].encode(),
            *(json.dumps(damaged([held], draw)[0][0]).encode() for _ in range(4)),
        ]
        for content in contents:
            path.write_bytes(content)
            arguments = RECORDING_COMMANDS[count % len(RECORDING_COMMANDS)]
            ends_well(run(*arguments, recorded), (name, content[:60]))
        path.write_text(text)


@pytest.mark.usefixtures("unpacked_once")
def test_device_near_an_impossible_numa_node_is_rejected_early(run: Run, recorded: Path) -> None:
    path = recorded / "node-1" / "device_plugins.json"
    plugins = json.loads(path.read_text())
    next(iter(plugins.values()))["devices"][0]["numa"] = [1 << 40]
    path.write_text(json.dumps(plugins))
    error = run("replay", recorded).exception
    assert isinstance(error, BadDump)
    assert f"{1 << 40} is not an id of a CPU or NUMA node" in str(error)


def test_a_damaged_tree_of_a_recording_is_named(run: Run, recorded: Path) -> None:
    tree = recorded / "node-1" / "sys.tar.gz"
    packed = tree.read_bytes()
    for content in (b"", b"\0", packed[: len(packed) // 2], b"\x1f\x8b" + packed[:1:-1]):
        tree.write_bytes(content)
        assert not ends_well(run("replay", recorded), content[:20])
