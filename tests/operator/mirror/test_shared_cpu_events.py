"""Pods that share exclusive CPUs are told so, once, and again when they share others."""

from numazones.api.meta import Condition
from numazones.api.numazone import READY
from numazones.api.shared_cpus import cpus_exclusive
from numazones.api.zones_from_node import zones_from_node
from numazones.cluster.cluster import ClusterPod
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.node import Node
from numazones_operator.mirror.decoding import ZoneReport
from numazones_operator.notices.shared_cpu_events import SharedCPUEvents
from tests.numazones.kubelet import building
from tests.operator.offline_pipeline import OfflinePipeline
from tests.operator.pods import pod_body

UNEVEN = building.machine(2, cores=4, offline=frozenset({15}))


class Setting(OfflinePipeline):
    """A node whose kubelet took cores for single threads, fed by hand; remembers what is posted."""

    def __init__(self) -> None:
        super().__init__()
        self.add_node()
        self.told: list[tuple[str, str]] = []
        self.lets_through = True
        self.shared = SharedCPUEvents(self.state, events=self)  # type: ignore[arg-type]
        self.kubelet = building.node(UNEVEN)

    def post(self, about: dict[str, str], *, type: str, reason: str, message: str) -> bool:  # noqa: A002
        if not self.lets_through:
            return False
        assert (type, reason) == ("Warning", "CPUsShared")
        self.told.append((about["name"], message))
        return True

    def run(self, name: str, cpu: int, *, hour: int = 8) -> None:
        """The kubelet admits a pod."""
        body = pod_body(name, cpu=cpu, memory="64Mi", nodeName="node")
        body["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": f"2026-01-31T{hour:02}:00:00Z"}
        pod = ClusterPod.from_api(body | {"status": {"phase": "Running"}})
        assert pod.admission is not None
        self.kubelet = admit(self.kubelet, pod.admission).node
        self.state.pods.put(pod)

    def look(self) -> list[tuple[str, str]]:
        """Return what is posted now, after the exporter has written the zones."""
        self.exported(self.kubelet)
        self.told.clear()
        self.shared.look()
        return self.told

    def exported(self, node: Node) -> None:
        ready = Condition(type=READY, status="True", reason="Complete")
        shared = cpus_exclusive(
            node.cpus.default, node.cpus.exclusive_cpus_by_pod(), name=str, created=lambda _: ""
        )
        for zone in zones_from_node(node, node_name="node", pods={}, conditions=(ready, *shared)):
            self.state.zones.put(ZoneReport.from_api(zone.to_api()))


def sharing() -> Setting:
    setting = Setting()
    for name, cpu in (("p0", 1), ("p1", 2), ("p2", 1)):
        setting.run(name, cpu)
    assert setting.look() == []
    setting.run("p3", 3, hour=9)
    return setting


def test_both_pods_get_one_event_on_shared_cpus_and_cure() -> None:
    setting = sharing()
    told = setting.look()
    assert [name for name, _ in told] == ["p2", "p3"]
    for _, message in told:
        assert message.startswith(
            "on node node, default/p2 and default/p3 both hold CPU 2: delete default/p3, the younger,"
        )
    assert setting.look() == []


def test_remaining_pod_gets_event_that_its_cpu_counts_free() -> None:
    setting = sharing()
    setting.look()
    setting.kubelet = remove(setting.kubelet, "uid-p3")
    ((name, message),) = setting.look()
    assert name == "p2"
    assert message.startswith("on node node, default/p2 holds CPU 2, but the kubelet considers CPU 2 free")


def test_events_over_the_rate_are_posted_next_time() -> None:
    setting = sharing()
    setting.lets_through = False
    assert setting.look() == []
    setting.lets_through = True
    assert [name for name, _ in setting.look()] == ["p2", "p3"]
