"""CPU seconds by kind of CPU, memory by NUMA node, interrupts on exclusive CPUs."""

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from numazones import cpuset
from numazones.api.snapshot import ContainerHolding, NodeSnapshot
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones_exporter.metrics import ExporterMetrics
from numazones_exporter.sources.interrupts import InterruptsReader
from numazones_exporter.usage_metrics import CPUUsageTracker

LABELS = (
    *("numa_node", "kind", "mode", "namespace", "pod", "container", "resource"),
    *("cpu", "interrupt", "description", "affinity", "source"),
)
HOSTILE = (
    "",
    "\n",
    "\0" * 50,
    "cpu",
    "cpu 1\ncpu0\ncpu1\ncpu2\ncpu3\n",
    "cpu 1\n" + "cpu0 x y z\n" * 4,
    "cpu 1\n" + "cpu0 nan inf 1 1 1 1 1 1 1 1\n" * 4,
    "cpu 1\n" + "cpu0 -5 0 0 0 0 0 0 0 0 0\n" * 4,
    "cpu 1\n" + f"cpu0 {'9' * 5000} 0 0 0 0 0 0 0 0 0\n" * 4,
    "\xff\xfe CPU0 CPU1",
    " CPU0 CPU1 CPU2 CPU3\nno colon\n",
    " CPU0 CPU99999999\n 1: 2 3\n",
    " CPU0 CPU1 CPU2 CPU3\n 1: 1 2 three 4 x\n",
    f" CPU0 CPU1 CPU2 CPU3\n 1: 1 2 {'7' * 9000} 4 x\n",
    "Node 0 MemFree: lots kB\n",
    "Node 0 MemFree: 99999999999999999999 kB\n",
    "numa_miss -1\nnuma_foreign 1e9\n",
    "Node 0 MemFree:   400 kB\nNode 0 MemUsed: 60",
    " CPU0 CPU1 CPU2 CPU3\n 1: 1 2 3\0 4 x\n\0 2: 1 2 3 4 x\n",
    " CPU0 CPU1 CPU2 CPU3\n 1: 1 2 3 4 x\n 2: 1 2",
    " CPU0 CPU1 CPU2 CPU3\n 1: " + "1 " * 600_000 + "\n",
    'evil{label="x"} 1\n# TYPE evil gauge\n' * 3,
)


class Node:
    """A machine of two NUMA nodes with two CPUs each, whose files a test writes."""

    def __init__(self, root: Path) -> None:
        self.sys, self.proc, self.now = root / "sys", root / "proc", 0.0
        self.usage = CPUUsageTracker(self.proc, self.sys, clock=lambda: self.now)
        self.metrics = ExporterMetrics(CollectorRegistry(), usage=self.usage)
        self.put("sys/devices/system/cpu/online", "0-3")
        self.stat(dict.fromkeys(range(4), "0 0 0 0"))
        self.interrupts("0-3", {})
        for numa in range(2):
            here = f"sys/devices/system/node/node{numa}"
            self.put(
                f"{here}/meminfo",
                f"Node {numa} MemTotal:  1000 kB\nNode {numa} MemFree:   400 kB\n"
                f"Node {numa} MemUsed:   600 kB\nNode {numa} FilePages:  50 kB\n",
            )
            self.put(f"{here}/numastat", "numa_hit 9\nnuma_miss 7\nnuma_foreign 5\nlocal_node 9\n")
            self.put(f"{here}/hugepages/hugepages-2048kB/free_hugepages", "3\n")

    def put(self, name: str, text: str) -> None:
        path = self.sys.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="latin-1")

    def stat(self, ticks: Mapping[int, str]) -> None:
        """Write user, system, softirq and idle of each CPU."""
        lines = ["cpu  1 1 1 1 1 1 1 1 1 1"]
        for cpu, text in ticks.items():
            user, system, softirq, idle = text.split()
            lines.append(f"cpu{cpu} {user} 0 {system} {idle} 0 0 {softirq} 0 0 0")
        self.put("proc/stat", "\n".join([*lines, "intr 5 4 3", "ctxt 7", ""]))
        self.put("sys/devices/system/cpu/online", cpuset.format(cpuset.of(ticks)))

    def interrupts(self, cpus: str, rows: Mapping[str, str]) -> None:
        """Write rows: name → counts and description."""
        head = " ".join(f"CPU{cpu}" for cpu in cpuset.ids(cpuset.parse(cpus)))
        lines = [f"{name:>4}: {text}" for name, text in rows.items()]
        self.put("proc/interrupts", "\n".join([f"       {head}", *lines, "ERR:  0", ""]))

    def hold(self, cpus: str, *, pod: str = "a", uid: str = "1", reserved: str = "0") -> None:
        """Give CPUs to a container, and the rest to the shared pool."""
        mask, kept = cpuset.parse(cpus), cpuset.parse(reserved)
        machine = Machine(
            tuple(CPU(cpu, cpu, cpu // 2, 0, cpu // 2) for cpu in range(4)),
            tuple(NUMANode(numa, 2**20, (), (10, 10)) for numa in range(2)),
        )
        holder = ContainerHolding("ns", pod, uid, "app", cpus=mask)
        self.usage.follow(
            NodeSnapshot(
                "worker",
                machine,
                reserved_cpus=kept,
                default_cpus=0xF & ~mask,
                exclusive_cpus=mask,
                holders=(holder,) if mask else (),
            )
        )

    def scrape(self, *names: str) -> dict[str, float]:
        """Return name and labels, but for the node's → value, of the metrics that begin with a name."""
        text = generate_latest(self.metrics.registry).decode()
        found = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.startswith(names):
                    labels = [sample.labels[key] for key in LABELS if key in sample.labels]
                    found[" ".join([sample.name.removeprefix("numazones_"), *labels])] = sample.value
        return found


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    node.hold("2-3")
    return node


CPU_SECONDS, BUSY = "numazones_numa_cpu_seconds", "numazones_container_exclusive_cpu"


def test_cpu_seconds_are_by_numa_node_kind_and_mode(node: Node) -> None:
    node.stat({0: "100 0 0 900", 1: "0 0 0 1000", 2: "500 100 0 400", 3: "0 0 200 800"})
    seconds = {key: value for key, value in node.scrape(CPU_SECONDS).items() if value}
    assert seconds == pytest.approx(
        {
            "numa_cpu_seconds_total 0 reserved user": 1.0,
            "numa_cpu_seconds_total 0 reserved idle": 9.0,
            "numa_cpu_seconds_total 0 shared idle": 10.0,
            "numa_cpu_seconds_total 1 exclusive user": 5.0,
            "numa_cpu_seconds_total 1 exclusive system": 1.0,
            "numa_cpu_seconds_total 1 exclusive softirq": 2.0,
            "numa_cpu_seconds_total 1 exclusive idle": 12.0,
        }
    )
    assert node.scrape(BUSY) == pytest.approx(
        {
            "container_exclusive_cpu_seconds_total ns a app": 20.0,
            "container_exclusive_cpu_busy_seconds_total ns a app": 8.0,
            "container_exclusive_cpus ns a app": 2.0,
        }
    )


def test_time_before_a_cpu_handover_counts_for_old_holder(node: Node) -> None:
    node.stat({0: "0 0 0 0", 1: "0 0 0 0", 2: "0 0 0 0", 3: "700 0 0 0"})
    node.hold("1", pod="b")
    node.stat({0: "0 0 0 0", 1: "30 0 0 0", 2: "0 0 0 0", 3: "1700 0 0 0"})
    assert node.scrape(BUSY + "_busy") == pytest.approx(
        {"container_exclusive_cpu_busy_seconds_total ns b app": 0.3}
    )
    seconds = node.scrape(CPU_SECONDS)
    assert seconds["numa_cpu_seconds_total 1 exclusive user"] == pytest.approx(7.0)
    assert seconds["numa_cpu_seconds_total 1 shared user"] == pytest.approx(10.0)
    assert seconds["numa_cpu_seconds_total 0 exclusive user"] == pytest.approx(0.3)


def test_pod_created_again_under_its_name_begins_at_zero(node: Node) -> None:
    node.stat(dict.fromkeys(range(4), "900 0 0 0"))
    node.hold("2-3", uid="2")
    assert node.scrape(BUSY + "_busy") == {"container_exclusive_cpu_busy_seconds_total ns a app": 0.0}


def test_kernel_counters_that_go_backwards_never_lower_ours(node: Node) -> None:
    node.stat(dict.fromkeys(range(4), "900 0 0 5000"))
    before = node.scrape(CPU_SECONDS)
    node.stat(dict.fromkeys(range(4), "10 0 0 4990"))
    assert node.scrape(CPU_SECONDS) == before
    node.stat(dict.fromkeys(range(4), "30 0 0 4990"))
    after = node.scrape(CPU_SECONDS)
    assert after["numa_cpu_seconds_total 1 exclusive user"] == pytest.approx(18.0 + 0.4)


def test_hot_plugged_cpu_begins_again(node: Node) -> None:
    node.stat(dict.fromkeys(range(4), "100 0 0 0"))
    node.scrape()
    node.stat(dict.fromkeys((0, 1, 3), "200 0 0 0"))
    assert node.scrape(CPU_SECONDS)["numa_cpu_seconds_total 1 exclusive user"] == pytest.approx(3.0)
    node.stat({cpu: "9000 0 0 0" if cpu == 2 else "300 0 0 0" for cpu in range(4)})
    assert node.scrape(CPU_SECONDS)["numa_cpu_seconds_total 1 exclusive user"] == pytest.approx(4.0)


def test_times_of_other_cpus_than_those_online_are_not_used(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.stat(dict.fromkeys(range(4), "100 0 0 0"))
    node.put("sys/devices/system/cpu/online", "0-2")
    assert node.scrape(CPU_SECONDS) == {}
    assert "stat has times for 4 CPUs" in caplog.text


def test_cpus_are_counted_by_kind(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.hold("3")
    assert node.scrape("numazones_numa_cpus") == {
        "numa_cpus 0 reserved": 1.0,
        "numa_cpus 0 shared": 1.0,
        "numa_cpus 1 exclusive": 1.0,
        "numa_cpus 1 shared": 1.0,
    }


def test_cpus_that_the_kubelet_says_nothing_about_are_unknown(node: Node) -> None:
    machine = Machine((CPU(0, 0, 0, 0, 0), CPU(1, 1, 0, 0, 0)), (NUMANode(0, 2**20, (), None),))
    node.usage.follow(NodeSnapshot("worker", machine, offline={0: 0b1100}))
    assert node.scrape("numazones_numa_cpus") == {"numa_cpus 0 unknown": 2.0, "numa_cpus 0 offline": 2.0}


def test_memory_and_allocations_are_by_numa_node(node: Node) -> None:
    found = node.scrape(
        "numazones_numa_memory", "numazones_numa_huge", "numazones_numa_miss", "numazones_numa_foreign"
    )
    assert {key: value for key, value in found.items() if key.split()[1] == "1"} == {
        "numa_memory_used_bytes 1": 600 * 1024,
        "numa_memory_free_bytes 1": 400 * 1024,
        "numa_memory_file_bytes 1": 50 * 1024,
        "numa_hugepages_free_bytes 1 hugepages-2Mi": 3 * 2**21,
        "numa_miss_pages_total 1": 7.0,
        "numa_foreign_pages_total 1": 5.0,
    }


def test_interrupts_on_exclusive_cpus_are_counted_by_source_and_named(node: Node) -> None:
    rows = {"24": "1 1 10 0 PCI-MSI 512-edge  nic-rx-0", "RES": "5 5 5 5 Rescheduling interrupts"}
    node.interrupts("0-3", rows)
    node.put("proc/irq/24/effective_affinity_list", "2\n")
    node.scrape()
    node.now = 60.0
    node.interrupts(
        "0-3",
        {
            "24": "1 900 610 0 PCI-MSI 512-edge  nic-rx-0",
            "RES": "5 5 5 65 Rescheduling interrupts",
            "LOC": "0 0 0 90000 Local timer interrupts",
        },
    )
    assert node.scrape("numazones_exclusive_cpu_interrupts") == {
        "exclusive_cpu_interrupts_per_second 1 2 24 PCI-MSI 512-edge nic-rx-0 2": 10.0,
        "exclusive_cpu_interrupts_per_second 1 3 RES Rescheduling interrupts ": 1.0,
    }
    node.now = 120.0
    node.interrupts("0-3", {"LOC": "0 0 0 96000 Local timer interrupts"})
    assert node.scrape("numazones_numa_exclusive_cpu_interrupts") == {
        "numa_exclusive_cpu_interrupts_total 1 device": 600.0,
        "numa_exclusive_cpu_interrupts_total 1 processor": 60.0,
        "numa_exclusive_cpu_interrupts_total 1 timer": 6000.0,
    }
    assert node.scrape("numazones_exclusive_cpu_interrupts") == {}


def test_columns_as_wide_as_the_kernel_writes_them_count_alike(node: Node) -> None:
    for now, count in ((0.0, 4294967235), (60.0, 4294967295)):
        node.now = now
        wide = " ".join(f"{value:>10}" for value in (0, 100, count, 5))
        node.interrupts("0-3", {"24": f"{wide}  PCI-MSI 512-edge  nic"})
        found = node.scrape("numazones_exclusive_cpu_interrupts")
    assert found == {"exclusive_cpu_interrupts_per_second 1 2 24 PCI-MSI 512-edge nic ": 1.0}


def test_only_the_ten_worst_interrupts_are_named(node: Node) -> None:
    for now, factor in ((0.0, 1), (60.0, 61)):
        node.now = now
        node.interrupts("0-3", {str(irq): f"0 0 {irq * factor} 0 MSI nic" for irq in range(1, 30)})
        found = node.scrape("numazones_exclusive_cpu_interrupts")
    assert sorted(found.values()) == [float(rate) for rate in range(20, 30)]


def test_interrupts_before_a_cpu_became_exclusive_do_not_count(node: Node) -> None:
    node.interrupts("0-3", {"24": "0 0 0 0 MSI nic"})
    node.scrape()
    node.hold("1-3")
    node.now = 60.0
    node.interrupts("0-3", {"24": "0 700 60 0 MSI nic"})
    assert list(node.scrape("numazones_exclusive_cpu_interrupts").values()) == [1.0]


@pytest.mark.parametrize(
    "rows",
    [{"24": "0 0 3 0 MSI nic"}, {"24": "0 0 90 0 MSI other-device"}, {"24": "0 0 50 0 MSI nic"}],
    ids=["backwards", "another device", "standing still"],
)
def test_interrupt_counts_that_say_nothing_are_left_out(node: Node, rows: Mapping[str, str]) -> None:
    node.interrupts("0-3", {"24": "0 0 50 0 MSI nic"})
    node.scrape()
    node.now = 60.0
    node.interrupts("0-3", rows)
    assert node.scrape("numazones_exclusive_cpu_interrupts") == {}


def test_interrupts_are_read_once_an_interval(node: Node) -> None:
    node.scrape()
    node.interrupts("0-3", {"24": "0 0 50 0 MSI nic"})
    node.now = 59.0
    node.scrape()
    node.now = 60.0
    node.scrape()
    node.interrupts("0-3", {"24": "0 0 650 0 MSI nic"})
    node.now = 120.0
    assert list(node.scrape("numazones_exclusive_cpu_interrupts").values()) == [10.0]


@pytest.mark.parametrize(
    ("file", "absent"),
    [
        ("proc/stat", CPU_SECONDS),
        ("proc/interrupts", "numazones_numa_exclusive_cpu_interrupts"),
        ("sys/devices/system/node/node0/numastat", "numazones_numa_miss_pages_total"),
        ("sys/devices/system/node/node0/meminfo", "numazones_numa_memory_free_bytes"),
        (
            "sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages",
            "numazones_numa_hugepages_free_bytes",
        ),
    ],
)
def test_missing_file_is_logged_once_and_its_metric_absent(
    node: Node, file: str, absent: str, caplog: pytest.LogCaptureFixture
) -> None:
    (node.sys.parent / file).unlink()
    for now in (0.0, 60.0, 120.0):
        node.now = now
        found = node.scrape("numazones_numa_")
    assert [key for key in found if f"numazones_{key}".startswith(absent) and " 0" in key] == []
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        message for message in (record.getMessage() for record in caplog.records) if file in message
    ]
    assert len(caplog.records) == 1
    assert len(node.scrape("numazones_numa_")) > 4
    assert sum(node.scrape("numazones_exporter_source_errors_total").values()) >= 3


def test_masked_interrupts_are_explained(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.put("proc/interrupts", "")
    node.scrape()
    assert "container runtimes mask it; mount the host's /proc/interrupts" in caplog.text


@pytest.mark.parametrize("content", HOSTILE)
def test_hostile_content_of_any_file_harms_no_other_metric(node: Node, content: str) -> None:
    for file in ("proc/stat", "proc/interrupts", "sys/devices/system/cpu/online"):
        before = (node.sys.parent / file).read_text(encoding="latin-1")
        node.put(file, content)
        for now in (0.0, 60.0):
            node.now += now
            found = node.scrape("numazones_")
            assert found["numa_memory_free_bytes 1"] == 400 * 1024
            assert all(0 <= value < 2**63 for value in found.values())
            assert "evil" not in str(sorted(found))
        node.put(file, before)
    for file in ("meminfo", "numastat", "hugepages/hugepages-2048kB/free_hugepages"):
        node.put(f"sys/devices/system/node/node0/{file}", content)
        assert node.scrape("numazones_numa_memory_free")["numa_memory_free_bytes 1"] == 400 * 1024


def test_control_characters_in_descriptions_become_visible(node: Node) -> None:
    for now, count in ((0.0, 1), (60.0, 61)):
        node.now = now
        node.interrupts("0-3", {"24": f'0 0 {count} 0 MSI \x1b[2J"evil\\ {"x" * 500}'})
        found = node.scrape("numazones_exclusive_cpu_interrupts")
    (name,) = found
    assert "\\x1b[2J" in name
    assert len(name) < 200


def test_a_thousand_cpus_are_read_in_full(tmp_path: Path) -> None:
    node, cpus = Node(tmp_path), range(1024)
    machine = Machine(
        tuple(CPU(cpu, cpu, cpu // 128, 0, cpu // 128) for cpu in cpus),
        tuple(NUMANode(numa, 2**20, (), None) for numa in range(8)),
    )
    exclusive = cpuset.of(range(512, 1024))
    holders = tuple(
        ContainerHolding("ns", f"pod-{number}", str(number), "app", cpus=0b1111 << 512 + 4 * number)
        for number in range(128)
    )
    node.stat(dict.fromkeys(cpus, "0 0 0 0"))
    node.interrupts("0-1023", {"24": " ".join(["0"] * 1024) + " MSI nic"})
    node.usage.follow(
        NodeSnapshot(
            "worker", machine, reserved_cpus=1, default_cpus=0, exclusive_cpus=exclusive, holders=holders
        )
    )
    node.scrape()
    node.now = 60.0
    node.stat({cpu: f"{cpu} 0 0 0" for cpu in cpus})
    node.interrupts("0-1023", {"24": " ".join(map(str, cpus)) + " MSI nic"})
    seconds = node.scrape(CPU_SECONDS)
    for numa in range(4, 8):
        want = sum(range(128 * numa, 128 * numa + 128)) / 100
        assert seconds[f"numa_cpu_seconds_total {numa} exclusive user"] == pytest.approx(want)
    assert len(node.scrape(BUSY + "_busy")) == 128
    assert max(node.scrape("numazones_exclusive_cpu_interrupts").values()) == 1023 / 60


def test_memory_of_numa_nodes_without_cpus_is_shown(node: Node) -> None:
    machine = Machine(
        (CPU(0, 0, 0, 0, 0),), (NUMANode(0, 2**20, (), (10, 20)), NUMANode(1, 2**20, (), (20, 10)))
    )
    node.usage.follow(NodeSnapshot("worker", machine, reserved_cpus=1, exclusive_cpus=0))
    assert node.scrape("numazones_numa_memory_free")["numa_memory_free_bytes 1"] == 400 * 1024


def test_huge_pages_of_impossible_sizes_are_left_out(node: Node) -> None:
    for name in (
        "hugepages-0kB",
        "hugepages-02048kB",
        "hugepages-3000kB",
        "hugepages-kB",
        "hugepages-4kB.old",
    ):
        node.put(f"sys/devices/system/node/node0/hugepages/{name}/free_hugepages", "9\n")
    found = node.scrape("numazones_numa_hugepages_free_bytes")
    assert found["numa_hugepages_free_bytes 0 hugepages-2Mi"] == 3 * 2**21
    assert len(found) == 2


def test_stolen_time_that_jumps_by_centuries_does_not_count(node: Node) -> None:
    row = "cpu{} 100 0 0 100 0 0 0 {} 0 0"
    for steal in (0, 2**64 // 10, 2**64 // 10 + 5):
        node.put("proc/stat", "\n".join(["cpu  1", *(row.format(cpu, steal) for cpu in range(4)), ""]))
        found = node.scrape(CPU_SECONDS)
    assert max(value for key, value in found.items() if key.endswith("steal")) < 100


def test_interrupts_begin_again_after_a_failed_reading(node: Node) -> None:
    node.interrupts("0-3", {"24": "0 0 0 0 MSI nic"})
    node.scrape()
    (node.proc / "interrupts").unlink()
    node.now = 60.0
    node.scrape()
    for now, count in ((120.0, 12000), (180.0, 12600)):
        node.interrupts("0-3", {"24": f"0 0 {count} 0 MSI nic"})
        node.now = now
        found = node.scrape("numazones_exclusive_cpu_interrupts")
        assert list(found.values()) == ([] if now == 120.0 else [10.0])


def test_interrupt_classes_of_s390x_have_names_with_slashes(node: Node) -> None:
    for now, count in ((0.0, 0), (60.0, 600)):
        node.now = now
        node.interrupts("0-3", {"I/O": f"0 0 {count} 0 [I/O] I/O interrupts"})
        found = node.scrape("numazones_exclusive_cpu_interrupts")
    assert found == {"exclusive_cpu_interrupts_per_second 1 2 I/O [I/O] I/O interrupts ": 10.0}


COUNTS = st.lists(st.sampled_from([0, 0, 0, 7, 10, 4294967295]), min_size=20, max_size=20)
READINGS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(["24", "25", "RES"]), COUNTS),
        st.sampled_from(["MSI nic", "MSI nic", "MSI nic", "gpio 7 8"]),
        st.sampled_from(["{:>10}", "{:>10}", "{:>10}", "{}", "{:>12}"]),
    ),
    max_size=6,
)


@given(readings=READINGS)
@settings(deadline=None)
def test_repeated_readings_equal_differences_of_whole_files(
    readings: list[tuple[dict[str, list[int]], str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.getbasetemp()
    reader = InterruptsReader(directory)
    head = " ".join(f"CPU{cpu}" for cpu in range(20))
    before: dict[tuple[str, str], list[int]] = {}
    for rows, text, width in readings:
        lines = [f"{name:>4}: {' '.join(map(width.format, counts))}  {text}" for name, counts in rows.items()]
        (directory / "interrupts").write_text("\n".join([head, *lines, "ERR:  0", ""]))
        now = {(name, text): counts for name, counts in rows.items()}
        expected = {
            key: {
                cpu: new - old
                for cpu, (old, new) in enumerate(zip(before[key], counts, strict=True))
                if new > old
            }
            for key, counts in now.items()
            if key in before
        }
        found = {(one.name, one.description): came for one, came in reader.read().items()}
        assert found == {key: came for key, came in expected.items() if came}
        before = now
