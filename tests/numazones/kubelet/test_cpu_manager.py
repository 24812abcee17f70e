"""Reserved CPUs, hints and exclusive assignments of the static policy."""

from typing import Any

import pytest

from numazones import cpuset
from numazones.kubelet import cures
from numazones.kubelet.admission import admit
from numazones.kubelet.config import InvalidConfiguration
from numazones.kubelet.cpu_manager import CPUManager, CPUState
from numazones.kubelet.cpu_packing import PackingStrategy
from numazones.kubelet.cpu_topology import CPUTopology
from numazones.kubelet.hints import Hint
from tests.numazones.kubelet.building import configuration, container, machine, node, pod, sidecar

TWO = machine(2, cores=4)


def manager(reserved: str = "0", **options: str) -> CPUManager:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return CPUManager.start(
        configuration("best-effort", reserved=reserved, cpu_options=named), CPUTopology(TWO)
    )


@pytest.mark.parametrize(
    ("amount", "options", "reserved"),
    [
        ("1", {}, "0"),
        ("500m", {}, "0"),
        ("2", {}, "0,8"),
        ("1500m", {}, "0,8"),
        ("3", {}, "0-1,8"),
        ("2", {"distribute-cpus-across-cores": "true"}, "0-1"),
    ],
)
def test_reserved_cpus_are_taken_like_any_others(amount: str, options: dict[str, str], reserved: str) -> None:
    config = configuration("none", reserved="", cpu_options=options, kubeReserved={"cpu": amount})
    assert cpuset.format(CPUManager.start(config, CPUTopology(TWO)).reserved) == reserved


def test_cores_of_reserved_cpus_are_reserved_as_a_whole() -> None:
    assert cpuset.format(manager("2").reserved_physical) == "2,10"


@pytest.mark.parametrize(
    ("config", "cure"),
    [
        ({"reserved": ""}, cures.RESERVED_CPUS),
        ({"cpu_options": {"full-pcpu-only": "true"}}, "did you mean full-pcpus-only?"),
    ],
)
def test_rejected_configuration_comes_with_its_cure(config: dict[str, Any], cure: str) -> None:
    with pytest.raises(InvalidConfiguration) as rejected:
        CPUManager.start(configuration(**config), CPUTopology(TWO))
    assert rejected.value.cure.endswith(cure)


def test_the_shared_set_keeps_reserved_cpus_unless_reservation_is_strict() -> None:
    assert cpuset.format(manager().initial_state().default) == "0-15"
    assert cpuset.format(manager(strict_cpu_reservation="true").initial_state().default) == "1-15"


def test_reusable_cpus_count_where_none_lies_elsewhere() -> None:
    state = CPUState(cpuset.parse("0-3,8-11"))
    offered = {
        (mask, reusable): manager().offer(state, mask, cpuset.parse(reusable))
        for mask in (0b01, 0b10)
        for reusable in ("", "4-5", "6,12")
    }
    assert offered == {
        (0b01, ""): 7,
        (0b01, "4-5"): 7,
        (0b01, "6,12"): 7,
        (0b10, ""): 0,
        (0b10, "4-5"): 2,
        (0b10, "6,12"): 2,
    }


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"reserved": ""}, "[cpumanager] unable to determine reserved CPU resources for static policy"),
        (
            {"reserved": "", "kubeReserved": {"cpu": "17"}},
            (
                "new static policy error: [cpumanager] unable to reserve the required amount of CPUs "
                "(size of  did not equal 17)"
            ),
        ),
        ({"cpus": "dynamic"}, 'unknown policy: "dynamic"'),
        (
            {"cpus": "none", "cpu_options": {"full-pcpus-only": "true", "align-by-socket": "1"}},
            (
                "new none policy error: None policy: received unsupported "
                "options=map[align-by-socket:1 full-pcpus-only:true]"
            ),
        ),
        (
            {"cpu_options": {"full-cores": "true"}},
            'new static policy error: unknown CPU Manager Policy option: "full-cores"',
        ),
        (
            {"cpu_options": {"align-by-socket": "true"}, "gates": {"CPUManagerPolicyAlphaOptions": False}},
            (
                "new static policy error: CPU Manager Policy Alpha-level Options not enabled, "
                'but option "align-by-socket" provided'
            ),
        ),
        (
            {"cpu_options": {"full-pcpus-only": ""}},
            (
                'new static policy error: bad value for option "full-pcpus-only": '
                'strconv.ParseBool: parsing "": invalid syntax'
            ),
        ),
        (
            {
                "cpu_options": {
                    "distribute-cpus-across-cores": "true",
                    "prefer-align-cpus-by-uncorecache": "true",
                    "distribute-cpus-across-numa": "true",
                }
            },
            (
                "new static policy error: static policy options distribute-cpus-across-numa and "
                "distribute-cpus-across-cores can not be used at the same time"
            ),
        ),
    ],
)
def test_configurations_are_rejected_in_the_kubelets_words(config: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfiguration) as rejected:
        CPUManager.start(configuration("restricted", **config), CPUTopology(TWO))  # type: ignore[arg-type]
    assert str(rejected.value) == message


def test_align_by_socket_needs_numa_nodes_no_larger_than_sockets() -> None:
    config = configuration("restricted", cpu_options={"align-by-socket": "true"})
    told = (
        "new static policy error: Align by socket is not compatible with hardware where "
        "number of sockets are more than number of NUMA"
    )
    with pytest.raises(InvalidConfiguration, match=f"^{told}$"):
        CPUManager.start(config, CPUTopology(machine(1, cores=2, sockets=1).__class__(
            tuple(type(cpu)(cpu.id, cpu.core, cpu.core, 0, 0) for cpu in machine(1, cores=2).cpus),
            machine(1).numa_nodes,
        )))  # fmt: skip


def test_hints_prefer_the_fewest_sufficient_numa_nodes() -> None:
    cpus = manager()
    busy = CPUState(cpuset.parse("0,4-7,12-15"))
    assert cpus.container_hints(busy, "u", "c", 4, 0).all() == (Hint(0b10, True), Hint(0b11, False))
    assert cpus.container_hints(busy, "u", "c", 9, 0).all() == (Hint(None, False),)
    nearly = CPUState(cpuset.parse("0-1,4-5"))
    assert cpus.container_hints(nearly, "u", "c", 3, 0).all() == (Hint(0b11, False),)


def test_hints_have_to_cover_what_may_be_reused() -> None:
    reusable = cpuset.parse("1,9")
    hints = manager().container_hints(CPUState(cpuset.parse("0,2-8,10-15")), "u", "c", 2, reusable)
    assert hints.all() == (Hint(0b01, True), Hint(0b11, False))


def test_cpus_recorded_already_lead_to_the_same_hints() -> None:
    state = CPUState(cpuset.parse("0-1,3-9,11-15"), {"u": {"c": cpuset.parse("2,10")}})
    assert manager().container_hints(state, "u", "c", 2, 0).all() == (Hint(0b01, True), Hint(0b11, False))
    assert manager().container_hints(state, "u", "c", 4, 0).all() == (Hint(None, False),)


@pytest.mark.parametrize(
    ("requests", "preferred"),
    [
        ({"a": 2, "b": 2}, (0b01,)),  # as recorded
        ({"a": 2, "b": 2, "c": 1}, (0b01,)),  # the rest beside what is recorded
        ({"a": 2, "b": 2, "c": 0}, (0b01,)),
        ({"a": 2, "b": 4}, ()),  # b asked for other than what it has
        ({"a": 1, "b": 2}, ()),
        ({"d": 2}, (0b01, 0b10)),  # nobody who has any is asked about
    ],
)
def test_pod_level_hints_follow_cpus_its_containers_hold(
    requests: dict[str, int], preferred: tuple[int, ...]
) -> None:
    held = CPUState(cpuset.parse("0,3-8,11-15"), {"u": {"a": cpuset.parse("1,9"), "b": cpuset.parse("2,10")}})
    hints = manager().pod_hints(held, "u", requests, sum(requests.values()), 0)
    assert (hints.resource, hints.preferred) == ("cpu", preferred)
    assert (hints.any_numa is False) is (preferred == ())


def test_a_container_that_has_its_cpus_already_gets_no_others() -> None:
    books = CPUState(cpuset.parse("0,2-8,10-15"), {"u": {"c": cpuset.parse("1,9")}})
    assert manager().allocate(books, "u", "c", request=2, affinity=0b10, reusable=0) is books
    other = manager().allocate(books, "v", "c", request=2, affinity=0b10, reusable=0)
    assert other == books.assign("v", "c", cpuset.parse("4,12"))


def test_hints_are_told_to_be_of_cpus() -> None:
    state = CPUState(cpuset.parse("0,2-8,10-15"), {"u": {"c": cpuset.parse("1,9")}})
    for cpus in (manager(), manager(align_by_socket="true")):
        for container_, request in (("c", 2), ("c", 3), ("d", 2), ("d", 16)):
            assert cpus.container_hints(state, "u", container_, request, 0).resource == "cpu"


@pytest.mark.parametrize(
    ("options", "strategy"),
    [
        ({}, PackingStrategy()),
        ({"full-pcpus-only": "true"}, PackingStrategy(group=2)),
        ({"full-pcpus-only": "false"}, PackingStrategy()),
        ({"distribute-cpus-across-numa": "true"}, PackingStrategy(distributed=True)),
        (
            {"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"},
            PackingStrategy(distributed=True, group=2),
        ),
        ({"distribute-cpus-across-cores": "1"}, PackingStrategy(spread=True)),
        ({"prefer-align-cpus-by-uncorecache": "t"}, PackingStrategy(align_uncore_caches=True)),
        ({"strict-cpu-reservation": "true"}, PackingStrategy()),
    ],
)
def test_options_say_how_cpus_are_chosen(options: dict[str, str], strategy: PackingStrategy) -> None:
    config = configuration("restricted", cpu_options=options)
    started = CPUManager.start(config, CPUTopology(TWO))
    assert started.strategy == strategy
    assert started.full_cores_only is (options.get("full-pcpus-only") == "true")


def test_caches_are_kept_together_if_asked_for() -> None:
    """Three of 4 CPUs that share a cache are left, and all of another cache, which the option takes."""
    hardware = machine(1, cores=8, threads=1, cores_per_uncore_cache=4)
    for options, given in (({}, "1-4"), ({"prefer-align-cpus-by-uncorecache": "true"}, "4-7")):
        start = node(hardware, policy="none", memory="None", cpu_options=options)
        admission = admit(start, pod("u", container("c", 4)))
        assert cpuset.format(admission.containers["c"].cpus) == given


def test_align_by_socket_prefers_sets_on_few_enough_sockets() -> None:
    four = machine(4, cores=2, sockets=2)
    config = configuration("restricted", cpu_options={"align-by-socket": "true"})
    cpus = CPUManager.start(config, CPUTopology(four))
    hints = cpus.container_hints(cpus.initial_state(), "u", "c", 2, 0)
    aligned = {0b1, 0b10, 0b11, 0b100, 0b1000, 0b1100}
    assert {hint.affinity for hint in hints.all() if hint.preferred} == aligned
    across = set(range(1, 0b10000)) - aligned
    assert {hint.affinity for hint in hints.all() if not hint.preferred} == across
    assert len(hints.all()) == hints.most == 15


def test_socket_alignment_counts_whole_numa_nodes_per_socket() -> None:
    """Three sockets share five NUMA nodes: one per socket by the kubelet's division."""
    config = configuration("restricted", cpu_options={"align-by-socket": "true"})
    cpus = CPUManager.start(config, CPUTopology(machine(5, cores=2, sockets=3)))
    hints = cpus.container_hints(cpus.initial_state(), "u", "c", 9, 0)
    wide = {mask for mask in hints.preferred if mask.bit_count() > 3}
    assert wide == {0b10111, 0b11011, 0b11101, 0b11110, 0b11111}  # on all three sockets


def test_align_by_socket_takes_cpus_of_the_affinitys_sockets_first() -> None:
    config = configuration("restricted", cpu_options={"align-by-socket": "true"}, reserved="1")
    cpus = CPUManager.start(config, CPUTopology(machine(4, cores=2, threads=1, sockets=2)))
    for request, taken in ((1, "4"), (3, "4-6"), (5, "0,4-7")):
        given = cpus.allocate(cpus.initial_state(), "u", "c", request=request, affinity=0b0100, reusable=0)
        assert cpuset.format(given.assignments["u"]["c"]) == taken


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (3, "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"),
        (
            16,
            (
                "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 14, "
                "requested CPUs = 16, CPUs per core = 2"
            ),
        ),
    ],
)
def test_full_cores_only_rejects_parts_of_cores(request_: int, message: str) -> None:
    strict = node(TWO, policy="none", memory="None", cpu_options={"full-pcpus-only": "true"})
    admission = admit(strict, pod("u", container("c", request_)))
    assert (admission.reason, admission.message) == ("SMTAlignmentError", message)


def test_init_containers_pass_on_their_cpus_but_stay_recorded() -> None:
    start = node(TWO, policy="none", memory="None")
    asked = pod(
        "u", container("app", 2), init=(container("first", 4), sidecar("side", 2), container("second", 2))
    )
    admission = admit(start, asked)
    given = {name: cpuset.format(container.cpus) for name, container in admission.containers.items()}
    assert given == {"first": "1-2,9-10", "side": "1,9", "second": "2,10", "app": "2,10"}
    assert cpuset.format(admission.node.cpus.default) == "0,3-8,11-15"


@pytest.mark.parametrize(
    ("cpu", "pinned"), [("2", True), ("2000m", True), ("2.0", True), ("1500m", False), ("1999m", False)]
)
def test_only_whole_numbers_of_cpus_are_exclusive(cpu: str, *, pinned: bool) -> None:
    admission = admit(node(TWO, memory="None"), pod("u", container("c", cpu)))
    assert bool(admission.containers["c"].cpus) == pinned


def test_pods_that_are_not_guaranteed_share() -> None:
    burstable = {
        "name": "c",
        "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2"}},
    }
    assert admit(node(TWO), pod("u", burstable)).containers["c"].cpus == 0


# The books, of two pods beside which nothing may change

ALL = cpuset.parse("0-15")
FIRST, SECOND = cpuset.parse("1,9"), cpuset.parse("2,10")
OTHER = (
    CPUState(ALL, {}, {}).assign("other", "main", cpuset.parse("7")).assign_pod("whole", cpuset.parse("6"))
)


def test_exclusive_cpus_leave_the_shared_set_until_pod_ends() -> None:
    books = OTHER.assign("p", "a", FIRST).assign("p", "b", SECOND)
    assert books == CPUState(
        cpuset.parse("0,3-5,8,11-15"),
        {"other": {"main": cpuset.parse("7")}, "p": {"a": FIRST, "b": SECOND}},
        {"whole": cpuset.parse("6")},
    )
    assert books.remove("p") == OTHER
    assert books.remove("nobody") is books


def test_pod_level_cpus_return_with_the_last_container() -> None:
    whole = OTHER.assign_pod("p", FIRST | SECOND)
    assert whole == CPUState(
        OTHER.default & ~(FIRST | SECOND),
        OTHER.assignments,
        {"whole": cpuset.parse("6"), "p": FIRST | SECOND},
    )
    divided = whole.divide("p", {"a": FIRST})
    assert divided == CPUState(whole.default, {**OTHER.assignments, "p": {"a": FIRST}}, whole.pods)
    assert divided.remove("p") == OTHER
    assert whole.remove("p") is whole  # nothing was divided, so nothing ends


def test_exclusive_cpu_holders_include_containers_and_whole_pods() -> None:
    books = OTHER.assign("p", "a", FIRST).assign("p", "b", SECOND)
    assert books.exclusive_cpus_by_pod() == {
        "other": cpuset.parse("7"),
        "whole": cpuset.parse("6"),
        "p": FIRST | SECOND,
    }


def test_allocatable_cpus_exclude_reserved_ones() -> None:
    found = manager(reserved="0,4")
    assert found.allocatable() == ALL & ~cpuset.parse("0,4")
    counts = [found.capacity(mask) for mask in (0b01, 0b10, 0b11)]
    assert counts == [
        (ALL & ~cpuset.parse("0,4") & found.topology.cpus_in(mask)).bit_count() for mask in (0b01, 0b10, 0b11)
    ]
    assert sum(counts[:2]) == counts[2] == 14
    shared = CPUManager.start(configuration("none", cpus="none"), CPUTopology(TWO))
    assert (shared.allocatable(), shared.capacity(0b11)) == (0, 0)
