"""Times at which the page's documents are updated, and how much of the event loop that takes."""

from numazones.cluster.cluster import ClusterPod
from numazones.cluster.usage import NUMAUse, Usage
from numazones.errors import NumazonesError
from numazones.prediction.held_room import ArrivalPath
from tests.operator.page.changes import changes
from tests.operator.page.updates import Updates
from tests.operator.pods import pod_body


async def test_the_updater_rests_longer_than_it_works() -> None:
    updates = Updates()
    updates.look = 0.0021
    async with updates.running():
        await updates.round()
    assert len(updates.slices) > 3
    assert all(rest > work for work, rest in updates.slices)


async def test_document_of_an_unused_machine_is_removed() -> None:
    updates = Updates()
    state = updates.setting.state
    async with updates.running():
        await updates.round()
        shown = changes(updates.documents)
        machine = f"machine/{shown['node/node']['machine']}"
        assert shown[machine]["sockets"]
        seen = updates.documents.version
        for node in list(state.nodes):
            state.nodes.remove(node)
        await updates.round()
        assert changes(updates.documents, seen) == {"node/node": None, "use/node": None, machine: None}


async def test_held_room_is_shown_until_it_ends() -> None:
    updates = Updates()
    pod = ClusterPod.from_api(pod_body("coming", cpu=2))
    async with updates.running():
        await updates.round()
        updates.held.hold(pod, ["node"], ArrivalPath.ASSUMED, seconds=60)
        await updates.round()
        key = "held/default/coming"
        shown = changes(updates.documents)[key]
        assert (shown["way"], shown["until"]) == ("being bound by a scheduler", "2023-11-14T22:14:20Z")
        assert shown["places"] == [{"node": "node", "numaIDs": [0]}]
        seen = updates.documents.version
        updates.moment += 60
        await updates.round()
        assert changes(updates.documents, seen) == {key: None}


async def test_use_is_read_once_a_period() -> None:
    updates = Updates()
    updates.used = Usage({("node", 0): NUMAUse({"exclusive": 0.5, "shared": 0.123}, 5 << 20)})
    async with updates.running():
        await updates.rounds(3)
        seen = updates.documents.version
        shown = changes(updates.documents)["use/node"]
        assert shown["zones"] == [
            {"id": 0, "used": None, "shared": 0.12, "reserved": None, "memory": 5 << 20}
        ]
        updates.used = Usage({}, (), {"node": "no answer"})
        await updates.rounds(3)
        assert changes(updates.documents, seen) == {}
        updates.moment += 60
        await updates.rounds(3)
        assert changes(updates.documents, seen) == {"use/node": {"zones": [], "unknown": "no answer"}}


async def test_use_that_cannot_be_read_is_unknown() -> None:
    updates = Updates()
    updates.used = Usage({("node", 0): NUMAUse({}, 5 << 20)})
    async with updates.running():
        await updates.rounds(3)
        seen = updates.documents.version
        updates.used = NumazonesError("Prometheus does not answer")
        updates.moment += 60
        await updates.rounds(3)
        found = changes(updates.documents, seen)
        unknown = "CPU and memory usage is unknown: Prometheus does not answer"
        assert found["cluster/"]["note"].endswith(unknown)
        assert found["use/node"] is None


async def test_page_is_updated_while_use_is_being_read() -> None:
    updates = Updates()
    updates.reads.clear()
    async with updates.running():
        await updates.rounds(3)
        assert changes(updates.documents)["node/node"]["ready"]
