"""Files of the kubelet's directory that a compromised exporter can read, according to the kernel."""

import ctypes
import gc
import json
import os
import signal
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numazones_exporter import confinement, landlock
from numazones_exporter.confinement import NotConfined
from numazones_exporter.file_opener import FileOpener
from numazones_exporter.options import LANDLOCK_BEST_EFFORT, LANDLOCK_OFF, LANDLOCK_REQUIRED, Options
from numazones_exporter.sources.state_files import StateFileReader
from numazones_node.problems import SourceError

ATTACK = Path(__file__).with_name("attack.py")
NEEDED = (
    "cpu_manager_state",
    "memory_manager_state",
    "device-plugins/kubelet_internal_checkpoint",
    "pki/kubelet.crt",
)
SECRETS = (
    "config.json",
    "kubeconfig",
    "pki/kubelet.key",
    "pki/kubelet-client-current.pem",
    "pods/5d1/volumes/kubernetes.io~secret/database/password",
    "pods/5d1/volumes/kubernetes.io~projected/token/token",
    "pod-resources/other",
    "device-plugins/other",
    "checkpoints/memory.tar",
)


def no_landlock() -> str:
    try:
        landlock.version()
    except landlock.LandlockUnavailable as error:
        return str(error)
    return ""


needs_landlock = pytest.mark.skipif(bool(no_landlock()), reason=no_landlock())


@pytest.fixture
def kubelet_dir(tmp_path: Path) -> Path:
    for name in (*NEEDED, *SECRETS):
        (tmp_path / "kubelet" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "kubelet" / name).write_text(name)
    return tmp_path / "kubelet"


def attacked(kubelet_dir: Path, mode: str, **settings: Any) -> dict[str, Any]:
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            str(ATTACK),
            "--node-name=n",
            f"--kubelet-dir={kubelet_dir}",
            f"--landlock={mode}",
        ],
        env={**os.environ, "PATHS": "\n".join(str(kubelet_dir / name) for name in (*NEEDED, *SECRETS))},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        **settings,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    for way in ("direct", "opener"):
        found[way] = [str(Path(path).relative_to(kubelet_dir)) for path in found[way]]
    return found


@needs_landlock
def test_compromised_exporter_reads_kubelet_state_but_no_secrets(
    kubelet_dir: Path,
) -> None:
    assert attacked(kubelet_dir, LANDLOCK_REQUIRED) == {
        "enforced": True,
        "direct": [],
        "opener": list(NEEDED),
        "other": [],
    }
    assert (kubelet_dir / "pki/kubelet.key").exists()


def test_everything_is_readable_without_landlock(
    kubelet_dir: Path,
) -> None:
    found = attacked(kubelet_dir, LANDLOCK_OFF)
    assert found["enforced"] is False
    assert found["direct"] == found["opener"] == [*NEEDED, *SECRETS]
    assert "list the kubelet's directory" in found["other"]


def deny_landlock() -> None:
    """Answer Landlock's system calls as a kernel without them does (seccomp)."""
    ends = struct.pack
    load_number, equal, give = 0x20, 0x15, 0x06
    program = b"".join(
        [
            ends("HBBI", load_number, 0, 0, 0),
            *(ends("HBBI", equal, 3 - number, 0, 444 + number) for number in range(3)),
            ends("HBBI", give, 0, 0, 0x7FFF0000),  # allow
            ends("HBBI", give, 0, 0, 0x00050000 | 38),  # ENOSYS
        ]
    )
    libc = ctypes.CDLL(None)
    code = ctypes.create_string_buffer(program, len(program))
    filters = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 6, ctypes.addressof(code)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, filters, 0, 0) == 0


def test_exporter_runs_without_landlock_unless_it_is_required(kubelet_dir: Path) -> None:
    found = attacked(kubelet_dir, LANDLOCK_BEST_EFFORT, preexec_fn=deny_landlock)
    assert (found["enforced"], found["opener"]) == (False, [*NEEDED, *SECRETS])
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            str(ATTACK),
            f"--kubelet-dir={kubelet_dir}",
            f"--landlock={LANDLOCK_REQUIRED}",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=deny_landlock,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "numazones-exporter: --landlock=required: this kernel does not support Landlock "
        "(Linux 5.13 and newer do)\n"
    )


@needs_landlock
def test_kubelet_directory_below_a_readable_one_prevents_confinement(tmp_path: Path) -> None:
    options = Options("n", sysfs=tmp_path, kubelet_dir=tmp_path / "kubelet", landlock=LANDLOCK_BEST_EFFORT)
    why = (
        f"--kubelet-dir {tmp_path}/kubelet is inside {tmp_path}, which must stay readable; "
        "use a directory outside it"
    )
    found = confinement.enter(options, confinement.start_opener(options))
    assert (found.enforced, found.why_not) == (False, why)
    required = replace(options, landlock=LANDLOCK_REQUIRED)
    with pytest.raises(NotConfined, match="--landlock=required"):
        confinement.enter(required, confinement.start_opener(required))


@pytest.fixture
def opener(kubelet_dir: Path) -> Any:
    made = FileOpener([kubelet_dir / name for name in NEEDED], lambda: None)
    yield made
    made.close()


def test_a_file_that_the_kubelet_has_replaced_is_opened_anew(opener: FileOpener, kubelet_dir: Path) -> None:
    path = kubelet_dir / "cpu_manager_state"
    assert opener.read(path) == b"cpu_manager_state"
    (kubelet_dir / "temporary").write_text("later")
    (kubelet_dir / "temporary").rename(path)
    assert opener.read(path) == b"later"
    path.unlink()
    with pytest.raises(FileNotFoundError):
        opener.read(path)


@pytest.mark.parametrize(
    "name", [*SECRETS, "device-plugins", "./cpu_manager_state/../kubeconfig", "x" * 5000]
)
def test_other_files_are_not_opened(opener: FileOpener, kubelet_dir: Path, name: str) -> None:
    with pytest.raises(PermissionError):
        opener.read(kubelet_dir / name)


def test_pipe_instead_of_a_state_file_blocks_nothing(opener: FileOpener, kubelet_dir: Path) -> None:
    (kubelet_dir / NEEDED[0]).unlink()
    os.mkfifo(kubelet_dir / NEEDED[0])
    assert opener.read(kubelet_dir / NEEDED[0]) == b""
    assert opener.read(kubelet_dir / NEEDED[1]) == NEEDED[1].encode()


def test_no_descriptors_are_left_open(opener: FileOpener, kubelet_dir: Path) -> None:
    def count() -> tuple[int, int]:
        own, others = Path("/proc/self/fd"), Path(f"/proc/{opener.pid}/fd")
        return len(list(own.iterdir())), len(list(others.iterdir()))

    opener.read(kubelet_dir / NEEDED[0])
    before = count()
    for name in (*NEEDED, *SECRETS) * 20:
        try:
            opener.read(kubelet_dir / name)
        except PermissionError:
            continue
    own, others = count()
    assert own == before[0]
    assert others <= before[1] + 1, "the last file may be about to be closed"


def test_early_signal_does_not_end_the_other_process(
    kubelet_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = os.fork

    def signalled() -> int:
        pid = fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return pid

    monkeypatch.setattr(os, "fork", signalled)
    made = FileOpener([kubelet_dir / name for name in NEEDED], lambda: None)
    try:
        assert made.read(kubelet_dir / NEEDED[0]) == b"cpu_manager_state"
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        made.close()


def test_where_the_other_process_has_ended_the_cure_is_said(opener: FileOpener, kubelet_dir: Path) -> None:
    os.kill(opener.pid, signal.SIGTERM)  # it goes when the exporter goes, not before
    assert opener.read(kubelet_dir / NEEDED[0])
    os.kill(opener.pid, signal.SIGKILL)
    os.waitid(os.P_PID, opener.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(
        SourceError, match="the helper process that opens it has exited; restart the exporter"
    ):
        StateFileReader(kubelet_dir, opener.read).cpu_manager()


def test_the_other_process_starts_before_anything_large_is_loaded() -> None:
    """Both processes keep forever what is in memory then."""
    large = {"aiohttp", "asyncio", "email", "google", "importlib.metadata", "logging", "pydantic", "ssl"}
    program = (
        "import sys\n"
        "from numazones_exporter import confinement, main\n"
        f"print(sorted({large!r} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_what_both_processes_share_is_not_touched_by_collecting_garbage(kubelet_dir: Path) -> None:
    before = gc.get_freeze_count()
    made = FileOpener([kubelet_dir / NEEDED[0]], lambda: None)
    try:
        assert gc.get_freeze_count() > before
    finally:
        made.close()
    assert gc.get_freeze_count() == 0
