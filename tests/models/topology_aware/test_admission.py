"""Pods on a node of the topology-aware policy: admitted, partly rejected, removed, explained."""

import pytest

from numazones import cpuset
from numazones.errors import UnmodelledFeature
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.pod import Pod
from numazones.kubelet.rejection import CREATE_CONTAINER_ERROR
from numazones_topology_aware.admission import admit, create_missing, remove
from numazones_topology_aware.explanation import explain
from numazones_topology_aware.hardware import Hardware
from numazones_topology_aware.node import Node
from numazones_topology_aware.rejection import StartFailed
from numazones_topology_aware.sandbox import CGroup, PodDevice
from numazones_topology_aware.topology import Topology
from tests.conformance.topology_aware_events import exported_variables, resize
from tests.models.topology_aware.machines import GIB, configuration, guaranteed, hardware, pod, several


def node(**changes: object) -> Node:
    """Two sockets of two NUMA nodes of four CPUs each; CPU 0 is reserved."""
    return Node.fresh(hardware(), configuration(prefer_isolated=False, **changes))


def told(target: Node, name: str) -> str:
    return cpuset.format(target.cpus_of(f"uid-{name}/c"))


def test_pod_gets_exclusive_and_shared_cpus_of_one_numa_node() -> None:
    admission = admit(node(), guaranteed("a", "1500m"))
    given = admission.containers["c"]
    assert (admission.admitted, admission.reason, admission.message) == (True, "", "")
    assert given.pool == "NUMA node #1"
    assert cpuset.format(given.exclusive) == "4"
    assert given.shared == 500
    assert given.update.cpus == cpuset.parse("4-7")
    assert given.update.mems == cpuset.parse("1")
    assert given.update.shares == 512
    exported = ['ALL_MEMS="1"', 'DRAM_MEMS="1"', 'EXCLUSIVE_CPUS="4"', 'SHARED_CPUS="5-7"']
    assert exported_variables(admission.node, "uid-a/c") == exported


def test_others_are_told_that_their_shared_cpus_shrank() -> None:
    # The limit takes the first pod to a socket, out of which a later one cuts its CPUs.
    first = admit(node(), pod("a", {"cpu": "100m"}, {"cpu": "6", "memory": "64Mi"})).node
    first = admit(first, guaranteed("filler", "4")).node
    second = admit(first, guaranteed("b", "4"))
    before, after = told(first, "a"), told(second.node, "a")
    assert before != after
    assert second.updates["uid-a/c"].cpus == cpuset.parse(after)
    assert any("default/a/c moves from CPUs" in line for line in explain(second).lines())


def test_container_that_does_not_fit_is_rejected_with_the_amounts() -> None:
    admission = admit(node(), guaranteed("big", "16"))
    assert not admission.admitted
    assert admission.reason == CREATE_CONTAINER_ERROR
    assert admission.message.startswith("container c: ")
    assert "16 exclusive CPUs" in admission.rejected["c"]
    assert admission.containers == {}


def test_containers_created_before_the_rejected_one_keep_their_resources() -> None:
    two = Pod.from_manifest(
        {
            "metadata": {"name": "two", "namespace": "default", "uid": "uid-two"},
            "spec": {
                "containers": [
                    {"name": name, "resources": {"limits": {"cpu": cpu, "memory": "64Mi"}}}
                    for name, cpu in (("fits", "2"), ("does-not", "32"))
                ]
            },
        }
    )
    admission = admit(node(), two)
    assert not admission.admitted
    assert set(admission.containers) == {"fits"}
    assert set(admission.rejected) == {"does-not"}
    assert admission.node.holds("uid-two")
    assert remove(admission.node, "uid-two").cpus == node().cpus


def test_init_containers_return_resources_before_the_next_starts() -> None:
    with_init = admit(node(), guaranteed("a", "2", init=True))
    without = admit(node(), guaranteed("a", "2"))
    assert set(with_init.containers) == {"i", "c"}
    assert with_init.node.cpus == without.node.cpus


def test_nothing_starts_after_a_failed_init_container() -> None:
    admission = admit(node(), guaranteed("a", "64", init=True))
    assert set(admission.outcomes) == set(admission.rejected) == {"i"}


def test_nothing_starts_after_a_failed_sidecar() -> None:
    admission = admit(node(), several("a", ("s", "64", True), c="1"))
    assert set(admission.outcomes) == set(admission.rejected) == {"s"}


def full(*cpus: str) -> Node:
    """A node with ``filler``, and after it pods of so many CPUs."""
    filled = admit(node(), guaranteed("filler", "3")).node
    for number, amount in enumerate(cpus):
        filled = admit(filled, guaranteed(f"p{number}", amount)).node
    return filled


def test_retry_creates_missing_containers_and_moves_no_running_one() -> None:
    two = several("two", big="4", small="1")
    first = admit(full("3", "3", "3"), two)
    assert (set(first.rejected), set(first.containers)) == ({"big"}, {"small"})
    room = remove(first.node, "uid-filler")
    again = create_missing(room, two)
    assert (again.admitted, set(again.outcomes)) == (True, {"big"})
    assert again.node.grants["uid-two/small"] == first.node.grants["uid-two/small"]
    # Placed anew, the small one would have come after the big one, and so elsewhere.
    assert admit(room, two).node.grants["uid-two/small"] != first.node.grants["uid-two/small"]


def test_another_attempt_may_create_some_of_the_missing_containers() -> None:
    two = several("two", big="8", small="3")
    first = admit(full("3", "3", "3", "3"), two)
    assert set(first.rejected) == {"big", "small"}
    again = create_missing(remove(first.node, "uid-filler"), two)
    assert (set(again.rejected), set(again.containers)) == ({"big"}, {"small"})
    assert set(create_missing(again.node, two).outcomes) == {"big"}


@pytest.mark.parametrize(
    ("init", "rejected", "created"),
    [
        ([("i", "3", False)], "i", ["i", "c"]),
        ([("ended", "1", False), ("i", "3", False)], "i", ["i", "c"]),
        ([("s", "1", True), ("ended", "1", False), ("i", "3", False)], "i", ["i", "c"]),
        ([("ended", "1", False), ("s", "3", True)], "s", ["s", "c"]),
        ([("ended", "1", False), ("s", "1", True)], "c", ["c"]),
    ],
)
def test_another_attempt_goes_on_at_the_container_that_was_rejected(
    init: list[tuple[str, str, bool]], rejected: str, created: list[str]
) -> None:
    one = several("one", *init, c="3" if rejected == "c" else "500m")
    first = admit(full("3", "3", "3", "1"), one)
    assert list(first.rejected) == [rejected]
    again = create_missing(remove(first.node, "uid-filler"), one)
    assert (again.admitted, list(again.outcomes)) == (True, created)


def test_container_whose_resize_failed_runs_and_is_not_created_again() -> None:
    one = guaranteed("one", "2")
    created = admit(full("3", "3", "3"), one).node
    resized = resize(created, "uid-one/c", CGroup(shares=8192, quota=800_000, period=100_000))
    assert resized.error is not None
    assert "uid-one/c" not in resized.node.grants
    assert create_missing(resized.node, one).node is resized.node


def test_a_container_that_the_status_calls_uncreated_gets_nothing() -> None:
    two = several("two", ("i", "1", False), a="1", b="2")
    found = create_missing(node(), two, uncreated=["a"])
    assert (set(found.containers), set(found.rejected), found.admitted) == ({"i", "b"}, {"a"}, False)
    assert {name for name in found.node.grants if name.startswith("uid-two/")} == {"uid-two/b"}
    blocked = create_missing(node(), two, uncreated=["i"])
    assert (set(blocked.containers), set(blocked.rejected)) == (set(), {"i"})
    assert set(create_missing(blocked.node, two).containers) == {"i", "a", "b"}


def test_removing_a_pod_restores_the_node() -> None:
    before = admit(node(), guaranteed("a", "1")).node
    after = remove(admit(before, guaranteed("b", "3")).node, "uid-b")
    assert after.cpus == before.cpus
    assert after.memory.zones == before.memory.zones
    assert remove(after, "unknown") is after


def test_nodes_that_decide_alike_have_equal_keys() -> None:
    once, twice = (admit(node(), guaranteed("a", "1500m")).node for _ in range(2))
    assert once is not twice
    assert hash(once.state_key) == hash(twice.state_key)
    assert once.state_key == twice.state_key
    others = [
        node(),
        node(colocate_pods=True),
        Node.fresh(hardware(slow="0-3"), configuration(prefer_isolated=False)),
        admit(node(), guaranteed("b", "1500m")).node,
        admit(node(), guaranteed("a", "1500m", "64Mi")).node,
    ]
    assert len({once.state_key, *(other.state_key for other in others)}) == len(others) + 1


def test_a_pod_admitted_again_does_not_count_twice() -> None:
    once = admit(node(), guaranteed("a", "2"))
    assert admit(once.node, guaranteed("a", "2")).node.cpus == once.node.cpus


def device_pod(**annotations: str) -> Pod:
    return Pod.from_manifest(
        {
            "metadata": {
                "name": "d",
                "uid": "uid-d",
                "annotations": {f"{key}.resource-policy.nri.io": value for key, value in annotations.items()},
            },
            "spec": {
                "containers": [
                    {"name": "c", "resources": {"limits": {"cpu": "1", "memory": "64Mi", "acme.io/gpu": "1"}}}
                ]
            },
        }
    )


def test_devices_that_are_not_known_make_the_answer_unknown() -> None:
    with pytest.raises(UnmodelledFeature, match=r"acme\.io/gpu.*topologyhints"):
        admit(node(), device_pod())


def test_pod_level_resources_make_the_answer_unknown() -> None:
    whole = Pod.from_manifest(
        {
            "metadata": {"name": "w", "uid": "uid-w"},
            "spec": {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}}, "containers": [{"name": "c"}]},
        }
    )
    with pytest.raises(UnmodelledFeature, match="pod-level resources"):
        admit(node(), whole)


def test_unknown_distances_make_the_answer_unknown() -> None:
    machine = hardware().machine
    unknown = type(machine)(machine.cpus, tuple(NUMANode(one.id, one.memory) for one in machine.numa_nodes))
    with pytest.raises(UnmodelledFeature, match="distances between the machine's NUMA nodes"):
        Topology.discover(Hardware(unknown))


def test_known_devices_attract_the_container() -> None:
    listed = {"c": [PodDevice("acme.io/gpu", (3,))]}
    assert admit(node(), device_pod(), listed).containers["c"].pool == "NUMA node #3"


def test_devices_are_ignored_without_device_hints_or_by_opt_out() -> None:
    listed = {"c": [PodDevice("acme.io/gpu", (3,))]}
    assert admit(node(pod_resources=False), device_pod(), listed).containers["c"].pool == "NUMA node #1"
    assert admit(node(), device_pod(topologyhints="false")).containers["c"].pool == "NUMA node #1"


def defects(target: Node, *pods: Pod) -> str:
    """Return what the explanation of the last pod says of defects."""
    for one in pods:
        admission = admit(target, one)
        target = admission.node
    return "\n".join(sentence for one in explain(admission).containers for sentence in one.defects)


def test_a_container_without_any_cpu_set_is_told_of() -> None:
    tiny = Node.fresh(
        hardware(sockets=1, numas=1, cores=1), configuration(prefer_isolated=False, reserved_cpu="1")
    )
    assert "would get no CPU pinning" in defects(tiny, guaranteed("a", "1"), pod("b"))


def test_pool_below_zero_is_told_of_even_for_reserved_containers() -> None:
    tiny = Node.fresh(
        hardware(sockets=1, numas=1, cores=1), configuration(prefer_isolated=False, reserved_cpu="1")
    )
    sequence = (guaranteed("a", "1"), pod("b"), pod("c", {"cpu": "10m"}, namespace="kube-system"))
    assert "though this one is for reserved CPUs" in defects(tiny, *sequence)


def test_a_bare_prefer_isolated_annotation_is_told_to_be_ignored() -> None:
    isolating = Node.fresh(hardware(isolated="6-7"), configuration(prefer_isolated=False))
    bare = guaranteed("a", "2", annotations={"prefer-isolated-cpus": "true"})
    assert "prefer-isolated-cpus.resource-policy.nri.io/pod" in defects(isolating, bare)


@pytest.mark.parametrize(
    ("sequence", "sentence"),
    [
        (
            (pod("a", {"cpu": "100m", "memory": "64Mi"}),),
            "sends the container to the pool with the most memory",
        ),
        ((pod("a", {"cpu": "1"}, {"cpu": "99", "memory": "64Mi"}),), "more than any pool has free"),
        (
            (pod("a", {"cpu": "2"}, {"memory": "1Mi"}, namespace="kube-system"),),
            "reserved CPUs have too little",
        ),
        ((guaranteed("a", "1", annotations={"cpu.preserve": "true"}),), "CPU weight is set to the minimum"),
        ((guaranteed("a", "1500m"),), "counts the shared part only (500m)"),
        ((guaranteed("a", "1", annotations={"memory.preserve": "true"}),), "charged to the whole node"),
    ],
)
def test_defects_are_named_where_they_decide(sequence: tuple[Pod, ...], sentence: str) -> None:
    assert sentence in defects(node(), *sequence)


def test_an_isolated_reserved_cpu_is_told_to_be_handed_out() -> None:
    odd = Node.fresh(hardware(isolated="6"), configuration(reserved_cpu="cpuset:6"))
    wanted = guaranteed("a", "1", annotations={"require-isolated-cpus": "true"})
    assert "reserved CPU 6 is also isolated" in defects(odd, wanted)


def test_contradicting_rules_are_told_of_where_they_decide() -> None:
    # Affinity makes an L3 pool and the socket equally good, and NUMA pools, the wanted level, worse.
    odd = Node.fresh(hardware(sockets=1, cores=4, caches=2), configuration(unlimited_burstable="numa"))
    match = "{key: pod/name, operator: In, values: [a, b]}"
    scope = "{key: namespace, operator: Equals, values: [default]}"
    drawn = pod(
        "c",
        {"cpu": "100m", "memory": "64Mi"},
        {"memory": "64Mi"},
        annotations={"resource-policy.nri.io/affinity": f"c: [{{scope: {scope}, match: {match}}}]"},
    )
    for one in (pod("a"), pod("b", {"cpu": "1"}, {"cpu": "9", "memory": "64Mi"})):
        odd = admit(odd, one).node
    assert "so the sorting algorithm decides" in defects(odd, drawn)


def test_hints_are_told_not_to_tell_dies_apart() -> None:
    dies = Node.fresh(hardware(sockets=1, dies=2, clusters=2, numas=1), configuration(prefer_isolated=False))
    admission = admit(dies, device_pod(), {"c": [PodDevice("acme.io/gpu", (1,))]})
    assert any(
        "do not distinguish between its dies" in one for one in explain(admission).containers[0].defects
    )


def test_priority_high_is_told_to_count_every_cpu() -> None:
    mixed = Node.fresh(hardware(slow="0-3"), configuration(prefer_isolated=False))
    assert "counts every CPU" in defects(
        mixed, guaranteed("a", "1", annotations={"prefer-cpu-priority": "high"})
    )


def test_strict_hints_without_a_cpu_request_get_a_warning() -> None:
    strict = Pod.from_manifest(
        {
            "metadata": {
                "name": "s",
                "uid": "uid-s",
                "annotations": {"strict.topologyhints.resource-policy.nri.io": "true"},
            },
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"acme.io/gpu": "1"}}}]},
        }
    )
    admission = admit(node(), strict, {"c": [PodDevice("acme.io/gpu", (1,))]})
    assert any("without a CPU request" in one for one in explain(admission).containers[0].defects)


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        (pod("a", {"cpu": "10m"}, namespace="kube-system"), "gets the reserved CPUs 0, memory of"),
        (guaranteed("a", "1", annotations={"cpu.preserve": "true"}), "gets its current CPUs, memory of"),
        (pod("a"), "gets 0m of the shared CPUs"),
        (guaranteed("a", "99"), "rejected: "),
        (guaranteed("a", "1", annotations={"cold-start": "duration: 9h"}), "rejected: a cold start of"),
    ],
)
def test_verdicts_read_well(one: Pod, verdict: str) -> None:
    assert explain(admit(node(), one)).containers[0].verdict.startswith(verdict)


def test_memory_that_others_lose_is_told() -> None:
    small = Node.fresh(hardware(sockets=1), configuration(prefer_isolated=False))
    burst = pod("a", {"cpu": "100m", "memory": "1Gi"}, {"cpu": "200m", "memory": "1Gi"})
    filled = admit(small, burst).node
    for number in range(3):
        admission = admit(filled, guaranteed(f"g{number}", "100m", "1200Mi"))
        filled = admission.node
        if any("may now use memory of NUMA nodes" in line for line in explain(admission).others):
            return
    pytest.fail("no container was moved to other memory")


def test_isolated_cpus_are_told_apart() -> None:
    isolating = Node.fresh(hardware(isolated="6-7"), configuration())
    admission = admit(isolating, guaranteed("a", "1"))
    assert cpuset.format(admission.containers["c"].isolated) == "6"
    assert "isolated CPUs 6" in explain(admission).containers[0].verdict


def test_an_ordinary_pod_has_no_defects_to_tell_of() -> None:
    assert defects(node(), guaranteed("a", "1")) == ""


def test_a_cold_start_is_told_never_to_end() -> None:
    tiered = Node.fresh(hardware(far=(8 * GIB, 8 * GIB)), configuration())
    cold = guaranteed("a", "1", annotations={"cold-start": "duration: 60s"})
    admission = admit(tiered, cold)
    assert cpuset.format(admission.containers["c"].memory_nodes) == "4-5"
    assert "misses the end of a cold start" in defects(tiered, cold)


def test_strict_hints_are_told_not_to_hold_for_memory() -> None:
    full = admit(node(), pod("m", {"cpu": "1m", "memory": "1900Mi"}, {"cpu": "1m", "memory": "1900Mi"})).node
    strict = device_pod(**{"strict.topologyhints": "true"})
    where = cpuset.format(full.grants["uid-m/c"].zone)
    admission = admit(full, strict, {"c": [PodDevice("acme.io/gpu", (int(where),))]})
    sentences = explain(admission).containers[0].defects
    moved = admission.node.grants["uid-d/c"].zone != full.grants["uid-m/c"].zone
    assert any("are not enforced for memory" in one for one in sentences) is moved


def test_the_explanation_tells_request_ranking_and_verdict() -> None:
    lines = explain(admit(node(), guaranteed("a", "2"))).lines()
    assert lines[0] == "container c: requests 2 exclusive CPUs, 128Mi of memory (DRAM)"
    assert lines[1] == (
        "container c: NUMA node #1 comes before NUMA node #2: lower id, among equal sliceable CPUs"
    )
    assert lines[-1] == "container c: gets exclusive CPUs 4-5, memory of NUMA nodes 1 in NUMA node #1"


def test_hardware_from_a_kubelets_machine_has_l3_pools() -> None:
    cached = hardware(caches=2).machine
    cpus = tuple(
        CPU(one.id, one.core, one.socket, one.die, one.numa, uncore_cache=one.id // 2) for one in cached.cpus
    )
    names = [
        pool.name for pool in Node.fresh(Hardware.of(Machine(cpus, cached.numa_nodes)), configuration()).pools
    ]
    assert names[:3] == ["NUMA node #0/L3 cache #0", "NUMA node #0/L3 cache #1", "NUMA node #0"]


def test_machines_on_which_the_plugin_does_not_start_are_named() -> None:
    bad = hardware(far=(0,))
    with pytest.raises(StartFailed, match="NUMA node 4 has neither CPUs nor memory") as failure:
        Topology.discover(bad)
    assert failure.value.code == "memory-type"


def test_numa_node_as_near_to_another_as_itself_is_named() -> None:
    good = hardware(sockets=1)
    nodes = tuple(NUMANode(one.id, one.memory, distances=(10, 10)) for one in good.machine.numa_nodes)
    bad = type(good)(type(good.machine)(good.machine.cpus, nodes))
    with pytest.raises(StartFailed) as failure:
        Topology.discover(bad)
    assert failure.value.code == "distance-to-self"
