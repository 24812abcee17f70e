import json
import tarfile
from pathlib import Path

import pytest

from numazones.kubelet import machines
from numazones.kubelet.machines import MachineShape
from numazones_simulator import machine_tree, recordings
from numazones_simulator.recordings import BadRecording


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A recorded cluster of two nodes."""
    directory = tmp_path / "recordings" / "two-nodes"
    for name in ("b", "a"):
        node = directory / name
        tree = machine_tree.write(machines.build(MachineShape(cores_per_numa=2)), tmp_path / name)
        node.mkdir(parents=True)
        with tarfile.open(node / "sys.tar.gz", "w:gz") as archive:
            archive.add(tree.sysfs, "sys")
            archive.add(tree.procfs, "proc")
        (node / "cpu_manager_state").write_text("{}")
        (node / "kubelet_internal_checkpoint").write_text("{}")
        (node / "kubelet-config.yaml").write_text("cpuManagerPolicy: static\n")
    (directory / "pods.json").write_text(
        json.dumps(
            {"items": [{"metadata": {"name": "p"}, "spec": {"nodeName": "b"}}, {"metadata": {"name": "q"}}]}
        )
    )
    return tmp_path / "recordings"


def test_recorded_nodes_are_found_by_name(cluster: Path) -> None:
    assert [recording.name for recording in recordings.find(cluster)] == ["a", "b"]
    assert [recording.name for recording in recordings.find(cluster / "two-nodes")] == ["a", "b"]


def test_the_environment_says_where_recordings_are(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(recordings.ENVIRONMENT, str(cluster.parent))
    assert [recording.name for recording in recordings.find()] == ["a", "b"]


def test_a_directory_without_recordings_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadRecording, match=f"no recorded nodes in {tmp_path}"):
        recordings.find(tmp_path)


def test_a_recording_is_laid_out_as_on_a_node(cluster: Path, tmp_path: Path) -> None:
    recording = recordings.find(cluster)[1]
    directories = recordings.lay_out(recording, tmp_path / "laid-out")
    assert (directories.sysfs / "devices/system/cpu/online").read_text() == "0-7\n"
    assert (directories.procfs / "meminfo").exists()
    assert (directories.kubelet / "cpu_manager_state").read_text() == "{}"
    assert (directories.kubelet / "device-plugins/kubelet_internal_checkpoint").read_text() == "{}"
    assert [pod["metadata"]["name"] for pod in recording.pods] == ["p"]
    assert recording.node["metadata"] == {"name": "b"}
    assert recording.kubelet_configuration.name == "kubelet-config.yaml"


def test_a_damaged_recording_is_named(cluster: Path, tmp_path: Path) -> None:
    recording = recordings.find(cluster)[0]
    (recording.directory / "sys.tar.gz").write_bytes(b"no archive")
    with pytest.raises(BadRecording, match="a: "):
        recordings.lay_out(recording, tmp_path / "laid-out")
