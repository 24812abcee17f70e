"""Fixtures that all tests share: the reference material, and a real API server if there is one."""

import asyncio
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import real_apiserver as real
from tests.laws import MOST, QUICK
from tests.places import ROOT

pytest_plugins = ["tests.processor_time"]

# Deadlines per example fail on a busy machine and say nothing about the law under test. Every run tries the
# same examples, so that a change fails by what it changed: 25 of each law in `make test`, all in `make check`
# (each law says how many), fewer where coverage is measured. `make laws` tries others.
for name, most in MOST.items():
    settings.register_profile(name, deadline=None, print_blob=True, derandomize=True, max_examples=most)
settings.register_profile("all", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("laws", deadline=None, print_blob=True, derandomize=False)
settings.load_profile(QUICK)

# Asked for the current event loop, asyncio makes one on first use, which nobody closes; pytest-asyncio asks
# before each test. Saying that there is none keeps the ResourceWarning, here an error, out of innocent tests.
asyncio.set_event_loop(None)

# Where Python may not keep what it has compiled, as in many images, every worker and every program that tests
# start would compile all its modules again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Under nohup, or in a shell's background, these are ignored, and would be by the programs under test.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

_MEMORY = Path("/dev/shm")  # noqa: S108 -- pytest makes a folder of its own there
_ROOMY = 1 << 30


def _use_memory_for_temporary_files() -> None:
    """Have temporary files in memory, unless somebody says where, or there is little of it.

    Tests unpack trees of thousands of small files; a disk needs twenty times as long to make and remove them.
    """
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK | os.X_OK):
        return
    room = os.statvfs(_MEMORY)
    if room.f_bavail * room.f_frsize >= _ROOMY and not room.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = str(_MEMORY)
        tempfile.tempdir = None


_use_memory_for_temporary_files()


_FAILED = pytest.StashKey[bool]()
_NUMBERS = itertools.count()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note on a test whether it has failed so far."""
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of the test's own with a short path: a unix socket's path may have 107 characters only.

    As with pytest's own, ``tmp_path_retention_policy`` holds: it is kept if the test has failed. No path is
    given twice, so that nothing that is remembered of a path is taken for another test's.
    """
    folder = tmp_path_factory.mktemp(f"t{next(_NUMBERS)}", numbered=False)
    yield folder
    policy, failed = request.config.getini("tmp_path_retention_policy"), request.node.stash.get(_FAILED, True)
    if policy == "none" or (policy == "failed" and not failed):
        shutil.rmtree(folder, ignore_errors=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what replays whole reference material: `make test` is content with the samples."""
    if "shared" in getattr(item, "fixturenames", ()):
        item.add_marker("whole")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of vectors and recordings beside the project (NUMAZONES_SHARED); skips where absent."""
    folder = Path(os.environ.get("NUMAZONES_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(
            f"no reference material in {folder}; set NUMAZONES_SHARED (the project's own sample is tested)"
        )
    return folder


@pytest.fixture(scope="session")
def real_apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real.RealAPIServer]:
    """A real kube-apiserver; skips where KUBEBUILDER_ASSETS does not name one."""
    if not real.ASSETS:
        pytest.skip("KUBEBUILDER_ASSETS names no folder with kube-apiserver, etcd and kubectl")
    with real.run(tmp_path_factory.mktemp("real-apiserver")) as server:
        yield server


@pytest.fixture(scope="session")
def real_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real.RealAPIServer]:
    """A real kube-apiserver of its own with ``manifests`` applied; skips where there is none."""
    if not real.ASSETS:
        pytest.skip("KUBEBUILDER_ASSETS names no folder with kube-apiserver, etcd and kubectl")
    with real.run(tmp_path_factory.mktemp("real-cluster")) as server:
        applied = server.kubectl("apply", "-k", str(ROOT / "manifests"))
        assert "warning" not in applied.lower(), applied
        server.kubectl("wait", "--for=condition=Established", "crd/numazones.numazones.io")
        # Nobody else makes it here, and pods need one.
        server.kubectl("create", "serviceaccount", "default", "--namespace=default")
        yield server
