"""Machines from bug reports, read by the exporter and asked by the plugin."""

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from numazones_exporter.main import main as exporter

Run = Callable[..., Result]


@pytest.fixture
def published(shared: Path, tmp_path: Path) -> Callable[[str, str], Path]:
    """Return a dump with the zones that the exporter publishes of a reported node."""

    def publish(case: str, version: str) -> Path:
        folder = shared / "cases" / case
        with tarfile.open(folder / "node.tar.gz") as archive:
            archive.extractall(tmp_path / case, filter="data")
        node = tmp_path / case / "node"
        arguments = ["--once", "--node-name", "node-1", "--kubelet-version", version, "-o", "json"]
        for name, value in {
            "sysfs": f"{node}/sys",
            "procfs": f"{node}/proc",
            "kubelet-dir": f"{node}/kubelet",
            "podresources": f"replay:{node}/kubelet",
            "kubelet-config": f"file:{node}/kubelet/config.yaml",
            "pods": f"file:{node}/pods.json",
        }.items():
            arguments += [f"--{name}", value]
        result = CliRunner().invoke(exporter, arguments)
        assert result.exit_code == 0, result.output
        document = json.loads(result.stdout)
        items = json.loads((folder / "dump.json").read_text())["items"]
        document["items"] += [item for item in items if item["kind"] != "NUMAZone"]
        path = tmp_path / f"{case}.json"
        path.write_text(json.dumps(document))
        return path

    return publish


def conditions(dump: Path) -> dict[str, str]:
    zone = json.loads(dump.read_text())["items"][0]
    return {item["type"]: item["status"] for item in zone["status"]["conditions"]}


def under(dump: Path, policy: str) -> Path:
    """Return the dump with another policy of the Topology Manager."""
    document: dict[str, Any] = json.loads(dump.read_text())
    for item in document["items"]:
        if item["kind"] == "NUMAZone":
            item["status"]["kubelet"]["topologyManagerPolicy"] = policy
    path = dump.with_name(f"{policy}.json")
    path.write_text(json.dumps(document))
    return path


GPU = "cpu=2,memory=1Gi,vendor.example/gpu=1"


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (
            "single-numa-node",
            "TopologyAffinityError: needs 1 vendor.example/gpu, but the plugin reports them on",
        ),
        ("restricted", "TopologyAffinityError: needs 1 vendor.example/gpu, but the plugin reports them on"),
        ("best-effort", "node-1   0      1,9"),
    ],
)
def test_device_on_numa_node_minus_one_affects_only_its_requesters(
    published: Callable[[str, str], Path], run: Run, policy: str, says: str
) -> None:
    dump = published("device-on-numa-minus-one", "v1.36.2")
    assert conditions(dump) == {"Ready": "True", "Consistent": "True"}
    dump = under(dump, policy)
    assert "node-1   0      1,9" in run("fit", "cpu=2,memory=1Gi", "-f", dump).stdout
    assert says in run("fit", GPU, "-f", dump).stdout


def test_cores_of_an_s390x_are_told_apart_by_book(published: Callable[[str, str], Path], run: Run) -> None:
    dump = published("s390x-books", "v1.34.2")
    zone = json.loads(dump.read_text())["items"][0]
    assert zone["status"]["topology"]["cores"] == ["0-1", "2-3", "4-5", "6-7"]
    assert "node-1   0      2-3" in run("fit", "cpu=2,memory=1Gi", "-f", dump).stdout


def test_kubelet_1_31_takes_cores_of_all_books_for_fewer(published: Callable[[str, str], Path]) -> None:
    zone = json.loads(published("s390x-books", "v1.31.4").read_text())["items"][0]
    assert zone["status"]["topology"]["cores"] == ["0-1,4-5", "2-3,6-7"]


def test_cpus_added_to_a_running_vm_are_read(published: Callable[[str, str], Path]) -> None:
    dump = published("cpus-added-to-a-running-vm", "v1.35.2")
    zone = json.loads(dump.read_text())["items"][0]
    assert zone["status"]["topology"]["cpus"] == "0-7"
    assert conditions(dump)["Consistent"] == "False"


def test_34_numa_nodes_hang_on_devices_despite_static_memory(
    published: Callable[[str, str], Path], run: Run
) -> None:
    dump = published("gb200-34-numa-nodes", "v1.35.2")
    assert conditions(dump) == {"Ready": "True", "Consistent": "True", "KubeletDecides": "False"}
    answer = json.loads(run("fit", "cpu=4,memory=8Gi,nvidia.com/gpu=1", "-f", dump, "-o", "json").stdout)
    (reason,) = answer["reasons"]
    assert (answer["verdict"], reason["reason"], reason["source"]) == ("Unknown", "KubeletHang", "Unknown")
    assert "for nvidia.com/gpu it tries all sets of 34 NUMA nodes" in reason["message"]
    assert "node-1   0      1-4" in run("fit", "cpu=4,memory=8Gi", "-f", dump).stdout
    advice = run("doctor", "-f", dump).stdout
    assert "KubeletHang: a pod that requests nvidia.com/gpu keeps the kubelet busy for about 4 days" in advice
    assert "memoryManagerPolicy" not in advice
    assert "see the exporter's log" not in advice
