"""Fuzz targets of the other placement models: annotations and objects of Koordinator and NRI's policy."""

import json
from collections.abc import Mapping

from checks.laws.fuzz.target import Target
from checks.laws.fuzz.targets.node import encoded, json_or, served
from numazones import build
from numazones.cluster.cluster import ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet.pod import Pod
from numazones.placement import models
from numazones.placement.model import Model, NodeObjects
from numazones_koordinator import annotations as koordinator
from numazones_koordinator.model import MODEL as KOORDINATOR
from numazones_topology_aware.admission import admit
from numazones_topology_aware.hardware import Hardware
from numazones_topology_aware.model import MODEL as TOPOLOGY_AWARE
from numazones_topology_aware.node import Node
from numazones_topology_aware.publishing import topology_of
from numazones_topology_aware.record import record_of
from tests.models.koordinator.building import detail, gpu, node_object, nrt, pod_object
from tests.models.topology_aware.machines import configuration

_STATE = build.node(build.machine(numa=2, cores=4, threads=1, memory="8Gi"), {})


def _read(model: Model, data: bytes) -> None:
    """Read a node of a model from objects, and have it decide about a pod; how it says both is read, too."""
    found = json_or(data)
    if not isinstance(found, Mapping):
        return
    node, topology = (served(found.get(key)) for key in ("node", "topology"))
    record = found.get("record")
    if node is None or topology is None:
        return
    listed = found.get("pods")
    pods = (
        [ClusterPod.from_api(body) for body in map(served, listed) if body]
        if isinstance(listed, list)
        else []
    )
    others = found.get("others")
    model.mark(node, topology)
    try:
        placement = model.read(
            NodeObjects(
                node=node,
                topology=topology,
                pods=pods[1:],
                kubelet=_STATE if found.get("machine", True) else None,
                others={
                    kind: [one for one in map(served, bodies) if one is not None]
                    for kind, bodies in (others.items() if isinstance(others, Mapping) else ())
                    if isinstance(bodies, list)
                },
                record=record if isinstance(record, Mapping) else models.parse_record(str(record)),
            )
        )
    finally:
        for pod in pods:
            verdict = model.verdict(pod)
            model.outcome(verdict or "Admitted", pod.annotations)
    for pod in pods[:1]:
        if pod.admission is not None:
            decision = placement.admit(pod.admission)
            assert decision.admitted is not bool(decision.reason)
            assert decision.admitted or decision.message is not None


def _koordinator_objects() -> list[bytes]:
    zones = {0: {"cpu": "8", "memory": "16Gi"}, 1: {"cpu": "8", "memory": "16Gi"}}
    noted = {
        koordinator.KUBELET_CPU_MANAGER_POLICY: '{"policy":"static","options":{"full-pcpus-only":"true"}}',
        koordinator.POD_CPU_ALLOCS: '[{"uid":"a","cpuset":"4","managedByKubelet":true}]',
        koordinator.SYSTEM_QOS_RESOURCE: '{"cpuset":"3","cpusetExclusive":false}',
        koordinator.NODE_RESERVATION: '{"resources":{"cpu":"2"},"reservedCPUs":"1"}',
    }
    status = {"cpuset": "2,10", "numaNodeResources": [{"node": 0, "resources": {"cpu": "2"}}]}
    allocated = {
        koordinator.DEVICE_ALLOCATED: '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"100"}}]}'
    }
    node = node_object(
        labels={koordinator.NODE_NUMA_TOPOLOGY_POLICY: "SingleNUMANode"},
        annotations={koordinator.AMPLIFICATION_RATIO: '{"cpu":1.5}'},
    )
    waiting = pod_object(
        "p",
        policy="Restricted",
        exclusive="Required",
        spec={"requiredCPUBindPolicy": "FullPCPUs"},
        cpu="2",
        nvidia="1",
    )
    running = pod_object("r", status=status, annotations=allocated, cpu="2")
    running["status"] = {"phase": "Running"}
    running["spec"]["nodeName"] = "n"
    devices = [{"metadata": {"name": "n"}, "spec": {"devices": [gpu(0, 0), gpu(1, 1), gpu(2, None)]}}]
    return encoded(
        {
            "node": node,
            "topology": nrt(detail(2, 4, 2), zones, annotations=noted),
            "pods": [waiting, running],
            "others": {"Device": devices},
            "machine": False,
        }
    )


def _policy_objects() -> list[bytes]:
    hardware = Hardware.of(_STATE.machine)
    node = Node.fresh(hardware, configuration())
    marks = {
        "prefer-isolated-cpus.resource-policy.nri.io/pod": "true",
        "memory-type.resource-policy.nri.io/container.c": "dram",
        "topologyhints.resource-policy.nri.io/pod": "true",
        "scheduling-class.resource-policy.nri.io/pod": "rt",
        "resource-policy.nri.io/affinity": "c: [{match: {key: name, operator: In, values: [r]}, weight: 3}]",
        "noderesource.dev/resources": "c: {requests: {cpu: 1}}",
    }
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    pods = [
        {
            "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": notes},
            "spec": {"containers": [{"name": "c", "resources": resources}], "nodeName": where},
            "status": {"phase": "Running" if where else "Pending", "qosClass": "Guaranteed"},
        }
        for name, where, notes in (("p", "", marks), ("r", "n", {}))
    ]
    node = admit(node, Pod.from_api(pods[1])).node
    policies = {
        "metadata": {"name": "default", "namespace": "kube-system"},
        "spec": {
            "pinCPU": True,
            "pinMemory": True,
            "preferIsolatedCPUs": True,
            "reservedResources": {"cpu": "750m"},
        },
    }
    return encoded(
        {
            "node": {"metadata": {"name": "n", "labels": {}}},
            "topology": json.loads(json.dumps(topology_of(node, "n"))),
            "record": json.loads(json.dumps(record_of(node))),
            "pods": pods,
            "others": {"TopologyAwarePolicy": [policies]},
        }
    )


TARGETS: tuple[Target, ...] = (
    Target("koordinator", lambda data: _read(KOORDINATOR, data), _koordinator_objects, (NumazonesError,)),
    Target("topology-aware", lambda data: _read(TOPOLOGY_AWARE, data), _policy_objects, (NumazonesError,)),
)
