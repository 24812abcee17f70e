"""--once through the real command: what is printed, what is said on stderr, the exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from numazones.api.numazone import NUMAZone
from numazones_exporter.main import main
from tests.exporter.sources.sysfs_tree import NODE, Tree
from tests.places import DATA
from tests.recorded_nodes import Recorded

GOLDEN = DATA / "golden" / "exporter"
REWRITE = "NUMAZONES_REWRITE_GOLDEN"


def run(*flags: str) -> Result:
    return CliRunner().invoke(main, flags)


@pytest.fixture
def _no_api_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "KUBECONFIG", "NODE_NAME", "NODE_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_the_table_of_each_recorded_node(recorded: Recorded) -> None:
    result = run(*recorded.flags())
    assert (result.exit_code, result.stderr) == (0, "")
    golden = GOLDEN / f"{'-'.join(filter(None, (recorded.name, recorded.moment)))}.txt"
    if REWRITE in os.environ:
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(result.stdout)
    assert result.stdout == golden.read_text()


def test_json_and_yaml_are_the_same_kubernetes_list(sample: Recorded) -> None:
    document = json.loads(run(*sample.flags(), "-o", "json").stdout)
    assert yaml.safe_load(run(*sample.flags(), "-o", "yaml").stdout) == document
    assert (document["apiVersion"], document["kind"]) == ("v1", "List")
    zones = [NUMAZone.from_api(item) for item in document["items"]]
    assert [zone.metadata.name for zone in zones] == ["rig-b-numa-0", "rig-b-numa-1"]


def test_every_run_prints_the_same(sample: Recorded) -> None:
    assert run(*sample.flags(), "-o", "json").stdout == run(*sample.flags(), "-o", "json").stdout


def test_the_console_script_works_without_an_api_server(sample: Recorded) -> None:
    script = Path(sys.executable).parent / "numazones-exporter"
    done = subprocess.run(
        [script, *sample.flags()],
        env={"PATH": os.environ["PATH"], "HOME": "/dev/null"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (GOLDEN / "rig-b.txt").read_text()


def test_a_recorded_node_is_shown_without_http_and_operator_libraries(sample: Recorded) -> None:
    """Small images can leave these libraries out, and they cost memory on every node."""
    program = (
        "import sys; from numazones_exporter.main import main; main(standalone_mode=False);"
        "print(sorted({'aiohttp', 'kopf', 'kubernetes', 'psutil', 'structlog'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *sample.flags()],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.usefixtures("_no_api_server")
def test_laptop_without_kubelet_shows_hardware_and_missing_sources(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0-3"}, threads=2).write()
    flags = ("--sysfs", str(tree.sysfs), "--procfs", str(tree.procfs))
    result = run("--once", "--node-name", "laptop", "--kubelet-dir", "/nonexistent", *flags, "-o", "json")
    assert result.exit_code == 0
    (zone,) = json.loads(result.stdout)["items"]
    assert zone["status"]["topology"]["cpus"] == "0-3"
    rows = {row.pop("name"): row for row in zone["status"]["resources"]}
    assert rows == {
        "cpu": {"capacity": "4"},
        "memory": {"capacity": "1Gi"},
        "hugepages-2Mi": {"capacity": "6Mi"},
    }
    ready, consistent = zone["status"]["conditions"]
    assert (ready["status"], ready["reason"]) == ("False", "KubeletNotFound")
    assert ready["message"].startswith("no kubelet found, so only the hardware is shown: ")
    assert "/nonexistent has neither state files nor the socket of a kubelet" in ready["message"]
    assert consistent["status"] == "True"
    assert "kubelet-config, pods, node: no API server is configured" in result.stderr
    assert "Ready=False (KubeletNotFound)" in result.stderr


def test_without_hardware_there_is_nothing_to_print(sample: Recorded) -> None:
    result = run(*sample.flags(sysfs="/nonexistent"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "--sysfs must name the directory that is mounted as /sys" in result.stderr


def test_value_that_fits_no_zone_is_named_without_crash(sample: Recorded, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"cpuManagerPolicy: static\ntopologyManagerPolicy: {'x' * 200}\n")
    result = run(*sample.flags(kubelet_config=f"file:{config}"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert (
        f"numazones-exporter: the NUMAZones of node {sample.name} cannot be built: "
        "KubeletSettings.topology_manager_policy: String should have at most 128 characters, not 'xxx"
    ) in result.stderr
    assert "correct the node's files or the kubelet's settings" in result.stderr


def test_each_problem_is_on_stderr_and_in_the_zones_conditions(sample: Recorded, tmp_path: Path) -> None:
    for path in sample.state.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    state = tmp_path / "memory_manager_state"
    state.write_bytes(state.read_bytes()[:100])
    result = run(*sample.flags(kubelet_dir=str(tmp_path)), "-o", "json")
    assert result.exit_code == 0
    assert f"memory_manager_state: {state}: the file is truncated or not JSON" in result.stderr
    for zone in json.loads(result.stdout)["items"]:
        ready = zone["status"]["conditions"][0]
        assert (ready["status"], ready["reason"]) == ("Unknown", "InvalidCheckpoint")
        assert "the file is truncated or not JSON" in ready["message"]


def test_machine_with_34_zones_and_two_with_cpus_is_printed(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {0: "0-71", 1: "72-143", **dict.fromkeys(range(2, 34), "")}).write()
    flags = ("--sysfs", str(tree.sysfs), "--procfs", str(tree.procfs), "--node-name", "gb200")
    sources = ("--kubelet-config", "none", "--pods", "none", "--podresources", "none")
    result = run("--once", *flags, *sources, "--kubelet-dir", "/nonexistent", "-o", "json")
    zones = json.loads(result.stdout)["items"]
    assert [zone["spec"]["numaID"] for zone in zones] == list(range(34))
    assert [zone["status"]["resources"][0]["capacity"] for zone in zones] == ["72", "72", *["0"] * 32]
    assert {zone["status"]["zones"] for zone in zones} == {34}


def test_without_meminfo_memory_is_taken_from_memory_manager_state(sample: Recorded, tmp_path: Path) -> None:
    expected = json.loads(run(*sample.flags(), "-o", "json").stdout)["items"]
    sysfs = tmp_path / "sys"
    subprocess.run(["cp", "-a", f"{sample.machine}/sys", sysfs], check=True)
    (tmp_path / NODE / "node1/meminfo").unlink()
    result = run(*sample.flags(sysfs=str(sysfs)), "-o", "json")
    zones = json.loads(result.stdout)["items"]
    assert [zone["status"]["resources"] for zone in zones] == [
        zone["status"]["resources"] for zone in expected
    ]
    assert zones[0]["status"]["conditions"][0]["reason"] == "MeminfoMissing"
