"""What time alone changes of a node is noticed, a few nodes at a time."""

import pytest

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


def test_others_have_their_turn_between_a_hundred_nodes_and_the_next(setting: OfflinePipeline) -> None:
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
