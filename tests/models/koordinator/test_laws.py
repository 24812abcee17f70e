"""Laws for every machine and every sequence of pods."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from numazones import cpuset
from numazones.kubelet.pod import Pod
from numazones_koordinator.admission import Admission, admit, admit_each, remove
from numazones_koordinator.amounts import nothing
from numazones_koordinator.annotations import NODE_CPU_BIND_POLICY, NODE_NUMA_ALLOCATE_STRATEGY
from numazones_koordinator.explanation import explain
from numazones_koordinator.hints import masks
from numazones_koordinator.node import Node
from numazones_koordinator.request import Request
from numazones_koordinator.scheduler import Scheduler
from numazones_koordinator.status import Rejected, SchedulerCrash
from numazones_koordinator.trial import Trials, Uncountable
from tests.laws import examples
from tests.models.koordinator.building import GPU, detail, gpu, node_object, nrt, pod

POLICIES = ("", "BestEffort", "Restricted", "SingleNUMANode")


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Machines of all kinds: offline threads, NUMA nodes without CPUs, ids with gaps, uneven zones, GPUs."""
    numas, cores = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    threads, sockets = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    ids = draw(st.sampled_from([tuple(range(numas)), tuple(range(0, 2 * numas, 2))]))
    cpus = detail(numas, cores, threads, sockets=min(sockets, numas), ids=ids)
    cpus = draw(st.lists(st.sampled_from(cpus), unique_by=lambda cpu: cpu["id"], min_size=len(cpus) // 2))
    zones = {
        numa: {"cpu": draw(st.sampled_from((str(cores * threads), "1500m", "0"))), "memory": "4Gi"}
        for numa in ids
    }
    labels = {
        NODE_CPU_BIND_POLICY: draw(st.sampled_from(("None", "FullPCPUsOnly", "SpreadByPCPUs"))),
        NODE_NUMA_ALLOCATE_STRATEGY: draw(st.sampled_from(("MostAllocated", "LeastAllocated"))),
        "node.koordinator.sh/numa-topology-policy": draw(st.sampled_from(POLICIES)),
    }
    gpus = [gpu(minor, draw(st.sampled_from((*ids, None)))) for minor in range(draw(st.integers(0, 3)))]
    scheduler = Scheduler.from_args(
        {
            "defaultCPUBindPolicy": draw(st.sampled_from(("FullPCPUs", "SpreadByPCPUs"))),
            "numaScoringStrategy": {
                "type": draw(st.sampled_from(("MostAllocated", "LeastAllocated"))),
                "resources": [{"name": "cpu", "weight": 1}],
            },
        },
    )
    host = node_object(cpu=str(len(cpus)), memory=f"{4 * numas}Gi", labels=labels)
    return Node.read(host, nrt(cpus, zones), {"spec": {"devices": gpus}}, scheduler=scheduler)


@st.composite
def pods(draw: st.DrawFn, uid: str = "p") -> Pod:
    spec = {
        "requiredCPUBindPolicy": draw(st.sampled_from(("", "", "FullPCPUs", "SpreadByPCPUs"))),
        "preferredCPUBindPolicy": draw(st.sampled_from(("", "Default", "FullPCPUs", "SpreadByPCPUs"))),
        "preferredCPUExclusivePolicy": draw(st.sampled_from(("", "PCPULevel", "NUMANodeLevel"))),
    }
    asked = {"cpu": draw(st.sampled_from(("1", "2", "3", "5", "8", "500m")))}
    if draw(st.booleans()):
        asked["memory"] = draw(st.sampled_from(("1Gi", "5Gi")))
    asked.update(draw(st.sampled_from(({}, {}, {"nvidia": "1"}, {"nvidia": "2"}, {"gpu_memory": "4Gi"}))))
    return pod(
        uid,
        policy=draw(st.sampled_from(POLICIES)),
        exclusive=draw(st.sampled_from((None, "Preferred", "Required"))),
        qos=draw(st.sampled_from(("LSR", "LSR", "LS", ""))),
        spec=spec,
        **asked,
    )


sequences = st.lists(pods(), min_size=1, max_size=6).map(
    lambda found: [replace(one, name=f"p{number}", uid=f"p{number}") for number, one in enumerate(found)]
)


def tried(node: Node, asked: Pod) -> Admission | None:
    """The decision; None where the scheduler would crash."""
    try:
        return admit(node, asked)
    except SchedulerCrash:
        return None


def check_given(admission: Admission) -> None:
    """Check that what a pod is given was free, is enough, and fits the policies."""
    before, outcome = admission.before, admission.outcome
    assert admission.cpus & ~before.free_cpus() == 0
    request = admission.request
    if admission.cpus:
        assert admission.cpus.bit_count() >= request.cpus
    available = before.available()
    for numa, given_ in admission.numa_resources:
        assert all(0 < amount <= available[numa].get(name, 0) for name, amount in given_.items())
    recorded: dict[str, int] = {}
    for _, given_ in admission.numa_resources:
        for name, amount in given_.items():
            recorded[name] = recorded.get(name, 0) + amount
    assert all(amount == request.amounts[name] for name, amount in recorded.items())
    if outcome.policy == "SingleNUMANode":
        assert len(admission.numa_resources) <= 1
    check_devices(admission)


def check_devices(admission: Admission) -> None:
    books = admission.before.devices
    if admission.request.devices is None or books is None:
        assert not admission.devices
        return
    for type_, parts in admission.devices.items():
        free = books.free(type_)
        assert (
            len({minor for minor, _ in parts}) == len(parts) == admission.request.devices.shares[type_].count
        )
        for minor, amounts in parts:
            assert not nothing(free[minor])
            assert all(amount <= free[minor].get(name, 0) for name, amount in amounts.items() if name in GPU)


@settings(max_examples=examples(200))
@given(nodes(), sequences)
def test_given_cpus_were_free_and_are_given_once(node: Node, asked: list[Pod]) -> None:
    held: dict[str, int] = {}
    for one in asked:
        admission = tried(node, one)
        if admission is None:
            continue
        if admission.admitted:
            check_given(admission)
            assert all(admission.cpus & other == 0 for other in held.values())
            held[one.uid] = admission.cpus
        else:
            assert admission.message
            assert admission.cpus == 0 or not admission.admitted
        node = admission.node
        assert node.free_cpus() & cpuset_of(held) == 0


def cpuset_of(held: dict[str, int]) -> int:
    """All CPUs held."""
    union = 0
    for cpus in held.values():
        union |= cpus
    return union


@settings(max_examples=examples(150))
@given(nodes(), sequences, st.data())
def test_release_restores_what_was_free(node: Node, asked: list[Pod], data: st.DataObject) -> None:
    fresh = node
    placed = []
    for one in asked:
        admission = tried(node, one)
        if admission is not None:
            node = admission.node
            placed.extend([one.uid] if admission.admitted else [])
    for uid in data.draw(st.permutations(placed)):
        node = remove(node, uid)
    assert node.free_cpus() == fresh.free_cpus()
    assert {numa: left.get("cpu") for numa, left in node.available().items()} == {
        numa: left.get("cpu") for numa, left in fresh.available().items()
    }
    assert [node.use(numa) for numa in node.host.numa_ids] == [fresh.use(numa) for numa in node.host.numa_ids]
    assert node.devices == fresh.devices
    assert not any(node.requested.values())


@settings(max_examples=examples(100))
@given(nodes(), sequences)
def test_deciding_changes_nothing_and_is_repeatable(node: Node, asked: list[Pod]) -> None:
    for one in asked:
        key = node.state_key
        first = tried(node, one)
        if first is None:
            continue
        second = admit(node, one)
        assert node.state_key == key
        assert first.outcome == second.outcome
        assert [each.outcome for each in admit_each([node, node], one)] == [first.outcome] * 2
        assert first.node.state_key == second.node.state_key
        assert explain(first).lines()
        node = first.node


@settings(max_examples=examples(100))
@given(nodes(), sequences)
def test_what_is_written_reads_back(node: Node, asked: list[Pod]) -> None:
    """A scheduler that starts anew and reads the pods' annotations knows the same node."""
    numas = node.host.numa_ids
    anew = node
    for one in asked:
        admission = tried(node, one)
        if admission is None:
            continue
        if not admission.admitted:
            continue
        node = admission.node
        noted = {**dict(one.annotations), **admission.annotations}
        anew = anew.bind(replace(one, annotations=tuple(sorted(noted.items()))))
    assert anew.free_cpus() == node.free_cpus()
    assert anew.available() == node.available()
    assert anew.devices == node.devices
    assert anew.requested == node.requested
    assert [anew.use(numa) for numa in numas] == [node.use(numa) for numa in numas]


@given(pods())
def test_request_read_from_a_pod_is_what_it_asks_for(asked: Pod) -> None:
    request = Request.of(asked, Scheduler())
    assert request.bound <= (request.cpu_milli % 1000 == 0)
    assert request.amounts["cpu"] == dict(asked.containers[0].requests)["cpu"].nanos


def test_siblings_stay_together_where_full_cores_are_required() -> None:
    whole = pod(spec={"requiredCPUBindPolicy": "FullPCPUs"}, cpu="4")
    node = Node.read(node_object(), nrt(detail(), {0: {"cpu": "8"}, 1: {"cpu": "8"}}))
    admission = admit(node, whole)
    assert {cpu % 8 for cpu in cpuset.ids(admission.cpus)} == {0, 1}


@settings(max_examples=examples(200))
@given(nodes(), sequences)
def test_what_fits_is_told_as_by_trying(node: Node, asked: list[Pod]) -> None:
    for one in asked:
        request = Request.of(one, node.host.scheduler)
        if not request.status.success:
            continue
        try:
            told, tried_ = Trials(node, request), Trials(node, request)
        except Rejected:
            continue
        for numas in masks(node.host.numa_ids):
            try:
                tried_.on(numas)
            except Rejected:
                assert not fits(told, numas)
            else:
                assert fits(told, numas)
        admission = tried(node, one)
        node = node if admission is None else admission.node


def fits(trials: Trials, numas: int) -> bool:
    """As told; a node whose CPUs are not known fits nothing that requires a bind policy."""
    try:
        return trials.fits(numas)
    except Uncountable:
        return False
