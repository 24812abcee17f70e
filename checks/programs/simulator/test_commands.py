"""The commands as people start them: processes, output, signals."""

import asyncio
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from numazones_simulator import main, node_kinds
from numazones_simulator.screen import Screen
from tests.places import DATA, ROOT

SIMULATOR = Path(sys.executable).parent / "numazones-simulator"
SAMPLE = DATA / "recordings"
TOOLS = ROOT / ".cache" / "tools" / "bin"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SIMULATOR), *arguments], capture_output=True, text=True, timeout=600, check=False
    )


def processes_using(text: str) -> list[int]:
    """Processes that have a text among their arguments."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                arguments = (process / "cmdline").read_text()
            except OSError:
                continue
            if text in arguments:
                found.append(int(process.name))
    return found


@pytest.mark.parametrize("arguments", [(), ("demo",), ("cluster",), ("apiserver",)])
def test_every_command_explains_itself(arguments: tuple[str, ...]) -> None:
    shown = run(*arguments, "--help")
    assert shown.returncode == 0
    assert shown.stdout.startswith("Usage: numazones-simulator")
    assert len(shown.stdout.splitlines()) > 8
    assert "\\b" not in shown.stdout


@pytest.mark.parametrize(
    ("answer", "expected"), [("\n", True), ("yes\n", True), ("n\n", False), ("No\n", False)]
)
async def test_a_person_is_asked_before_the_plan_is_carried_out(
    answer: str, monkeypatch: pytest.MonkeyPatch, *, expected: bool
) -> None:
    theirs, ours = os.pipe()
    with os.fdopen(theirs) as typed, os.fdopen(ours, "w") as keyboard:
        monkeypatch.setattr(sys, "stdin", typed)
        out = io.StringIO()
        asked = asyncio.create_task(main._confirm(Screen(out), "Run the plan?"))
        await asyncio.sleep(0)
        assert out.getvalue().endswith("Run the plan? [Y/n]\n")
        keyboard.write(answer)
        keyboard.flush()
        assert await asked is expected


def test_a_cluster_without_operator_shows_its_zones() -> None:
    shown = run("cluster", "--nodes", "2", "--no-operator", "--publishing", "direct")
    assert shown.returncode == 0, shown.stderr
    assert [line.split()[0] for line in shown.stdout.splitlines() if line.startswith("node-")] == [
        "node-1-numa-0",
        "node-1-numa-1",
        "node-2-numa-0",
        "node-2-numa-1",
    ]


def test_all_nodes_are_of_the_kind_that_is_asked_for() -> None:
    few = ("--nodes", "2", "--no-operator", "--publishing", "direct")
    shown = run("cluster", "--kind", "best-effort", *few)
    assert shown.returncode == 0, shown.stderr
    rows = [line.split() for line in shown.stdout.splitlines() if line.startswith("node-")]
    assert [row[1] for row in rows] == ["best-effort"] * 4
    both = run("cluster", "--kind", "best-effort", "--models", "all", *few)
    assert both.returncode == 2
    assert "omit one" in both.stderr


@pytest.mark.parametrize(("name", "kind"), node_kinds.NAMED.items())
def test_kinds_are_called_what_their_nodes_labels_call_them(name: str, kind: node_kinds.NodeKind) -> None:
    assert kind("node-1", "10.77.0.1").labels[node_kinds.KIND_LABEL] == name


def test_recorded_nodes_are_exported_and_shown() -> None:
    shown = run("demo", "--recordings", str(SAMPLE))
    assert shown.returncode == 0, shown.stderr
    rows = [line.split() for line in shown.stdout.splitlines() if line.startswith(("NAME", "rig-b-numa"))]
    assert rows[0][:5] == ["NAME", "POLICY", "CPU", "FREE", "MEM-FREE"]
    assert [row[:5] for row in rows[1:]] == [
        ["rig-b-numa-0", "restricted", "24", "10", "25.7Gi"],
        ["rig-b-numa-1", "restricted", "24", "24", "46.7Gi"],
    ]
    assert "Ctrl-C" not in shown.stdout


def test_without_recordings_the_cure_is_named(tmp_path: Path) -> None:
    shown = run("demo", "--recordings", str(tmp_path))
    assert shown.returncode == 1
    assert f"no recorded nodes in {tmp_path}" in shown.stderr


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        shown = run("demo", "--recordings", str(SAMPLE), "--port", str(port))
    assert shown.returncode == 1
    assert f"'127.0.0.1', {port}" in shown.stderr
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize("command", ["demo", "cluster", "apiserver"])
def test_a_port_that_cannot_be_is_a_usage_error(command: str) -> None:
    shown = run(command, "--port", "99999")
    assert shown.returncode == 2
    assert "99999 is not in the range 0<=x<=65535" in shown.stderr


def test_prometheus_scrapes_the_cluster_and_ends_with_it() -> None:
    path = f"{TOOLS}:{os.environ['PATH']}"
    if shutil.which("prometheus", path=path) is None:
        pytest.skip("prometheus is neither on PATH nor in .cache/tools/bin (tools/test-tools .cache)")
    with subprocess.Popen(
        [str(SIMULATOR), "cluster", "--nodes=1", "--prometheus", "--serve"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        shown = ""
        while "Ctrl-C" not in shown:
            line = process.stdout.readline()
            assert line, shown
            shown += line
        address = re.search(r"^Prometheus on (\S+)$", shown, re.MULTILINE)
        assert address is not None, shown
        assert (
            len(re.findall(r"^Metrics of (operator|node-1) on http://\S+/metrics$", shown, re.MULTILINE)) == 2
        )
        question = f"{address[1]}/api/v1/query?query=count(numazones_zone_capacity{{node='node-1'}})"
        deadline = time.monotonic() + 120
        while not (found := answered(question)) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert found
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 0
    assert not answered(question)


def answered(question: str) -> bool:
    """Return whether a Prometheus has data for a query."""
    try:
        with urllib.request.urlopen(question, timeout=5) as answer:  # noqa: S310 - of this machine
            return bool(json.load(answer)["data"]["result"])
    except OSError:
        return False


def test_prometheus_for_recorded_nodes_is_a_usage_error() -> None:
    shown = run("demo", "--prometheus", "--recorded")
    assert shown.returncode == 2
    assert "--auto, --record and --prometheus are for simulated nodes" in shown.stderr


def test_the_command_ends_when_nobody_reads_on() -> None:
    with subprocess.Popen(
        [str(SIMULATOR), "cluster", "--nodes=3", "--pods=200", "--publishing=direct", "--no-operator"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=600) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_served_demo_ends_in_order(number: signal.Signals) -> None:
    with subprocess.Popen(
        [str(SIMULATOR), "demo", "--recordings", str(SAMPLE), "--serve"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        shown = ""
        deadline = time.monotonic() + 300
        while "Ctrl-C" not in shown and time.monotonic() < deadline:
            shown += process.stdout.readline()
        found = re.search(r"export KUBECONFIG=(\S+)", shown)
        assert found is not None, shown
        kubeconfig = Path(found[1])
        assert kubeconfig.exists()
        assert len(processes_using(str(kubeconfig.parent))) == 1
        process.send_signal(number)
        assert process.wait(timeout=120) == 0
    assert processes_using(str(kubeconfig.parent)) == []
    assert not kubeconfig.parent.exists()
