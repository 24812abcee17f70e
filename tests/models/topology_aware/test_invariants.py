"""Laws that hold on machines of all kinds, whatever comes and goes."""

from hypothesis import given
from hypothesis import strategies as st

from numazones.kubelet.pod import Pod
from numazones_topology_aware.admission import admit, create_missing, remove
from numazones_topology_aware.cpu_allocator import CPUAllocator
from numazones_topology_aware.cpu_priority import Priority
from numazones_topology_aware.events import create, run_pod
from numazones_topology_aware.hardware import Hardware
from numazones_topology_aware.node import Node
from numazones_topology_aware.sandbox import CGroup, ContainerSpec, Sandbox
from numazones_topology_aware.topology import Topology
from tests.conformance.topology_aware_events import reconfigure, resize
from tests.models.topology_aware.machines import configuration, machines, pods, pods_of_several


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Node, Node, list[str]]:
    """A fresh node, the node with pods on it, and their uids."""
    fresh = Node.fresh(draw(machines()), configuration(colocate_pods=draw(st.booleans())))
    node, uids = fresh, []
    for number in range(draw(st.integers(1, 8))):
        one = draw(pods(f"p{number}"))
        node = admit(node, one).node
        uids.append(one.uid)
    return fresh, node, uids


@given(nodes(), pods_of_several())
def test_another_attempt_at_a_pod_without_missing_containers_changes_nothing(
    case: tuple[Node, Node, list[str]], one: Pod
) -> None:
    admission = admit(case[1], one)
    again = create_missing(admission.node, one)
    assert set(again.outcomes).isdisjoint(admission.containers)
    if admission.admitted:
        assert again.node is admission.node


@given(nodes(), pods_of_several())
def test_creating_the_last_container_later_gives_the_same_state(
    case: tuple[Node, Node, list[str]], one: Pod
) -> None:
    _, node, _ = case
    at_once = admit(node, one)
    last = one.containers[-1].name
    if last in at_once.containers:
        without = create_missing(node, one, uncreated=[last])
        assert without.containers == {name: at_once.containers[name] for name in without.containers}
        later = create_missing(without.node, one, uncreated=at_once.rejected)
        assert later.containers[last] == at_once.containers[last]
        assert later.node.grants == at_once.node.grants
        assert later.node.cpus == at_once.node.cpus


@given(nodes(), pods_of_several(), st.data())
def test_another_attempt_moves_nothing_that_runs(
    case: tuple[Node, Node, list[str]], one: Pod, data: st.DataObject
) -> None:
    _, node, uids = case
    first = admit(node, one)
    after = remove(first.node, data.draw(st.sampled_from(uids)))
    again = create_missing(after, one)
    for name, grant in after.grants.items():
        held = again.node.grants[name]
        assert (held.pool, held.exclusive, held.shared) == (grant.pool, grant.exclusive, grant.shared)


def numas_in_one_die(node: Node) -> bool:
    """NUMA nodes that lie in several dies are pools of each; there CPUs may be given out twice."""
    return len({pool.name for pool in node.pools}) == len(node.pools)


@given(nodes())
def test_no_cpu_is_exclusive_twice_nor_shared_too(case: tuple[Node, Node, list[str]]) -> None:
    _, node, _ = case
    assert numas_in_one_die(node)
    taken = 0
    for grant in node.grants.values():
        assert not grant.exclusive & taken
        assert not grant.exclusive & ~node.pools[grant.pool].cpus
        taken |= grant.exclusive
    for pool in node.pools:
        assert not node.cpus.sharable[pool.id] & taken
        assert node.cpus.sharable[pool.id] == pool.sharable & ~taken
        assert node.cpus.isolated[pool.id] == pool.isolated & ~taken


@given(nodes(), st.randoms(use_true_random=False))
def test_releasing_everything_restores_the_node(case: tuple[Node, Node, list[str]], order: object) -> None:
    fresh, node, uids = case
    order.shuffle(uids)  # type: ignore[attr-defined]
    for uid in uids:
        node = remove(node, uid)
    assert node.cpus == fresh.cpus
    assert not node.memory.claims
    assert not any(node.memory.zones.values())  # offers that were not taken leave empty zones behind
    assert (node.grants, node.containers, node.sandboxes, node.names) == ({}, {}, {}, {})


@given(nodes())
def test_the_books_add_up(case: tuple[Node, Node, list[str]]) -> None:
    _, node, _ = case
    for pool in node.pools:
        below = [grant for grant in node.grants.values() if grant.pool in pool.descendants]
        assert node.cpus.subtree[pool.id] == sum(grant.shared for grant in below)
        assert node.cpus.reserved_subtree[pool.id] == sum(grant.reserved for grant in below)
        assert node.cpus.idlers[pool.id] == sum(grant.idle for grant in below)
    assert node.cpus.all_free(node.policy.tree) == [node.cpus.free(pool) for pool in node.pools]
    for name, claim in node.memory.claims.items():
        assert node.grants[name].zone == claim.zone
    for zone, used in node.memory.zones.items():
        inside = sum(claim.size for claim in node.memory.claims.values() if claim.zone & zone == claim.zone)
        assert used == inside


@given(nodes())
def test_zones_in_use_are_never_over_committed(case: tuple[Node, Node, list[str]]) -> None:
    _, node, _ = case
    for zone in {claim.zone for claim in node.memory.claims.values()}:
        assert node.memory.zones[zone] <= node.policy.memory.capacity(zone)


@given(machines())
def test_siblings_are_disjoint_and_lie_in_their_parent(hardware: Hardware) -> None:
    node = Node.fresh(hardware, configuration())
    for pool in node.pools:
        children = [one for one in node.pools if one.parent == pool.id]
        for index, child in enumerate(children):
            assert child.id < pool.id
            assert not child.cpus & ~pool.cpus
            assert not any(child.cpus & other.cpus for other in children[:index])
        assert len(children) != 1


@given(machines(), st.data())
def test_picked_cpus_have_the_wanted_number_within_the_set(hardware: Hardware, data: st.DataObject) -> None:
    topology = Topology.discover(hardware)
    allocator = CPUAllocator.of(topology)
    available = data.draw(st.integers(0, topology.online)) & topology.online
    count = data.draw(st.integers(0, available.bit_count() + 1))
    picked = allocator.take(available, count, data.draw(st.sampled_from(list(Priority))))
    if count > available.bit_count():
        assert picked is None
    else:
        assert picked is not None
        assert not picked & ~available
        assert picked.bit_count() == count


@given(nodes())
def test_a_configuration_applied_again_keeps_every_cpu_and_zone(case: tuple[Node, Node, list[str]]) -> None:
    _, node, _ = case
    if any(node.cpus.free(pool) < 0 for pool in node.pools):
        return  # over-full pools can't be re-instated in every order
    after = reconfigure(node, node.policy.config).outcome
    assert after.error is None
    for name, grant in node.grants.items():
        assert after.node.grants[name].exclusive == grant.exclusive
        assert after.node.grants[name].pool == grant.pool
    assert after.node.cpus.sharable == node.cpus.sharable


@given(machines(), st.integers(100, 4000), st.integers(100, 4000))
def test_a_resize_stays_in_its_pool_or_loses_the_grant(hardware: Hardware, before: int, after: int) -> None:
    fresh = Node.fresh(hardware, configuration(prefer_isolated=False))
    sandbox = Sandbox("s", "p", "default")
    node = run_pod(fresh, sandbox)
    node = create(node, "s", ContainerSpec("c", "c", CGroup(shares=before, period=100_000))).node
    outcome = resize(node, "c", CGroup(shares=after))
    if outcome.error is not None:
        assert "c" not in outcome.node.grants
        assert outcome.node.cpus == fresh.cpus
    elif "c" in node.grants:
        assert outcome.node.grants["c"].pool == node.grants["c"].pool
