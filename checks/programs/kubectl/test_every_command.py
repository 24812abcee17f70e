"""Bad dumps, small terminals, Ctrl-C and closed pipes: no command ever shows a traceback."""

import copy
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubectl_numazones import main as program
from tests import plugin
from tests.kubectl.healthy_cluster import healthy
from tests.kubectl.terminal import on_terminal
from tests.laws import examples
from tests.places import DATA

DUMP = DATA / "kubectl/dump.json"
SETTING = "topologyManagerPolicy=restricted"

READERS: dict[str, tuple[str, ...]] = {
    "why": ("why", "rs/trainer", "-n", "team"),
    "fit": ("fit", "cpu=3"),
    "who": ("who", "worker-1"),
    "aligned": ("aligned", "-A"),
    "top": ("top",),
    "live": ("live",),
    "tree": ("tree", "worker-1"),
    "plan": ("plan",),
    "report": ("report", "-o", "-", "--no-plans"),
    "whatif": ("whatif", "--set", SETTING, "--runs", "2"),
    "sweep": ("sweep", "--vary", SETTING, "--runs", "2"),
    "size": ("size", "4xcpu=3,memory=1Gi", "--node", "worker-1"),
    "doctor": ("doctor",),
}
"""Commands that read a cluster, with arguments that the guide's cluster answers."""
OTHERS = {"replay", "record", "idle", "clean", "gate", "approve", "reject", "completion", "version"}
QUICK = ("top", "who", "tree", "aligned", "why", "fit", "plan", "doctor")
"""Commands that people wait for."""
SHOWN = {name: arguments for name, arguments in READERS.items() if name != "live"}  # live needs a terminal


def test_no_command_is_left_out_here() -> None:
    assert set(program._COMMANDS) == set(READERS) | OTHERS


def test_commands_on_dumps_load_no_slow_modules_without_need() -> None:
    slow = {"aiohttp", "asyncio", "kubernetes", "numazones.dra.devices", "textual", "yaml"}
    loaded = (
        "import contextlib, sys\nfrom kubectl_numazones.main import main\n"
        f"for arguments in {[READERS[name] for name in QUICK]!r}:\n"
        f"    with contextlib.suppress(SystemExit): main([*arguments, '-f', {str(DUMP)!r}])\n"
        f"    assert not {slow!r} & set(sys.modules), arguments\n"
    )
    subprocess.run([sys.executable, "-c", loaded], stdout=subprocess.DEVNULL, check=True)


def test_version_loads_neither_tables_nor_custom_resources() -> None:
    loaded = "import sys; from kubectl_numazones.commands import version; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert not {"pydantic", "rich"} & set(done.stdout.split())


def ended(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    done = plugin.ended(*arguments, **options)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def listed(items: list[Any]) -> str:
    return json.dumps({"kind": "List", "items": items})


def guide() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DUMP.read_text())["items"]
    return found


def with_change(kind: str, change: Callable[[dict[str, Any]], object]) -> str:
    """The guide's cluster with its first object of a kind changed."""
    items = guide()
    change(next(item for item in items if item["kind"] == kind))
    return listed(items)


BAD: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "is truncated or not JSON"),
    "half-written": (DUMP.read_text()[:3000], "is truncated or not JSON"),
    "binary": (b"\x1f\x8b\x00\xff", "is truncated or not JSON"),
    "a table": ("NAME STATUS\nworker-1 Ready\n", "is truncated or not JSON"),
    "no objects": (listed([1, 2]), "the items of its List are not objects"),
    "no nodes": (listed([item for item in guide() if item["kind"] != "Node"]), "has no nodes"),
    "nested too deep": ("[" * 100_000, "nested more than 64 levels"),
    "a node without a name": (
        with_change("Node", lambda it: it["metadata"].pop("name")),
        "Node (unnamed) is malformed",
    ),
    "an amount that is none": (
        with_change("Node", lambda it: it["status"]["allocatable"].update(cpu="many")),
        "many",
    ),
    "containers that are none": (
        with_change("Pod", lambda it: it["spec"].update(containers="main")),
        "Pod team/web-1 is malformed",
    ),
    "a zone of another kind": (
        with_change("NUMAZone", lambda it: it.update(spec={"node": "worker-1"})),
        "NUMAZone worker-1-numa-0: spec.nodeName",
    ),
    "a time that is none": (
        with_change("Pod", lambda it: it["metadata"].update(creationTimestamp="yesterday")),
        "'yesterday' is not a time",
    ),
}


BAD_PODS = {"containers that are none", "a time that is none"}
"""Of no concern to ``top``, which reads no pods."""


@pytest.mark.parametrize(
    ("case", "name"),
    [(case, name) for case in BAD for name in sorted(SHOWN) if name != "top" or case not in BAD_PODS],
)
def test_bad_dump_ends_with_one_line_that_names_the_thing(
    case: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, said = BAD[case]
    path = tmp_path / "dump.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(SystemExit) as end:
        program.main([*SHOWN[name], "-f", str(path)])
    captured = capsys.readouterr()
    assert end.value.code in {1, 2}
    assert said in captured.err
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize("name", sorted(SHOWN))
@pytest.mark.parametrize(
    "items",
    [
        [item for item in guide() if item["kind"] in {"Node", "NUMAZone", "Pod"}],
        [{**item, "madeUp": {"a": [1]}, "spec": {**item.get("spec", {}), "x": 1}} for item in guide()],
        [item for item in guide() if item["kind"] != "NUMAZone"],
        [item for item in guide() if item["kind"] != "Pod"],
    ],
    ids=["only what is needed", "unknown fields", "no zones", "no pods"],
)
def test_missing_kinds_and_unknown_fields_are_borne(
    name: str, items: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "dump.json"
    path.write_text(listed(items))
    with pytest.raises(SystemExit) as end:
        program.main([*SHOWN[name], "-f", str(path)])
    captured = capsys.readouterr()
    assert end.value.code in {0, 1, 2}
    assert captured.out or "error: " in captured.err


def parts(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything inside an object."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, part in inside for found in parts(part, (*path, key)))]


STRANGE: tuple[Any, ...] = (None, "", 0, -1, "zz", [], {}, [1], ["a"], {"a": 1}, True, "9" * 30, [None], [{}])


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**9))
def test_broken_object_gets_an_answer_or_one_error_line(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(seed)
    extra = ("Lease", "Namespace", "NodeResourceTopology")
    items = copy.deepcopy([*guide(), *(item for item in healthy() if item["kind"] in extra)])
    target: Any = draw.choice(items)
    *way, last = draw.choice([path for path in parts(target) if path])
    for key in way:
        target = target[key]
    if draw.random() < 0.3:
        del target[last]
    else:
        target[last] = draw.choice(STRANGE)
    path = tmp_path / "dump.json"
    path.write_text(listed(items))
    quick = sorted(set(SHOWN) - {"whatif", "sweep", "report"})
    with pytest.raises(SystemExit) as end:
        program.main([*SHOWN[draw.choice(quick)], "-f", str(path)])
    captured = capsys.readouterr()
    assert end.value.code in {0, 1, 2}
    assert captured.out or "error: " in captured.err


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_a_terminal_of_40_columns_is_enough(name: str) -> None:
    assert on_terminal(40, *SHOWN[name], "-f", DUMP, lines=10)


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_a_reader_that_has_gone_ends_a_command_quietly(name: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = ended(*SHOWN[name], "-f", DUMP, stdout=writing)
    finally:
        os.close(writing)
    assert done.returncode == 1
    assert "error" not in done.stderr.lower()


@pytest.mark.parametrize("name", sorted(SHOWN))
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_lacks_characters_gets_others(name: str, encoding: str, tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    dump.write_text(DUMP.read_text().replace("web-1", "wéb-日"))
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    process = plugin.started(
        *SHOWN[name], "-f", dump, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    output, errors = process.communicate()
    assert process.returncode in {0, 1}
    assert b"rror" not in errors
    assert output


def test_a_tree_is_drawn_with_what_the_terminal_has() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    drawn = ended("tree", "worker-1", "-f", DUMP, env=environment).stdout
    assert drawn == ended("tree", "worker-1", "--ascii", "-f", DUMP).stdout
    assert "?" not in drawn


def test_a_full_disk_is_named() -> None:
    with Path("/dev/full").open("w") as full:
        done = ended("top", "-f", DUMP, stdout=full.fileno())
    assert (done.returncode, done.stderr) == (2, "error: No space left on device\n")


def interrupted(
    arguments: tuple[object, ...], begun: Callable[[], object], release: Callable[[], object]
) -> None:
    """Ctrl-C a command once ``begun`` has returned, and see it end as shells expect.

    A signal that comes just before a system call blocks is seen when that returns: ``release`` has it return.
    """
    process = plugin.started(*arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    begun()
    process.send_signal(signal.SIGINT)
    release()
    _, errors = process.communicate()
    assert b"Traceback" not in errors
    assert process.returncode == 130


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_ctrl_c_while_a_dump_is_read_ends_with_130(name: str, tmp_path: Path) -> None:
    fifo = tmp_path / "dump.json"
    os.mkfifo(fifo)
    opened: list[int] = []
    # Opening for writing waits until the command reads.
    interrupted(
        (*SHOWN[name], "-f", fifo),
        begun=lambda: opened.append(os.open(fifo, os.O_WRONLY)),
        release=lambda: os.close(opened[0]),
    )


def test_ctrl_c_while_a_cluster_is_asked_ends_with_130(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        kubeconfig = tmp_path / "kubeconfig"
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        context = {"name": "c", "context": {"cluster": "c", "user": "c"}}
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "contexts": [context],
            "users": [{"name": "c", "user": {}}],
        }
        kubeconfig.write_text(json.dumps(body))
        calls: list[socket.socket] = []
        interrupted(
            ("top", "--kubeconfig", kubeconfig),
            begun=lambda: calls.append(silent.accept()[0]),
            release=lambda: calls[0].shutdown(socket.SHUT_RDWR),
        )
        calls[0].close()


def test_ctrl_c_ends_a_watch_with_130() -> None:
    process = plugin.started("top", "--watch", "-f", DUMP, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert (process.returncode, b"Traceback" in errors) == (130, False)


def test_ctrl_c_while_the_program_starts_is_no_traceback(tmp_path: Path) -> None:
    # Its first import of another project's module sends Ctrl-C, at a moment that no user can aim at.
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        [plugin.PROGRAM, "version"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
