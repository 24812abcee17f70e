"""Builds machines, nodes and pods in a line, for scripts, notebooks and tests of one's own.

The types themselves take what sysfs, a kubelet and an API server say, word for word, valid or not. What
people write by hand is checked here instead, at once, and a slip is named with what was probably meant.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from numazones.apimachinery.quantity import InvalidQuantity
from numazones.apimachinery.quantity import parse as parse_quantity
from numazones.apimachinery.resources import CPU, HUGEPAGES, MEMORY
from numazones.kubelet.config import (
    BEST_EFFORT,
    POLICY_NONE,
    RESTRICTED,
    SCOPE_CONTAINER,
    SCOPE_POD,
    SINGLE_NUMA_NODE,
    InvalidConfiguration,
    KubeletConfiguration,
)
from numazones.kubelet.cpu_manager import NONE as NO_CPUS
from numazones.kubelet.cpu_manager import STATIC as STATIC_CPUS
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine import InvalidMachine, Machine
from numazones.kubelet.memory_manager import NONE as NO_MEMORY
from numazones.kubelet.memory_manager import STATIC as STATIC_MEMORY
from numazones.kubelet.node import Node
from numazones.kubelet.pod import InvalidPod, Pod
from numazones.kubelet.versions import REFERENCE
from numazones.whatif.machine_type import InvalidMachineType, aligning_settings, parse
from numazones.wording import did_you_mean

__all__ = ["configuration", "machine", "node", "pod", "pod_body"]

QuantityLike = str | int | float

_LOOSELY = 0.4
"""Similarity of a misspelled word to the one meant."""
_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "cpuManagerPolicy": (NO_CPUS, STATIC_CPUS),
    "memoryManagerPolicy": (NO_MEMORY, STATIC_MEMORY),
    "topologyManagerPolicy": (POLICY_NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE),
    "topologyManagerScope": (SCOPE_CONTAINER, SCOPE_POD),
}
_FIELDS = (
    *_ALLOWED,
    "cpuManagerPolicyOptions",
    "topologyManagerPolicyOptions",
    "reservedSystemCPUs",
    "reservedMemory",
    "kubeReserved",
    "systemReserved",
    "evictionHard",
    "featureGates",
)


def machine(
    *, sockets: int = 1, numa: int = 1, cores: int, threads: int = 2, memory: QuantityLike
) -> Machine:
    """Return a machine of equal NUMA nodes.

    Args:
        sockets: of the whole machine.
        numa: NUMA nodes of the whole machine.
        cores: physical cores of the whole machine.
        threads: logical CPUs of a core.
        memory: of the whole machine, such as "256Gi", or bytes.

    Raises:
        InvalidMachine: the parts do not divide evenly, or are none.

    >>> from numazones import build, cpuset
    >>> made = build.machine(sockets=2, numa=4, cores=16, threads=2, memory="64Gi")
    >>> len(made.numa_nodes), cpuset.format(made.cpus_of_numa[1])
    (4, '4-7,20-23')
    """
    counts: dict[str, object] = {"sockets": sockets, "numa": numa, "cores": cores, "threads": threads}
    for name, count in counts.items():
        if not isinstance(count, int) or count < 1:
            raise InvalidMachine(f"{name} of a machine must be a whole number of at least 1, not {count!r}")
    text = ",".join(f"{name}={count}" for name, count in counts.items())
    try:
        return parse(f"{text},memory={memory}")[0]
    except InvalidMachineType as error:
        raise InvalidMachine(str(error)) from error


def configuration(settings: Mapping[str, Any], *, version: str = f"v1.{REFERENCE}.0") -> KubeletConfiguration:
    """Return a kubelet's configuration; unlike ``KubeletConfiguration.from_api`` it takes no wrong word.

    Args:
        settings: fields of a KubeletConfiguration, as in its file.
        version: the kubelet's.

    Raises:
        InvalidConfiguration: a field is misspelt, or its value is none that kubelets know.
        UnsupportedVersion: the version is not modelled.

    >>> from numazones import build
    >>> build.configuration({"topologyManagerPolicy": "sngle-numa-node"})
    Traceback (most recent call last):
    ...
    numazones.kubelet.config.InvalidConfiguration: topologyManagerPolicy of the kubelet configuration is
    'sngle-numa-node', which is not one of none, best-effort, restricted, single-numa-node; did you mean
    single-numa-node?
    """
    read = KubeletConfiguration.from_api(settings, version=version)
    for name, value in settings.items():
        if name not in _FIELDS and (meant := did_you_mean(name, _FIELDS, cutoff=0.8)):
            raise InvalidConfiguration(f"the kubelet configuration has no field {name!r}{meant}")
        allowed = _ALLOWED.get(name, ())
        if allowed and value and value not in allowed:
            raise InvalidConfiguration(
                f"{name} of the kubelet configuration is {value!r}, which is not one of {', '.join(allowed)}"
                + did_you_mean(value, allowed, cutoff=_LOOSELY)
            )
    return read


def node(
    machine: Machine,
    settings: Mapping[str, Any] | None = None,
    *,
    devices: Mapping[str, int] | None = None,
    version: str = f"v1.{REFERENCE}.0",
) -> Node:
    """Return a node without pods.

    Args:
        machine: its hardware.
        settings: fields of its KubeletConfiguration; left out: static CPU and memory managers, the policy
            single-numa-node, and the first core and 1Gi kept for the system.
        devices: resource → how many, spread evenly over the NUMA nodes.
        version: the kubelet's.

    Raises:
        InvalidMachine: there is none, or it has no CPUs.
        InvalidConfiguration: the settings are wrong, or its kubelet would not start with them.

    >>> from numazones import admit, build, cpuset
    >>> hardware = build.machine(sockets=2, numa=2, cores=16, memory="64Gi")
    >>> host = build.node(hardware, devices={"example.com/nic": 2})
    >>> decision = admit(host, build.pod(cpu=12, memory="8Gi", devices={"example.com/nic": 1}))
    >>> cpuset.format(decision.containers["main"].cpus)
    '1-6,17-22'
    """
    if not isinstance(machine, Machine):
        raise InvalidMachine(f"a node needs a Machine, not {type(machine).__name__}; use build.machine")
    if not machine.cpus or not machine.numa_nodes:
        raise InvalidMachine("a node needs a machine with CPUs and NUMA nodes, but this one has none")
    config = configuration(aligning_settings(machine) if settings is None else settings, version=version)
    return Node.fresh(machine, config, dict(_devices(machine, devices or {})))


def _devices(machine: Machine, wanted: Mapping[str, int]) -> Iterable[tuple[str, list[Device]]]:
    ids = [numa.id for numa in machine.numa_nodes]
    for resource, count in wanted.items():
        if "/" not in resource:
            raise InvalidMachine(f"{resource!r} is not a device resource; use a name such as example.com/nic")
        near = [ids[index * len(ids) // count] for index in range(count)]
        yield resource, [Device(f"numa{numa}-{index}", (numa,)) for index, numa in enumerate(near)]


def pod_body(
    name: str = "pod",
    *,
    cpu: QuantityLike | None = None,
    memory: QuantityLike | None = None,
    hugepages: Mapping[str, QuantityLike] | None = None,
    devices: Mapping[str, QuantityLike] | None = None,
    namespace: str = "default",
    containers: int = 1,
) -> dict[str, Any]:
    """Return a Pod as the API has it, whose containers all ask for the same, as requests and limits.

    Args:
        name: also its UID, so that each pod on a node needs another.
        cpu: CPUs of a container, such as 4 or "500m"; whole ones are exclusive under the static CPU manager.
        memory: of a container, such as "8Gi", or bytes.
        hugepages: page size such as "2Mi" → amount, such as "1Gi", or bytes.
        devices: resource → how many.
        namespace: its namespace.
        containers: how many.

    Raises:
        InvalidPod: a value is not an amount, or there are no containers.

    >>> from numazones import ClusterPod, build
    >>> ClusterPod.from_api(build.pod_body("web", cpu=2, memory="1Gi")).requests
    {'cpu': 2000, 'memory': 1073741824}
    """
    if containers < 1:
        raise InvalidPod(f"a pod needs at least one container, not {containers}")
    asked = {CPU: cpu, MEMORY: memory}
    asked |= {f"{HUGEPAGES}{size}": amount for size, amount in (hugepages or {}).items()}
    asked |= devices or {}
    amounts = {resource: _amount(resource, value) for resource, value in asked.items() if value is not None}
    resources = {"requests": amounts, "limits": amounts}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": name},
        "spec": {
            "containers": [
                {"name": f"container-{number}" if containers > 1 else "main", "resources": resources}
                for number in range(containers)
            ]
        },
    }


def pod(
    name: str = "pod",
    *,
    cpu: QuantityLike | None = None,
    memory: QuantityLike | None = None,
    hugepages: Mapping[str, QuantityLike] | None = None,
    devices: Mapping[str, QuantityLike] | None = None,
    namespace: str = "default",
    containers: int = 1,
) -> Pod:
    """Return a pod to be admitted.

    Args:
        name: also its UID.
        cpu: CPUs of a container, such as 4 or "500m"; whole ones are exclusive under the static CPU manager.
        memory: of a container, such as "8Gi", or bytes.
        hugepages: page size such as "2Mi" → amount, such as "1Gi", or bytes.
        devices: resource → how many.
        namespace: its namespace.
        containers: how many.

    Raises:
        InvalidPod: a value is not an amount, or there are no containers.

    >>> from numazones import build
    >>> build.pod(cpu=4, memory="8Gi").qos.value
    'Guaranteed'
    >>> build.pod(cpu="4 cores")
    Traceback (most recent call last):
    ...
    numazones.kubelet.pod.InvalidPod: cpu of a pod is '4 cores', which is not a quantity;
    use a value such as 4, 500m or 8Gi
    """
    return Pod.from_api(
        pod_body(
            name,
            cpu=cpu,
            memory=memory,
            hugepages=hugepages,
            devices=devices,
            namespace=namespace,
            containers=containers,
        )
    )


def _amount(resource: str, value: QuantityLike) -> str:
    try:
        parse_quantity(str(value))
    except InvalidQuantity as error:
        raise InvalidPod(
            f"{resource} of a pod is {value!r}, which is not a quantity; use a value such as 4, 500m or 8Gi"
        ) from error
    return str(value)
