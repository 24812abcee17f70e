"""Exclusive CPUs that pods share: found where the kubelet's records say so, with advice that ends it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones import cpuset
from numazones.api.shared_cpus import cpus_exclusive
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.node import Node
from numazones.kubelet.shared_cpus import SharedCPUs, describe, shared_cpus
from tests.numazones.kubelet import building

AGES = {
    "a": "2026-01-31T08:00:00Z",
    "b": "2026-01-31T09:00:00Z",
    "c": "2026-01-31T09:00:00Z",
    "d": "2026-01-31T10:00:00Z",
}


def found(default: str, **held: str) -> tuple[SharedCPUs, ...]:
    return shared_cpus(cpuset.parse(default), {pod: cpuset.parse(cpus) for pod, cpus in held.items()})


def said(groups: tuple[SharedCPUs, ...]) -> str:
    return describe(groups, name="default/{}".format, created=lambda pod: AGES.get(pod, ""))


def test_where_each_cpu_has_one_holder_nothing_is_found() -> None:
    assert found("0-3", a="4-5", b="6") == ()
    assert found("", a="4-5", b="6") == ()


def test_cpus_are_grouped_by_who_holds_them() -> None:
    assert found("0,9", a="4-6,9", b="4-5,7", c="7-8", d="5") == (
        SharedCPUs(1 << 4, ("a", "b"), free=False),
        SharedCPUs(1 << 5, ("a", "b", "d"), free=False),
        SharedCPUs(1 << 7, ("b", "c"), free=False),
        SharedCPUs(1 << 9, ("a",), free=True),
    )


TO_RESOLVE_THIS = (
    "to resolve this, then {} as soon as it can be spared: the kubelet considers {} free until {} is gone"
)


@pytest.mark.parametrize(
    ("groups", "who", "delete", "spare", "cpus"),
    [
        (found("0", a="4", b="4"), "a and b both", "default/b, the younger,", "a", "CPU 4"),
        (found("0", b="4-5", a="4-5"), "a and b both", "default/b, the younger,", "a", "CPUs 4-5"),
        (found("0", b="4", c="4"), "b and c both", "default/c", "b", "CPU 4"),
        (found("0", x="4", a="4"), "x and a both", "default/a", "x", "CPU 4"),
        (
            found("0", d="4", a="4", b="4"),
            *("a, b and d all", "default/b and default/d, the younger,", "a", "CPU 4"),
        ),
    ],
    ids=["two", "several CPUs", "of one age", "of unknown age", "three"],
)
def test_it_is_said_who_shares_what_and_what_ends_it(
    groups: tuple[SharedCPUs, ...], who: str, delete: str, spare: str, cpus: str
) -> None:
    *names, last = (part if part in {"both", "all", "and"} else f"default/{part}" for part in who.split())
    until = TO_RESOLVE_THIS.format(f"default/{spare}", cpus, f"default/{spare}")
    assert said(groups) == f"{' '.join(names)} {last} hold {cpus}: delete {delete} {until}"


def test_consequences_are_explained_when_a_held_cpu_counts_as_free() -> None:
    assert said(found("0,4", a="4")) == (
        "default/a holds CPU 4, but the kubelet considers CPU 4 free, which happens when one of two pods "
        "that share CPUs ends: delete default/a as soon as it can be spared; until then other containers "
        "run there, another pod may be given the same CPUs, and the kubelet, if restarted, would reject its "
        "state file"
    )


def test_condition_distinguishes_two_holders_from_one_with_free_cpus() -> None:
    def condition(default: int, **held: int) -> tuple[tuple[str, str, str], ...]:
        made = cpus_exclusive(default, held, name=str, created=lambda _: "")
        return tuple((one.type, one.status, one.reason) for one in made)

    assert condition(1, a=2, b=4) == ()
    assert condition(1, a=2, b=2) == (("CPUsExclusive", "False", "CPUsOfTwoPods"),)
    assert condition(3, a=2, b=4) == (("CPUsExclusive", "False", "CPUsInSharedSet"),)
    (long,) = cpus_exclusive(0, {f"p{number}": -1 & 0xFF for number in range(200)}, name=str, created=str)
    assert len(long.message) <= 1000


def shared(node: Node) -> tuple[SharedCPUs, ...]:
    return shared_cpus(node.cpus.default, node.cpus.exclusive_cpus_by_pod())


@given(
    cores=st.integers(2, 4),
    offline=st.frozensets(st.integers(8, 15), max_size=3),
    steps=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), min_size=4, max_size=14),
    policy=st.sampled_from(["none", "best-effort", "single-numa-node"]),
)
def test_law_advice_cures_its_cause_on_machines_with_unequal_cores(
    cores: int, offline: frozenset[int], steps: list[tuple[int, int]], policy: str
) -> None:
    """Without the younger of the pods the CPUs are one pod's, without all of them they are nobody's."""
    hardware = building.machine(2, cores=cores, offline=frozenset(cpu for cpu in offline if cpu < 4 * cores))
    node = building.node(hardware, policy=policy)
    for name, cpu in steps:
        uid = f"u{name}"
        if node.holds(uid):
            node = remove(node, uid)
        else:
            node = admit(node, building.pod(uid, building.container("c", cpu, "64Mi"))).node
        for group in shared(node):
            oldest, *younger = group.pods
            after = node
            for uid in younger:
                after = remove(after, uid)
            assert all(group.cpus & other.cpus == 0 or other.pods == (oldest,) for other in shared(after))
            after = remove(after, oldest)
            assert all(group.cpus & other.cpus == 0 for other in shared(after))
        for uid in node.cpus.assignments:
            # Readers take it as it is.
            assert Node.restore(
                node.kubelet, default_cpus=node.cpus.default, cpu_assignments=node.cpus.assignments
            ).holds(uid)


def test_kubelet_assigns_a_thread_twice_if_one_is_offline() -> None:
    node = building.node(building.machine(2, cores=4, offline=frozenset({15})))
    for number, cpu in enumerate((1, 2, 1, 3)):
        node = admit(node, building.pod(f"p{number}", building.container("c", cpu, "64Mi"))).node
    assert shared(node) == (SharedCPUs(1 << 2, ("p2", "p3"), free=False),)
    assert shared(remove(node, "p3")) == (SharedCPUs(1 << 2, ("p2",), free=True),)
    assert shared(remove(remove(node, "p3"), "p2")) == ()
    assert shared(remove(remove(node, "p2"), "p3")) == ()
