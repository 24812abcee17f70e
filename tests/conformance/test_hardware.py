"""Machines as the kubelet's own code reads them: the made-up ones, and how differences are found."""

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from numazones.kubelet.admission import admit
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.machine import Machine
from numazones.kubelet.node import Node
from tests.conformance import hardware
from tests.conformance.__main__ import main
from tests.places import DATA

ANSWERS = DATA / "conformance/machines.jsonl.gz"


def recorded() -> dict[str, dict[str, Any]]:
    lines = gzip.decompress(ANSWERS.read_bytes()).splitlines()
    return {item["name"]: item["answer"] for item in map(json.loads, lines)}


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("machines")
    with tarfile.open(DATA / "conformance/machines.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_unusual_machines_are_read_as_the_kubelet_reads_them(
    trees: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["machines", "--answers", str(ANSWERS), str(trees)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "machines: 11 same"


def test_a_difference_is_named_and_fails(
    trees: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = recorded()["numa-id-63"]
    answer["MI"]["topology"][1]["memory"] = 1
    answer["Topo"]["NumSockets"] = 4
    file = tmp_path / "answers.jsonl"
    file.write_text(json.dumps({"name": "numa-id-63", "answer": answer}) + "\n")
    assert main(["machines", "--answers", str(file), str(trees / "numa-id-63")]) == 1
    shown = capsys.readouterr().out
    assert "memory of 1: kubelet 1, exporter 17179869184" in shown
    assert "CPUs per socket: kubelet 6, exporter 12" in shown
    assert "machines: 1 DIFFERS" in shown


def test_recording_of_another_tree_is_not_comparable(
    trees: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {"Err": "no CPU is available", "MI": {"memory_capacity": 68719476736}}
    file = tmp_path / "answers.jsonl"
    file.write_text(json.dumps({"name": "numa-id-63", "answer": answer}) + "\n")
    main(["machines", "--answers", str(file), str(trees / "numa-id-63")])
    assert "machines: 1 not comparable" in capsys.readouterr().out


def machine(trees: Path, name: str) -> Machine:
    read = hardware.read_machine(trees / name)
    assert isinstance(read, Machine)
    return read


def kubelet(policy: str) -> KubeletConfiguration:
    return KubeletConfiguration.from_api(
        {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "topologyManagerPolicy": policy},
        version="v1.36.0",
    )


def answer_of(trees: Path, name: str) -> dict[str, Any]:
    """Return what the kubelet would have recorded if it decided as numazones does."""
    found = machine(trees, name)
    node, pods = Node.fresh(found, kubelet("best-effort")), []
    for pod in hardware.pods_of(found):
        admission = admit(node, pod)
        node = admission.node
        pods.append({key: value or "" for key, value in hardware.outcome(admission).items()})
    return {"ID": f"{name}/best-effort", "Pods": pods}


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, "DIFFERS"),
        ({"Panic": "nil pointer dereference"}, "DIFFERS"),
        ({"GaveUp": True}, "DIFFERS"),
        ({"Invalid": "tm: unsupported"}, "DIFFERS"),
    ],
)
def test_verdicts_that_differ_are_found(trees: Path, change: dict[str, Any], verdict: str) -> None:
    recorded_now = answer_of(trees, "numa-id-63")
    if not change:
        recorded_now["Pods"][0]["CPUs"] = "7"
    (result,) = hardware.compare_admissions(
        trees / "numa-id-63", recorded()["numa-id-63"], {recorded_now["ID"]: recorded_now | change}
    )
    assert result.verdict == verdict


@pytest.mark.parametrize("name", ["numa-id-64", "no-numa-package-minus-1"])
@pytest.mark.parametrize("scenario", ["best-effort", "restricted", "single", "best-socket"])
def test_a_kubelet_that_crashes_is_never_a_verdict(trees: Path, name: str, scenario: str) -> None:
    panic = {"ID": f"{name}/{scenario}", "Panic": "bitmask.BitMask is nil"}
    (result,) = hardware.compare_admissions(trees / name, recorded()[name], {panic["ID"]: panic})
    assert result.verdict == "kubelet crashes: so said"


@pytest.mark.parametrize("name", ["numa-id-64", "no-numa-package-minus-1", "no-numa-two-sockets"])
def test_without_alignment_pods_fit_on_any_machine(trees: Path, name: str) -> None:
    found = machine(trees, name)
    assert admit(Node.fresh(found, kubelet("none")), hardware.pods_of(found)[0]).admitted


def test_offline_cpus_count_for_whole_cores_without_numa(trees: Path) -> None:
    config = KubeletConfiguration.from_api(
        {
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
            "reservedSystemCPUs": "0",
        },
        version="v1.36.0",
    )
    found = machine(trees, "no-numa-smt-offline")
    decision = admit(Node.fresh(found, config), hardware.pods_of(found)[0])
    assert decision.message == "SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2"


def test_all_recorded_machines_and_their_trees(shared: Path, trees: Path) -> None:
    folder = shared / "conformance/hardware"
    answers = [str(folder / f"kubelet_{name}.jsonl.gz") for name in ("machines", "cases")]
    arguments = [item for file in answers for item in ("--answers", file)]
    admissions = str(folder / "kubelet_admissions.jsonl.gz")
    assert main(["machines", *arguments, "--admissions", admissions, str(trees)]) == 0
