import asyncio
import errno
import logging
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from numazones_exporter import triggers
from numazones_exporter.triggers import (
    DEVICE_PLUGINS,
    INTERVAL,
    KUBELET,
    PODS,
    STATE_FILES,
    KubeletFilesWatch,
    Wakeups,
)


class TestWakeups:
    """Timers run in looptime: hours pass in an instant and are exact."""

    pytestmark = pytest.mark.looptime

    async def test_without_events_the_interval_wakes(self) -> None:
        assert await Wakeups().wait(60) == {INTERVAL}
        assert asyncio.get_running_loop().time() == 60

    async def test_burst_is_one_wake_up_with_all_reasons(self) -> None:
        wakeups = Wakeups(quiet=0.1, max_burst=0.4)
        loop = asyncio.get_running_loop()
        for at, reason in ((5.0, STATE_FILES), (5.05, DEVICE_PLUGINS), (5.1, PODS)):
            loop.call_at(at, wakeups.wake, reason)
        assert await wakeups.wait(60) == {STATE_FILES, DEVICE_PLUGINS, PODS}
        assert loop.time() == pytest.approx(5.2)

    async def test_a_burst_without_end_is_cut(self) -> None:
        wakeups = Wakeups(quiet=0.1, max_burst=0.4)
        loop = asyncio.get_running_loop()
        for step in range(200):
            loop.call_at(5 + step * 0.05, wakeups.wake, STATE_FILES)
        assert await wakeups.wait(60) == {STATE_FILES}
        assert loop.time() == pytest.approx(5.4)

    async def test_an_event_during_a_scan_is_not_lost(self) -> None:
        wakeups = Wakeups()
        wakeups.wake(PODS)
        assert await wakeups.wait(60) == {PODS}
        wakeups.wake(STATE_FILES)  # while the caller reads the node
        await asyncio.sleep(1)
        assert await wakeups.wait(60) == {STATE_FILES}
        assert await wakeups.wait(60) == {INTERVAL}


@pytest.fixture
def kubelet_dir(tmp_path: Path) -> Path:
    for name in ("device-plugins", "pod-resources"):
        (tmp_path / name).mkdir()
    return tmp_path


@asynccontextmanager
async def watching(kubelet_dir: Path) -> AsyncIterator[Wakeups]:
    wakeups = Wakeups(quiet=0.02, max_burst=0.1)
    watch = KubeletFilesWatch(kubelet_dir, wakeups, retry=0.05)
    task = asyncio.create_task(watch.run())
    await watch.established.wait()
    try:
        yield wakeups
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def replace(file: Path, text: str = "{}") -> None:
    """Write as the kubelet does: a temporary file whose name begins with a dot, renamed over the old one."""
    temporary = file.with_name(".123")
    temporary.write_text(text)
    temporary.rename(file)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cpu_manager_state", STATE_FILES),
        ("memory_manager_state", STATE_FILES),
        ("device-plugins/kubelet_internal_checkpoint", DEVICE_PLUGINS),
        ("device-plugins/nic.sock", DEVICE_PLUGINS),
        ("pod-resources/kubelet.sock", KUBELET),
    ],
)
async def test_each_replacement_of_a_file_wakes(kubelet_dir: Path, name: str, reason: str) -> None:
    async with watching(kubelet_dir) as wakeups:
        for _ in range(3):  # a watch on the file itself would see the first replacement only
            replace(kubelet_dir / name)
            assert await wakeups.wait(120) == {reason}
        (kubelet_dir / name).unlink()
        assert await wakeups.wait(120) == {reason}


async def test_a_file_written_in_place_wakes(kubelet_dir: Path) -> None:
    (kubelet_dir / "cpu_manager_state").write_text("{}")
    async with watching(kubelet_dir) as wakeups:
        (kubelet_dir / "cpu_manager_state").write_text('{"policyName": "static"}')
        assert await wakeups.wait(120) == {STATE_FILES}


@pytest.mark.parametrize("name", ["pods", "config.yaml", ".123", "device-plugins/.123"])
async def test_other_files_of_the_kubelet_do_not_wake(kubelet_dir: Path, name: str) -> None:
    async with watching(kubelet_dir) as wakeups:
        (kubelet_dir / name).write_text("")
        assert await wakeups.wait(0.2) == {INTERVAL}


async def test_reading_files_does_not_wake(kubelet_dir: Path) -> None:
    (kubelet_dir / "cpu_manager_state").write_text("{}")
    async with watching(kubelet_dir) as wakeups:
        (kubelet_dir / "cpu_manager_state").read_text()
        assert await wakeups.wait(0.2) == {INTERVAL}


async def test_directories_that_appear_later_are_watched(tmp_path: Path) -> None:
    async with watching(tmp_path / "kubelet") as wakeups:
        (tmp_path / "kubelet" / "device-plugins").mkdir(parents=True)
        assert await wakeups.wait(120) == {STATE_FILES, DEVICE_PLUGINS}
        replace(tmp_path / "kubelet" / "cpu_manager_state")
        assert await wakeups.wait(120) == {STATE_FILES}


async def test_directory_that_was_deleted_and_made_again_is_watched_again(kubelet_dir: Path) -> None:
    async with watching(kubelet_dir) as wakeups:
        shutil.rmtree(kubelet_dir / "device-plugins")
        assert await wakeups.wait(120) == {DEVICE_PLUGINS}
        (kubelet_dir / "device-plugins").mkdir()
        assert await wakeups.wait(120) == {DEVICE_PLUGINS}
        replace(kubelet_dir / "device-plugins" / "kubelet_internal_checkpoint")
        assert await wakeups.wait(120) == {DEVICE_PLUGINS}


async def test_without_inotify_instances_it_names_the_sysctl(
    kubelet_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def exhausted() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(triggers, "Inotify", exhausted)
    with caplog.at_level(logging.WARNING):
        await KubeletFilesWatch(kubelet_dir, Wakeups()).run()
    assert "raise fs.inotify.max_user_instances on the node" in caplog.text
