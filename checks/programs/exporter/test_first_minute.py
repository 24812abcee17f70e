"""The first minute on a node that is not what numazones is for, or not set up for it, by the real programs.

What works is published, what doesn't is said with the cure, by the zones, the log and doctor alike, and
nothing looks broken.
"""

import asyncio
import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from numazones.kubelet import machines
from numazones_client.resources import NODES, NUMAZONES
from numazones_simulator import machine_tree
from numazones_simulator.control_plane import ControlPlane, control_plane
from numazones_simulator.kubelet.kubelet import SimulatedKubelet
from numazones_simulator.kubelet.podresources import PodResourcesServer
from numazones_simulator.kubelet.state_files import KubeletFiles
from numazones_simulator.node_spec import NodeSpec, bystander, configuration, node_object
from tests.waiting import eventually

NODE = "kind-control-plane"
MACHINE = machines.build(machines.MachineShape(sockets=1, cores_per_numa=4, memory_per_numa=8 << 30))
STATIC = configuration(MACHINE, topology_manager_policy="single-numa-node", reserved_cpus="0,4")
STATE_FILES = (
    "kubelet/cpu_manager_state",
    "kubelet/memory_manager_state",
    "kubelet/device-plugins/kubelet_internal_checkpoint",
)
PROGRAMS = Path(sys.executable).parent

_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2


def without(*names: str) -> Callable[[Path], None]:
    """Files and directories that are not there."""

    def remove(folder: Path) -> None:
        for name in names:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def denied(name: str) -> Callable[[Path], None]:
    """A file that nobody may read."""
    return lambda folder: (folder / name).chmod(0)


@dataclass(frozen=True)
class Case:
    """A missing source, and the message about it."""

    change: Callable[[Path], None] | None = None
    config: dict[str, Any] | None = None
    flags: tuple[str, ...] = ()
    ready: str = "True"
    reason: str = "Complete"
    says: str = ""
    """Part of the condition's message, which the log says as well."""
    cure: str = ""
    """Part of what doctor advises."""
    free: str = "6"
    """CPUs that the zone shows as free; empty: unknown."""


CASES = {
    "a node as it should be": Case(),
    "policies none, as kind and minikube have them": Case(config=bystander(), free="8"),
    "policies none, and state files were never written": Case(
        without(*STATE_FILES), config=bystander(), free="8"
    ),
    "a kernel without NUMA nodes": Case(
        without("sys/devices/system/node"), reason="NoNUMANodes", says="lists no NUMA node"
    ),
    "a kernel without NUMA nodes, policies none": Case(
        without("sys/devices/system/node"),
        config=bystander(),
        reason="NoNUMANodes",
        says="each socket is shown as one NUMA node",
        free="8",
    ),
    "state files are missing": Case(
        without(*STATE_FILES),
        ready="Unknown",
        reason="NotFound",
        says="cpu_manager_state does not exist, although a kubelet creates it when it starts",
        cure="restart the kubelet, which writes its state files when it starts",
    ),
    "a state file may not be read": Case(
        denied("kubelet/cpu_manager_state"),
        ready="Unknown",
        reason="Unreadable",
        says="cpu_manager_state cannot be read: Permission denied; the exporter ",
        cure="if SELinux is enforcing, with the SELinux type spc_t",
    ),
    "podresources have no socket": Case(
        without("kubelet/pod-resources/kubelet.sock"),
        ready="Unknown",
        reason="SocketMissing",
        says="is its directory pod-resources mounted (the directory, not the socket)?",
        cure="mount the directory pod-resources, not the socket in it",
    ),
    "the kubelet has its files elsewhere": Case(
        without("kubelet"),
        ready="Unknown",
        reason="KubeletFilesMissing",
        says="has neither state files nor the socket of a kubelet",
        cure="/var/lib/k0s/kubelet on k0s",
        free="",
    ),
    "there is no kubelet": Case(
        without("kubelet"),
        flags=("--kubelet-config=none",),
        ready="False",
        reason="KubeletNotFound",
        says="no kubelet found, so only the hardware is shown",
        cure="a machine without a kubelet shows only its hardware",
        free="",
    ),
}


def _as_shipped() -> None:
    """Let a root without capabilities be kept out by permissions, as in the exporter's container."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


@asynccontextmanager
async def exporting(folder: Path, plane: ControlPlane, case: Case) -> AsyncIterator[Path]:
    """The real exporter on a simulated node; yields its log."""
    config = case.config or STATIC
    spec = NodeSpec(NODE, MACHINE, config)
    kubelet = SimulatedKubelet(spec)
    tree = machine_tree.write(MACHINE, folder)
    KubeletFiles(folder / "kubelet").write(kubelet.node)
    (folder / "config.json").write_text(json.dumps(config))
    await plane.client.create(NODES, node_object(spec, now="2026-01-31T08:00:00Z"))
    socket, log = folder / "kubelet" / "pod-resources" / "kubelet.sock", folder / "exporter.log"
    async with PodResourcesServer(socket, lambda: (kubelet.node, kubelet.pods)):
        if case.change is not None:
            case.change(folder)
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                str(PROGRAMS / "numazones-exporter"),
                f"--node-name={NODE}",
                f"--sysfs={tree.sysfs}",
                f"--procfs={tree.procfs}",
                f"--kubelet-dir={folder / 'kubelet'}",
                f"--kubelet-config=file:{folder / 'config.json'}",
                f"--kubeconfig={plane.kubeconfig}",
                "--metrics-address=127.0.0.1:0",
                *case.flags,
                stderr=output,
                preexec_fn=_as_shipped,
            )
        try:
            yield log
        finally:
            process.terminate()
            assert await process.wait() == 0


async def doctors_readings(plane: ControlPlane) -> list[dict[str, Any]]:
    """Return doctor's findings about what exporters read."""
    done = await asyncio.to_thread(
        subprocess.run,
        [str(PROGRAMS / "kubectl-numazones"), "doctor", "-o", "json", f"--kubeconfig={plane.kubeconfig}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    return [found for found in json.loads(done.stdout)["findings"] if found["check"] == "readings"]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_working_sources_are_shown_and_failures_name_the_cure(case: Case, tmp_path: Path) -> None:
    async with control_plane(tmp_path) as plane, exporting(tmp_path, plane, case) as log:

        async def published() -> dict[str, Any] | None:
            found = await plane.client.list(NUMAZONES)
            return found[0].get("status") if found else None

        status = await eventually(published)
        (ready,) = (one for one in status["conditions"] if one["type"] == "Ready")
        assert (ready["status"], ready["reason"]) == (case.ready, case.reason)
        message = ready.get("message", "")
        assert case.says in message
        assert status["topology"]["cpus"] == "0-7"
        assert status["summary"]["memory"] == "8.0Gi"
        assert status["summary"].get("free", "") == case.free
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert {line["level"] for line in lines} <= {"info", "warning"}, lines
        warnings = [line["message"] for line in lines if line["level"] == "warning"]
        assert bool(warnings) == (case.ready != "True"), warnings
        if case.says and case.ready != "False":
            assert case.says in log.read_text()
        findings = await doctors_readings(plane)
        assert bool(findings) == (case.ready != "True")
        for finding in findings:
            assert finding["subjects"] == [NODE]
            assert finding["message"] == f"{case.reason}: {message}"
            assert case.cure in finding["cure"]


@pytest.mark.parametrize(
    ("verb", "resource", "says"),
    [
        ("list", "pods", "; grant list on pods to the service account (see manifests/)"),
        ("list", "numazones", "; grant list on numazones.numazones.io to the service account"),
        ("get", "nodes", f"did not return the UID of Node {NODE}, which owns it; get nodes {NODE}: "),
        ("patch", "leases", "the node's Lease was not renewed: patch leases.coordination.k8s.io"),
    ],
)
async def test_a_right_that_is_missing_is_named(verb: str, resource: str, says: str, tmp_path: Path) -> None:
    async with control_plane(tmp_path) as plane:
        plane.server.faults.server_error(403, verb=verb, resource=resource, count=None)
        async with exporting(tmp_path, plane, Case()) as log:
            await eventually(lambda: says in log.read_text(), what=says)
            if resource == "pods":
                zone = await eventually(lambda: plane.client.list(NUMAZONES))
                (finding,) = await eventually(lambda: doctors_readings(plane))
                assert zone[0]["spec"]["nodeName"] == NODE
                assert finding["message"].startswith("Forbidden: list pods: ")
                assert "apply the exporter's manifests again" in finding["cure"]
