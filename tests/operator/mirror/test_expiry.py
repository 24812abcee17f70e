"""Changes of a node that time alone makes are noticed, a few nodes at a time."""

from typing import Any

import pytest

from numazones.api import zones
from numazones.kubelet.admission import admit
from numazones.kubelet.pod import Pod
from numazones.placement import Unknown
from numazones_simulator import node_kinds
from tests.operator.offline_pipeline import OfflinePipeline

LEASE = 60.0


@pytest.fixture
def setting() -> OfflinePipeline:
    found = OfflinePipeline()
    for number in range(250):
        found.add_node(f"node-{number:03}")
    for node in found.state.all_nodes():
        assert node.known is not None
    return found


def unknown(setting: OfflinePipeline) -> list[str]:
    return [node.name for node in setting.state.all_nodes() if node.known is None]


def test_all_leases_that_ran_out_are_noticed(setting: OfflinePipeline) -> None:
    setting.clock.now += LEASE / 2
    setting.beat("node-007")
    before = setting.state.version
    setting.let_pass(LEASE / 2 + 1)
    assert setting.state.version == before + 249
    assert len(unknown(setting)) == 249
    assert "node-007" not in unknown(setting)


def test_other_tasks_run_between_batches_of_a_hundred_nodes(setting: OfflinePipeline) -> None:
    setting.clock.now += LEASE + 1
    before = setting.state.version
    seen = [setting.state.version - before for _ in setting.state.expiring()]
    assert seen == [100, 200]
    assert setting.state.version - before == 250


def test_a_node_that_goes_meanwhile_is_not_looked_at(setting: OfflinePipeline) -> None:
    setting.clock.now += LEASE + 1
    expiring = setting.state.expiring()
    next(expiring)
    for beat in list(setting.state.heartbeats):
        if beat.node == "node-249":
            setting.state.heartbeats.remove(beat)
    for zone in list(setting.state.zones):
        if zone.node == "node-249":
            setting.state.zones.remove(zone)
    node = setting.state.nodes.get("node-249")
    assert node is not None
    setting.state.nodes.remove(node)
    before = setting.state.version
    assert list(expiring) == [None]
    assert setting.state.version - before == 149
    assert setting.state.node("node-249") is None


async def test_zones_that_raise_make_their_node_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other; what was known of it before does not count any more."""
    setting, taken = OfflinePipeline(), []
    setting.state.faults.tell = lambda about, problem: taken.append((about["name"], problem))
    for name in ("odd", "even"):
        setting.add_node(name)
    read = zones.node_from_zones

    def picky(some: Any, **options: Any) -> Any:
        if some[0].spec.node_name == "odd":
            raise RecursionError("too deep")
        return read(some, **options)

    monkeypatch.setattr("numazones_operator.mirror.mirrored_node.node_from_zones", picky)
    full = admit(node_kinds.single_numa_node("odd", "10.0.0.1").empty_node(), Pod("p", "d", "u", ())).node
    for name in ("odd", "even"):
        for report in list(setting.state.zones):
            if report.node == name:
                setting.state.zones.discard(report.name)
        setting.publish(name, full)
    odd, even = setting.state.node("odd"), setting.state.node("even")
    assert odd is not None
    assert even is not None
    assert even.known is not None
    assert isinstance(odd.placement, Unknown)
    assert odd.placement.message == "RecursionError: too deep"
    assert ("odd", "RecursionError: too deep") in taken
