"""``numazones.build``: what people write by hand is checked at once, and a slip is named with the cure."""

from collections.abc import Callable

import pytest

from numazones import ClusterNode, ClusterPod, admit, build, cpuset, predict
from numazones.errors import NumazonesError
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.machine import InvalidMachine, Machine
from numazones.kubelet.pod import InvalidPod, Pod

MACHINE = build.machine(sockets=2, numa=4, cores=16, threads=2, memory="64Gi")
NIC = "example.com/nic"


def test_a_machine_has_equal_numa_nodes() -> None:
    assert [numa.memory for numa in MACHINE.numa_nodes] == [16 << 30] * 4
    assert [cpus.bit_count() for cpus in MACHINE.cpus_of_numa.values()] == [8] * 4
    assert len(MACHINE.cpus_of_socket) == 2


def test_a_node_without_settings_aligns_and_keeps_the_first_core() -> None:
    config = build.node(MACHINE).config
    assert (config.cpu_manager_policy, config.memory_manager_policy) == ("static", "Static")
    assert config.topology_manager_policy == "single-numa-node"
    assert config.reserved_system_cpus == "0,16"


def test_devices_are_spread_over_the_numa_nodes() -> None:
    node = build.node(MACHINE, devices={NIC: 8})
    for number in range(4):
        decision = admit(node, build.pod(f"p{number}", cpu=1, memory="1Gi", devices={NIC: 2}))
        assert decision.admitted
        node = decision.node
    assert not admit(node, build.pod("more", cpu=1, memory="1Gi", devices={NIC: 1})).admitted


def test_a_pod_asks_for_the_same_in_every_container() -> None:
    pod = build.pod("web", cpu=2, memory="1Gi", hugepages={"2Mi": "64Mi"}, devices={NIC: 1}, containers=2)
    assert [container.name for container in pod.containers] == ["container-0", "container-1"]
    names = {name for container in pod.containers for name, _ in container.requests}
    assert names == {"cpu", "memory", "hugepages-2Mi", NIC}
    decision = admit(build.node(MACHINE), build.pod(cpu=0.5, memory=1 << 30))
    assert cpuset.format(decision.containers["main"].cpus) == ""


def test_a_prediction_takes_a_few_lines() -> None:
    node = ClusterNode("worker-1", allocatable={"cpu": 30_000, "memory": 60 << 30})
    found = predict(
        ClusterPod.from_api(build.pod_body("web", cpu=8, memory="1Gi")),
        [node.with_state(build.node(MACHINE))],
    )
    assert found.sentence == "1 of 1 nodes would admit it; best is worker-1 on NUMA node 1"


def policy(**settings: object) -> Callable[[], object]:
    return lambda: build.node(MACHINE, settings)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            policy(topologyManagerPolicy="sngle"),
            r"topologyManagerPolicy .* is 'sngle', which is not one of .*; did you mean single-numa-node\?",
        ),
        (policy(topologyManagerPolicy="bestEffort"), r"did you mean best-effort\?"),
        (
            policy(topologyManagerScope="pods"),
            r"'pods', which is not one of container, pod; did you mean pod\?",
        ),
        (policy(memoryManagerPolicy="static"), r"did you mean Static\?"),
        (
            policy(cpuManagerPolicy=True),
            "cannot unmarshal bool into Go struct field KubeletConfiguration.cpuManagerPolicy ",
        ),
        (
            policy(topologyManagerPolcy="none"),
            r"'topologyManagerPolcy'; did you mean topologyManagerPolicy\?",
        ),
        (lambda: build.node(MACHINE, {"cpuManagerPolicy": "static"}), "reserve"),
        (lambda: build.node(Machine((), ())), "a node needs a machine with CPUs and NUMA nodes"),
        (lambda: build.node(None), "a node needs a Machine, not NoneType; use build.machine"),  # type: ignore[arg-type]
        (lambda: build.node(MACHINE, devices={"nic": 1}), "'nic' is not a device resource"),
        (lambda: build.machine(cores=0, memory="1Gi"), "cores of a machine must be a whole number"),
        (lambda: build.machine(cores=None, memory="1Gi"), "not None"),  # type: ignore[arg-type]
        (lambda: build.machine(numa=3, cores=4, memory="1Gi"), "cannot be divided evenly"),
        (lambda: build.machine(cores=4, memory="lots"), "'memory=lots' has no amount"),
        (lambda: build.pod(cpu="4 cores"), "cpu of a pod is '4 cores', which is not a quantity"),
        (lambda: build.pod(containers=0), "a pod needs at least one container, not 0"),
        (lambda: Pod.from_api(None), "a pod must be a mapping, not NoneType"),  # type: ignore[arg-type]
        (lambda: KubeletConfiguration.from_api(None), "must be a mapping, not NoneType"),  # type: ignore[arg-type]
    ],
)
def test_a_slip_is_named_at_once(make: Callable[[], object], message: str) -> None:
    with pytest.raises(NumazonesError, match=message):
        make()


def test_errors_are_of_the_thing_that_is_wrong() -> None:
    with pytest.raises(InvalidMachine):
        build.machine(cores=3, numa=2, memory="1Gi")
    with pytest.raises(InvalidPod):
        build.pod(memory="?")


def test_a_whole_kubelet_configuration_may_be_given() -> None:
    body = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", "maxPods": 250}
    assert (
        build.configuration({**body, "topologyManagerPolicy": "restricted"}).topology_manager_scope
        == "container"
    )
