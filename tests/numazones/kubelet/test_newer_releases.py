"""Rules of 1.37 and 1.38, against the figures that upstream's tests and issues give.

Of each figure the older releases' answer stands next to the newer ones', so that both are kept.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from numazones import cpuset
from numazones.kubelet.admission import admit
from numazones.kubelet.config import InvalidConfiguration
from numazones.kubelet.cpu_manager import CPUManager, CPUState
from numazones.kubelet.cpu_packing import in_turn
from numazones.kubelet.hints import ResourceHints
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.kubelet.rejection import KubeletHang
from numazones.kubelet.startup import KubeletManagers
from numazones.kubelet.topology_manager import TopologyManager
from numazones.kubelet.versions import release
from tests.numazones.kubelet.building import GI, configuration, container, gpus, machine, node, pod

ACROSS_NUMA = {"distribute-cpus-across-numa": "true"}
ACROSS_CORES = {"distribute-cpus-across-cores": "true"}
BY_SOCKET = {**ACROSS_NUMA, "align-by-socket": "true"}
BY_CORE = {**ACROSS_NUMA, "full-pcpus-only": "true"}


def adjacent(cores: int, *, numas: int, sockets: int) -> Machine:
    """CPUs 2n and 2n+1 are one core."""
    cpus = tuple(
        CPU(
            id=2 * core + thread, core=core, socket=core * sockets // cores, die=0, numa=core * numas // cores
        )
        for core in range(cores)
        for thread in (0, 1)
    )
    return Machine(cpus, tuple(NUMANode(numa, 16 * GI) for numa in range(numas)))


def given(
    hardware: Machine, version: str, options: Mapping[str, str], taken: str, count: int, affinity: int | None
) -> str:
    """CPUs that the CPU Manager gives with CPU 0 reserved and some others taken, as a list."""
    config = configuration("best-effort", version=version, cpu_options=options, memory="None")
    manager: CPUManager = KubeletManagers.start(config, hardware, {}).cpus
    state = CPUState(hardware.all_cpus & ~cpuset.parse(taken))
    after = manager.allocate(state, "uid", "main", request=count, affinity=affinity, reusable=0)
    return cpuset.format(after.assignments["uid"]["main"])


FOUR = machine(4, cores=32)
SMALL = adjacent(8, numas=2, sockets=2)
LEFT_OVER = "0,2-7,16,18-23,32-39,48-57"


@pytest.mark.parametrize(
    ("hardware", "options", "taken", "count", "affinity", "expected"),
    [
        pytest.param(
            FOUR,
            ACROSS_NUMA,
            "0-1,128-129",
            176,
            0b1111,
            {
                "1.36": "32-61,64-93,96-124,160-188,192-220,224-252",
                "1.37": "32-61,64-93,96-124,160-188,192-220,224-252",
                "1.38": "2-23,32-53,64-85,96-117,130-151,160-181,192-213,224-245",
            },
            id="a wide affinity is kept",
        ),
        pytest.param(
            adjacent(32, numas=4, sockets=4),
            BY_CORE,
            LEFT_OVER,
            28,
            0b1111,
            dict.fromkeys(("1.36", "1.37", "1.38"), "8-15,24-31,40-45,58-63"),
            id="whole cores suffice",
        ),
        pytest.param(
            adjacent(32, numas=4, sockets=4),
            BY_CORE,
            LEFT_OVER,
            30,
            0b1111,
            {"1.38": "8-15,24-31,40-47,58-63"},
            id="odd CPUs left over",
        ),
        pytest.param(
            SMALL,
            ACROSS_CORES,
            "",
            4,
            0b11,
            {"1.36": "1-4", "1.37": "1-4", "1.38": "1-2,4,6"},
            id="cores in turn",
        ),
    ],
)
def test_cpus_are_chosen_as_upstreams_figures_say(
    hardware: Machine,
    options: Mapping[str, str],
    taken: str,
    count: int,
    affinity: int,
    expected: Mapping[str, str],
) -> None:
    found = {version: given(hardware, version, options, taken, count, affinity) for version in expected}
    assert found == expected


@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_odd_cpus_left_over_hang_kubelets_before_1_38(version: str) -> None:
    with pytest.raises(KubeletHang):
        given(adjacent(32, numas=4, sockets=4), version, BY_CORE, LEFT_OVER, 30, 0b1111)


@pytest.mark.parametrize(
    ("version", "options", "numas"),
    [
        ("1.36", ACROSS_NUMA, [0, 1, 2, 6]),
        ("1.37", ACROSS_NUMA, [0, 1, 2, 6]),
        ("1.38", ACROSS_NUMA, [0, 1, 2, 4]),
        ("1.37", BY_SOCKET, [0, 1, 3, 6]),
        ("1.38", BY_SOCKET, [0, 1, 2, 3]),
    ],
)
def test_the_combination_chosen_is_used_since_1_38(
    version: str, options: Mapping[str, str], numas: list[int]
) -> None:
    """Eight NUMA nodes with 32, 32, 32 and 30 CPUs free on each socket; 120 are wanted."""
    hardware = machine(8, cores=17, sockets=2)
    taken = cpuset.union(
        cpuset.of(list(cpuset.ids(cpus))[: 4 if numa in (3, 7) else 2])
        for numa, cpus in hardware.cpus_of_numa.items()
    )
    found = cpuset.parse(given(hardware, version, options, cpuset.format(taken | 1), 120, None))
    assert [numa for numa, cpus in hardware.cpus_of_numa.items() if cpus & found] == numas


@pytest.mark.parametrize(("version", "cpus"), [("1.36", "1-2,5-6,9-10"), ("1.37", "1,3,5,7,9,11")])
def test_numa_nodes_of_one_socket_are_preferred_since_1_37(version: str, cpus: str) -> None:
    """NUMA node n % 4 and socket n % 2: neighbours are on different sockets."""
    hardware = Machine(
        tuple(CPU(n, n, n % 2, 0, n % 4) for n in range(16)), tuple(NUMANode(n, 16 * GI) for n in range(4))
    )
    start = node(hardware, policy="best-effort", memory="None", cpu_options=BY_SOCKET, version=version)
    assert cpuset.format(admit(start, pod("a", container("c", 6))).containers["c"].cpus) == cpus


@pytest.mark.parametrize(
    ("cores", "order"),
    [
        (["0,7", "2,11", "5,9", "1,14"], [0, 2, 5, 1, 7, 11, 9, 14]),
        (["0-1", "2-3", "4-5", "6-7"], [0, 2, 4, 6, 1, 3, 5, 7]),
        (
            # One socket of upstream's machine of 288 CPUs, by the ids that its test gives the cores.
            [
                *("0,109,169,229", "50,110,170,230", "57,117,177,237", "58,118,178,238", "71,131,191,251"),
                *("72,132,192,252", "79,139,199,259", "80,140,200,260", "87,147,207,267", "88,148,208,268"),
                *("95,155,215,275", "96,156,216,276", "103,163,223,283", "104,164,224,284", "1,13,25,38"),
                *("2,14,26,39", "9,21,33,46", "10,22,34,47"),
            ],
            [0, 50, 57, 58, 71, 72, 79, 80, 87, 88, 95, 96],
        ),
    ],
)
def test_cores_give_their_lowest_cpu_in_turn(cores: list[str], order: list[int]) -> None:
    assert list(in_turn(map(cpuset.parse, cores)))[: len(order)] == order


def whole_pod(uid: str, cpus: int, *containers: int) -> Pod:
    """A pod with pod-level resources, and containers with CPUs of their own."""
    amounts = {"cpu": str(cpus), "memory": "2Gi"}
    listed = [container(f"c{number}", own, "512Mi") for number, own in enumerate(containers)]
    spec = {"containers": listed, "resources": {"requests": amounts, "limits": amounts}}
    return Pod.from_api({"metadata": {"name": uid, "uid": uid}, "spec": spec})


def again(cpus: int, version: str, *containers: int, **changes: Any) -> tuple[str, str, str]:
    """CPUs of a pod as a whole, those after its kubelet admits it again, and the message."""
    gates = {"PodLevelResourceManagers": True}
    hardware = machine(1, cores=cpus, threads=1)
    start = node(hardware, policy="restricted", scope="pod", gates=gates, version=version, **changes)
    web = whole_pod("web", sum(containers), *containers)
    first = admit(start, web)
    second = admit(first.node, web)
    before, after = (one.node.cpus.pods.get("web", 0) for one in (first, second))
    return cpuset.format(before), cpuset.format(after), second.message


@pytest.mark.parametrize(
    ("version", "cpus", "containers", "outcome"),
    [
        ("1.37", 6, (2,), ("1-2", "3-4", "")),
        ("1.38", 6, (2,), ("1-2", "1-2", "")),
        ("1.38", 4, (2,), ("1-2", "1-2", "")),
        ("1.38", 6, (2, 2), ("1-4", "1-4", "")),
    ],
)
def test_pod_level_cpus_are_kept_since_1_38(
    version: str, cpus: int, containers: tuple[int, ...], outcome: tuple[str, str, str]
) -> None:
    assert again(cpus, version, *containers, memory="None") == outcome


def test_a_full_node_rejects_them_before_1_38() -> None:
    assert "not enough cpus available to satisfy request" in again(4, "1.37", 2, memory="None")[2]


@pytest.mark.parametrize(("version", "times"), [("1.36", 2), ("1.38", 1)])
def test_pod_level_memory_is_charged_once_since_1_38(version: str, times: int) -> None:
    gates = {"PodLevelResourceManagers": True}
    start = node(machine(2), policy="best-effort", scope="pod", gates=gates, version=version)
    web = whole_pod("web", 2, 1, 1)
    after = admit(admit(start, web).node, web).node
    assert sum(after.memory.reserved["memory"]) == times * 2 * GI


@pytest.mark.parametrize(
    ("version", "resources", "qos", "cpus"),
    [
        ("1.36", {}, "BestEffort", 0),
        ("1.36", {"requests": {}, "limits": {}}, "BestEffort", 0),
        ("1.37", {}, "Guaranteed", 2),
        ("1.37", {"requests": {}}, "Guaranteed", 2),
        ("1.37", {"limits": {}}, "Guaranteed", 2),
    ],
)
def test_empty_pod_level_resources_decide_nothing_since_1_37(
    version: str, resources: dict[str, Any], qos: str, cpus: int
) -> None:
    spec = {"containers": [container("c", 2)], "resources": resources}
    empty = Pod.from_api({"metadata": {"name": "web", "uid": "web"}, "spec": spec})
    start = node(version=version)
    assert start.kubelet.demand_of(empty).qos == qos
    assert admit(start, empty).containers["c"].cpus.bit_count() == cpus


def test_the_gate_restores_what_empty_pod_level_resources_did() -> None:
    spec = {"containers": [container("c", 2)], "resources": {}}
    empty = Pod.from_api({"metadata": {"name": "web", "uid": "web"}, "spec": spec})
    start = node(version="1.37", gates={"PodLevelResourcesFixKubeletQOSClass": False})
    assert start.kubelet.demand_of(empty).qos == "BestEffort"


@pytest.mark.parametrize(
    ("gates", "message"),
    [
        (
            {"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False},
            (
                "[PodLevelResourcesFixDefaulting is enabled, but depends on features that are disabled: "
                "[PodLevelResources], PodLevelResourcesFixKubeletQOSClass is enabled, but depends on "
                "features that are disabled: [PodLevelResources]]"
            ),
        ),
        (
            {"DRAExtendedResource": False},
            "cannot set feature gate DRAExtendedResource to false, feature is locked to true",
        ),
        (
            {"NodeDeclaredFeatures": False},
            (
                "InPlacePodLevelResourcesVerticalScaling is enabled, but depends on "
                "features that are disabled: [NodeDeclaredFeatures]"
            ),
        ),
    ],
)
def test_gates_that_1_36_accepts_stop_1_37(gates: dict[str, bool], message: str) -> None:
    KubeletManagers.start(configuration(version="1.36", gates=gates), machine(), {})
    with pytest.raises(InvalidConfiguration) as stopped:
        KubeletManagers.start(configuration(version="1.37", gates=gates), machine(), {})
    assert str(stopped.value) == message


GPU = "nvidia.com/gpu"
TWO_NODES = {0: {"cpu": 75, "memory": 50, GPU: 25}, 1: {"cpu": 25, "memory": 25, GPU: 75}}
FOUR_NODES = {
    numa: {"cpu": other, "memory": other, GPU: gpu}
    for numa, (other, gpu) in enumerate([(25, 75), (75, 25), (50, 50), (50, 50)])
}
ONE_UNKNOWN = {0: {"cpu": 60, "memory": 0, GPU: 60}, 1: dict.fromkeys(("cpu", "memory", GPU), 50)}
ROUNDED_DOWN = {0: {"cpu": 50, "memory": 50, GPU: 52}, 1: dict.fromkeys(("cpu", "memory", GPU), 50)}


@pytest.mark.parametrize(
    ("scores", "strategy", "weights", "chosen"),
    [
        (TWO_NODES, "most-allocated", "", 0),
        (TWO_NODES, "most-allocated", f"{GPU}=10", 1),
        (TWO_NODES, "most-allocated", f"cpu=3,memory=1,{GPU}=6", 1),
        (TWO_NODES, "most-allocated", f"cpu=5, {GPU}=5,", 0),
        (TWO_NODES, "most-allocated", f"{GPU}=10,cpu=0", 1),
        (TWO_NODES, "most-allocated", f"cpu=100,memory=100,{GPU}=100", 0),
        (TWO_NODES, "least-allocated", f"{GPU}=10", 0),
        (TWO_NODES, "most-allocated", f"cpu=0,memory=0,{GPU}=0", 0),
        (TWO_NODES, "none", f"{GPU}=10", 0),
        (FOUR_NODES, "least-allocated", "", 0),
        (FOUR_NODES, "least-allocated", "cpu=0,memory=0", 1),
        (ONE_UNKNOWN, "least-allocated", "", 1),
        (ROUNDED_DOWN, "least-allocated", "", 0),
    ],
)
@pytest.mark.parametrize("policy", ["single-numa-node", "restricted", "best-effort"])
def test_scores_decide_between_numa_nodes_of_equal_hints(
    scores: Mapping[int, Mapping[str, int]], strategy: str, weights: str, chosen: int, policy: str
) -> None:
    options = {"numa-allocation-strategy": strategy, "numa-score-weights": weights}
    config = configuration(policy, options=options, version="1.38")
    manager = TopologyManager.start(config, machine(len(scores)))
    masks = tuple(1 << numa for numa in scores)
    hints = [ResourceHints(resource, masks) for resource in ("cpu", "memory", GPU)]
    merged, _ = manager.merge(hints, None, lambda resource, mask: scores[mask.bit_length() - 1][resource])
    assert merged.affinity == 1 << chosen
    unpreferred = [ResourceHints(resource, (), lambda: masks) for resource in ("cpu", "memory", GPU)]
    merged = manager.merge_non_preferred(
        unpreferred, lambda resource, mask: scores[mask.bit_length() - 1][resource]
    )
    assert merged.affinity == 1 << chosen


@pytest.mark.parametrize("low", [0, 1])
def test_of_several_ways_to_one_affinity_the_best_scored_counts(low: int) -> None:
    """NUMA node ``low`` is reached by a hint of 10 % and by one of 90 %, the other by one of 40 %."""
    options = {"numa-allocation-strategy": "least-allocated"}
    manager = TopologyManager.start(configuration("best-effort", options=options, version="1.38"), machine(2))
    scores = {("cpu", 1 << low): 90, ("cpu", 0b11): 10, (GPU, 1 << low): 10, (GPU, 2 >> low): 70}
    cpus = ResourceHints("cpu", (), lambda: (1 << low, 0b11))
    gpus = ResourceHints(GPU, (), lambda: (0b01, 0b10))
    merged, _ = manager.merge([cpus, gpus], None, lambda resource, mask: scores[resource, mask])
    assert merged.affinity == 1 << low


@pytest.mark.parametrize(
    ("resource", "holder"),
    [
        ("cpu", container("c", 2)),
        ("memory", container("c", "500m")),
        ("vendor/gpu", container("c", "500m", vendor_gpu="1")),
    ],
)
def test_what_pods_hold_of_each_resource_scores_by_itself(resource: str, holder: dict[str, Any]) -> None:
    weights = ",".join(f"{name}={int(name == resource)}" for name in ("cpu", "memory", "vendor/gpu"))
    options = {"numa-allocation-strategy": "least-allocated", "numa-score-weights": weights}
    start = node(machine(2), devices=gpus((0,), (0,), (1,), (1,)), options=options, version="1.38")
    first = admit(start, pod("first", holder))
    assert first.containers["c"].affinity.affinity == 0b01
    second = admit(first.node, pod("second", container("c", 2, vendor_gpu="1")))
    assert second.containers["c"].affinity.affinity == 0b10


def test_little_that_is_held_still_counts_by_the_percent() -> None:
    options = {"numa-allocation-strategy": "least-allocated"}
    state: Node = node(machine(2), options=options, version="1.38")
    for uid, memory, affinity in (("two", "400Mi", 0b01), ("one", "200Mi", 0b10), ("next", "1Mi", 0b10)):
        decision = admit(state, pod(uid, container("c", "500m", memory)))
        assert decision.containers["c"].affinity.affinity == affinity
        state = decision.node


@pytest.mark.parametrize(("strategy", "numas"), [("most-allocated", 0b01), ("least-allocated", 0b10)])
def test_each_container_sees_what_those_before_it_hold(strategy: str, numas: int) -> None:
    options = {"numa-allocation-strategy": strategy}
    start: Node = node(machine(2), options=options, version="1.38")
    decision = admit(start, pod("a", container("first", 2), container("second", 2)))
    assert decision.containers["second"].affinity.affinity == numas


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"numa-allocation-strategy": "x"},
            (
                'bad value for option "numa-allocation-strategy": "x" must be one of '
                '["least-allocated" "most-allocated" "none"]'
            ),
        ),
        (
            {"numa-score-weights": "cpu"},
            'bad value for option "numa-score-weights": invalid weight entry "cpu": expected resource=weight',
        ),
        (
            {"numa-score-weights": "=3"},
            'bad value for option "numa-score-weights": empty resource name in weight entry "=3"',
        ),
        (
            {"numa-score-weights": "cpu=1=2"},
            (
                'bad value for option "numa-score-weights": invalid weight value for "cpu": '
                'strconv.Atoi: parsing "1=2": invalid syntax'
            ),
        ),
        (
            {"numa-score-weights": "memory=1,cpu=101"},
            'bad value for option "numa-score-weights": weight for "cpu" must be in range [0, 100], got 101',
        ),
        (
            {"numa-score-weights": "cpu=x"},
            (
                'bad value for option "numa-score-weights": invalid weight value for "cpu": '
                'strconv.Atoi: parsing "x": invalid syntax'
            ),
        ),
    ],
)
def test_bad_strategies_and_weights_are_rejected_in_the_kubelets_words(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidConfiguration) as rejected:
        TopologyManager.start(configuration(options=options, version="1.38"), machine())
    assert str(rejected.value) == message


@pytest.mark.parametrize("version", ["1.36", "1.37.2"])
def test_the_strategy_is_unknown_to_released_kubelets(version: str) -> None:
    config = configuration(options={"numa-allocation-strategy": "most-allocated"}, version=version)
    with pytest.raises(InvalidConfiguration, match='unknown Topology Manager Policy option: "numa-alloc'):
        TopologyManager.start(config, machine())


@pytest.mark.parametrize(
    ("version", "options", "doubts"),
    [
        ("1.36.9", BY_SOCKET, []),
        ("v1.37.0", ACROSS_NUMA, []),
        ("v1.37.0", BY_SOCKET, ["1.37: distribution prefers NUMA nodes of one socket (derived, not run)"]),
        ("v1.37.2", {}, ["1.37.2 is predicted with the rules of 1.37.0, because its changes are unknown"]),
        (
            "v1.37.2",
            ACROSS_CORES,
            [
                "1.37.2 is predicted with the rules of 1.37.0, because its changes are unknown",
                (
                    "1.37.2 may already have a rule of 1.38: single CPUs are taken from the cores "
                    "of a socket in turn"
                ),
            ],
        ),
        (
            "v1.38.0-alpha.2",
            {},
            ["1.38 is not released yet: it is predicted with the rules of its second alpha"],
        ),
        ("v1.40.1", {}, ["1.40 is predicted with the rules of 1.38, the newest known"]),
    ],
)
def test_what_is_not_certain_follows_from_version_and_options(
    version: str, options: dict[str, str], doubts: list[str]
) -> None:
    assert list(configuration(cpu_options=options, version=version).doubts) == doubts
    assert release(version).minor <= 38
