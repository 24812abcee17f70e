"""The commands as people start them: processes, output, signals."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SIMULATOR = Path(sys.executable).parent / "numazones-simulator"
SAMPLE = Path(__file__).parents[1] / "data" / "recordings"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SIMULATOR), *arguments], capture_output=True, text=True, timeout=120, check=False
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


def test_help_says_what_there_is() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    for command in ("demo", "apiserver"):
        assert command in shown.stdout


def test_recorded_nodes_are_exported_and_shown() -> None:
    shown = run("demo", "--recordings", str(SAMPLE))
    assert shown.returncode == 0, shown.stderr
    rows = [line.split() for line in shown.stdout.splitlines() if line.startswith(("NAME", "rig-b-numa"))]
    assert rows[0][:7] == ["NAME", "NODE", "NUMA", "POLICY", "CPU", "RESERVED", "ASSIGNED"]
    assert [row[:7] for row in rows[1:]] == [
        ["rig-b-numa-0", "rig-b", "0", "restricted", "24", "2", "12"],
        ["rig-b-numa-1", "rig-b", "1", "restricted", "24", "0", "0"],
    ]
    assert "Ctrl-C" not in shown.stdout


def test_without_recordings_the_cure_is_named(tmp_path: Path) -> None:
    shown = run("demo", "--recordings", str(tmp_path))
    assert shown.returncode == 1
    assert f"no recorded nodes in {tmp_path}" in shown.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
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
        deadline = time.monotonic() + 60
        while "Ctrl-C" not in shown and time.monotonic() < deadline:
            shown += process.stdout.readline()
        found = re.search(r"export KUBECONFIG=(\S+)", shown)
        assert found is not None, shown
        kubeconfig = Path(found[1])
        assert kubeconfig.exists()
        assert len(processes_using(str(kubeconfig))) == 1
        process.send_signal(number)
        assert process.wait(timeout=20) == 0
    assert processes_using(str(kubeconfig)) == []
    assert not kubeconfig.parent.exists()
