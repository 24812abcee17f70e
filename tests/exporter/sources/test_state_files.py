"""State files that are missing, cut off, edited or unreadable; every message names the file and the cure."""

import os
import re
from pathlib import Path

import pytest

from numazones_exporter.sources.state_files import StateFileReader
from numazones_node.problems import SourceError
from tests.places import DATA

SAMPLE = DATA / "recordings/one-node/rig-b"
FILES = {
    "cpu_manager_state": StateFileReader.cpu_manager,
    "memory_manager_state": StateFileReader.memory_manager,
    "kubelet_internal_checkpoint": StateFileReader.devices,
}


@pytest.fixture(params=sorted(FILES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def read(directory: Path, name: str) -> object:
    return FILES[name](StateFileReader(directory))


def rejection(directory: Path, name: str) -> SourceError:
    with pytest.raises(SourceError) as caught:
        read(directory, name)
    return caught.value


def test_recorded_files_are_read(name: str) -> None:
    assert read(SAMPLE, name)


def test_device_checkpoint_is_in_device_plugins_or_with_the_others(tmp_path: Path) -> None:
    content = (SAMPLE / "kubelet_internal_checkpoint").read_bytes()
    (tmp_path / "kubelet_internal_checkpoint").write_bytes(content)
    beside = StateFileReader(tmp_path).devices()
    (tmp_path / "kubelet_internal_checkpoint").unlink()
    (tmp_path / "device-plugins").mkdir()
    (tmp_path / "device-plugins/kubelet_internal_checkpoint").write_bytes(content)
    assert StateFileReader(tmp_path).devices() == beside


def test_a_missing_file_is_named_with_its_path(tmp_path: Path, name: str) -> None:
    error = rejection(tmp_path, name)
    assert error.reason == "NotFound"
    folder = "device-plugins/" if name == "kubelet_internal_checkpoint" else ""
    assert (
        str(error) == f"{tmp_path}/{folder}{name} does not exist, although a kubelet creates it when it "
        f"starts"
    )


def test_a_truncated_file_is_rejected(tmp_path: Path, name: str) -> None:
    content = (SAMPLE / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    error = rejection(tmp_path, name)
    assert error.reason == "InvalidCheckpoint"
    assert str(error).startswith(f"{tmp_path}/{name}: the file is truncated or not JSON (")


def test_an_empty_file_is_rejected(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    assert str(rejection(tmp_path, name)).startswith(f"{tmp_path}/{name}: the file is empty; ")


def test_a_wrong_checksum_is_rejected_with_both_numbers(tmp_path: Path, name: str) -> None:
    content = (SAMPLE / name).read_text()
    assert '"c0"' in content
    # A renamed container is well-formed: only the checksum can notice.
    (tmp_path / name).write_text(content.replace('"c0"', '"c9"', 1))
    error = rejection(tmp_path, name)
    assert error.reason == "WrongChecksum"
    assert re.search(
        r"the stored checksum \d+ does not match the content, whose checksum is \d+;", str(error)
    )
    assert "drain the node, stop the kubelet, remove the file and start it again" in str(error)


def test_a_bad_cpu_list_in_the_state_is_rejected(tmp_path: Path) -> None:
    state = '{"policyName":"static","defaultCpuSet":"0-","checksum":0}'
    (tmp_path / "cpu_manager_state").write_text(state)
    assert "'0-' is not a CPU list" in str(rejection(tmp_path, "cpu_manager_state"))


def test_only_changed_files_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "cpu_manager_state"
    file.write_bytes((SAMPLE / file.name).read_bytes())
    files = StateFileReader(tmp_path)
    first = files.cpu_manager()
    assert files.cpu_manager() is first
    file.write_bytes((SAMPLE / "mid" / file.name).read_bytes())
    assert files.cpu_manager() != first
    file.write_bytes(b"{")
    with pytest.raises(SourceError):
        files.cpu_manager()


def test_a_directory_in_the_files_place_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    error = rejection(tmp_path, name)
    assert error.reason == "Unreadable"
    assert str(error) == f"{tmp_path}/{name} cannot be read: Is a directory"


def test_pipe_instead_of_a_file_is_reported_without_blocking(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    error = rejection(tmp_path, name)
    assert error.reason == "Unreadable"
    assert str(error) == f"{tmp_path}/{name} is a pipe, not a regular file of the kubelet; remove it"
