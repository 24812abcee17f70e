"""Time ``kubectl numazones`` on a large dump: cold start, reading and answer, per command.

The dump is made here: nodes filled by the library's own admission, pods of some deployments running on them
and a few waiting, all objects as ``kubectl get -o json`` writes them. Each command is a process of its own,
as at a terminal, that finds its modules compiled, as installers leave them; it takes its turns, and the least
CPU time counts, as seconds on a wall clock measure the neighbours too. The goal is that of the commands which
read the dump together, and that of ``--help``.

    .venv/bin/python -m numazones_benchmarks.kubectl --nodes 1000 --pods 10000 --json
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from numazones.api.zones_from_node import zones_from_node
from numazones.kubelet.admission import admit
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machines import MachineShape, build
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod

PROGRAM = Path(sys.executable).with_name("kubectl-numazones")
NIC = "vendor.example/nic"
GOAL_SECONDS, GOAL_HELP_SECONDS = 3.0, 0.3
TEMPLATES: tuple[dict[str, str], ...] = (
    {"cpu": "2", "memory": "4Gi"},
    {"cpu": "4", "memory": "8Gi", NIC: "1"},
    {"cpu": "1", "memory": "2Gi"},
    {"cpu": "6", "memory": "24Gi"},
    {},
    {"cpu": "3", "memory": "6Gi"},
)
"""What the pods of a deployment ask for; deployments take turns. Without amounts: BestEffort."""
WAITING = {"cpu": "26", "memory": "64Gi"}
DEPLOYMENTS = 200
CREATED = "2026-11-20T08:00:00Z"
CONFIGURATION = {
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0,16,32,48",
    "memoryManagerPolicy": "Static",
    "systemReserved": {"memory": "1948Mi"},
    "reservedMemory": [{"numaNode": zone, "limits": {"memory": "1Gi"}} for zone in range(2)],
    "topologyManagerPolicy": "single-numa-node",
}


def pod(number: int, deployment: int, amounts: dict[str, str]) -> dict[str, Any]:
    """A pod of some 3 KB, as the API server serves it, without a node yet."""
    resources = {"requests": amounts, "limits": amounts} if amounts else {}
    name, owner = f"app-{deployment}-{number:05}", f"app-{deployment}-7d9f"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": f"team-{deployment % 20}",
            "uid": f"uid-{number:05}",
            "creationTimestamp": CREATED,
            "labels": {"app": f"app-{deployment}", "pod-template-hash": "7d9f"},
            "annotations": {"kubernetes.io/note": "x" * 300},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": f"uid-{owner}",
                    "controller": True, "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/team/app:1.2.3",
                    "env": [{"name": f"VARIABLE_{key}", "value": "value " * 5} for key in range(12)],
                    "resources": resources,
                    "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets", "readOnly": True}],
                    "terminationMessagePath": "/dev/termination-log",
                }
            ],
            "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {}}]}}],
            "tolerations": [
                {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute"}
                for what in ("not-ready", "unreachable")
            ],
            "priority": 0,
            "schedulerName": "default-scheduler",
        },
        "status": {"phase": "Pending", "qosClass": "Guaranteed" if amounts else "BestEffort"},
    }  # fmt: skip


def running(body: dict[str, Any], node: str) -> dict[str, Any]:
    """The same pod, running on a node."""
    body["spec"]["nodeName"] = node
    body["status"] |= {
        "phase": "Running",
        "startTime": CREATED,
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "main", "ready": True, "state": {"running": {"startedAt": CREATED}}}],
    }
    return body


def node(name: str) -> dict[str, Any]:
    """A node object with some labels and images, as large as usual."""
    amounts = {"cpu": "60", "memory": "250Gi", "pods": "110", NIC: "8"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": CREATED,
            "labels": {f"label.example/{key}": "value" for key in range(12)} | {"kubernetes.io/os": "linux"},
        },
        "spec": {},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": [
                {"names": [f"registry.example/image-{key}:1"], "sizeBytes": 10**8} for key in range(50)
            ],
            "nodeInfo": {"operatingSystem": "linux", "kubeletVersion": "v1.36.2"},
        },
    }


def dump(nodes: int, pods: int) -> dict[str, Any]:
    """A cluster whose nodes are filled, in turn, by what their kubelets admit."""
    draw = random.Random(1)
    machine = build(MachineShape(memory_per_numa=128 << 30))
    devices = {NIC: [Device(f"nic-{number}", (number % 2,)) for number in range(8)]}
    empty = Node.fresh(machine, KubeletConfiguration.from_api(CONFIGURATION, version="v1.36.2"), devices)
    names = [f"worker-{number:04}" for number in range(nodes)]
    states = dict.fromkeys(names, empty)
    held: dict[str, dict[str, tuple[str, str]]] = {name: {} for name in names}
    items = [node(name) for name in names]
    waiting = max(1, pods // 500)
    for number in range(pods):
        deployment = draw.randrange(DEPLOYMENTS)
        if number >= pods - waiting:
            items.append(pod(number, DEPLOYMENTS, WAITING))
            continue
        body = pod(number, deployment, TEMPLATES[deployment % len(TEMPLATES)])
        name = names[number % nodes]
        admission = admit(states[name], Pod.from_api(body))
        states[name] = admission.node
        if admission.admitted:
            metadata = body["metadata"]
            held[name][metadata["uid"]] = (metadata["namespace"], metadata["name"])
            items.append(running(body, name))
    items += [
        zone.to_api()
        for name, state in states.items()
        for zone in zones_from_node(state, node_name=name, pods=held[name], version="v1.36.2")
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def cpu_seconds(*arguments: str, compiled: Path) -> tuple[float, float]:
    """Run the program once: CPU time of the process, and seconds on the wall clock."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(compiled)
    before, start = os.times(), time.perf_counter()
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False, env=environment)
    taken, after = time.perf_counter() - start, os.times()
    if done.returncode not in {0, 1} or done.stderr:
        sys.exit(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return used, taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000, help="nodes of the dump (%(default)s)")
    parser.add_argument("--pods", type=int, default=10000, help="pods of the dump (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="runs per command (%(default)s)")
    parser.add_argument("--keep", type=Path, help="write the dump to this file and keep it")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = options.keep or Path(folder) / "dump.json"
        made = dump(options.nodes, options.pods)
        file.write_text(json.dumps(made, indent=4))  # as kubectl indents
        waiting = next(it for it in reversed(made["items"]) if it["kind"] == "Pod")["metadata"]
        commands = {
            "--help": ("--help",),
            "top": ("top", "-f", str(file)),
            "why": ("why", f"{waiting['namespace']}/{waiting['name']}", "-f", str(file)),
            "fit": ("fit", "cpu=16,memory=32Gi", "-f", str(file)),
        }
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        compiled = Path(folder) / "compiled"
        for name in commands:
            cpu_seconds(name, "--help", compiled=compiled)  # compiles what the command imports
        for _ in range(options.rounds):
            for name, arguments in commands.items():
                runs[name].append(cpu_seconds(*arguments, compiled=compiled))
        mebibytes = round(file.stat().st_size / 2**20, 1)
    least = {
        name: {
            "cpuSeconds": round(min(run[0] for run in taken), 2),
            "wallSeconds": round(min(run[1] for run in taken), 2),
        }
        for name, taken in runs.items()
    }
    answers = [figures for name, figures in least.items() if name != "--help"]
    result = {
        "nodes": options.nodes,
        "pods": options.pods,
        "mebibytes": mebibytes,
        "commands": least,
        "together": {
            key: round(sum(one[key] for one in answers), 2) for key in ("cpuSeconds", "wallSeconds")
        },
        "goals": {"together": GOAL_SECONDS, "--help": GOAL_HELP_SECONDS},
    }
    if options.json:
        print(json.dumps(result, indent=1))
        return
    for name, figures in {**least, "together": result["together"]}.items():
        print(f"{name:8} {figures['cpuSeconds']:>6.2f} s CPU, {figures['wallSeconds']:.2f} s on the clock")


if __name__ == "__main__":
    main()
