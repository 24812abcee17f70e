"""``doctor`` on a live cluster: what is there, what is not, and what the user may not do."""

from pathlib import Path
from typing import Any

import pytest

from checks.clusters.operator.closed_loop import closed_loop
from numazones_simulator import node_kinds
from tests import plugin
from tests.kubectl.healthy_cluster import changed, healthy, program
from tests.kubectl.live_doctor import doctor, of, serving


async def test_a_cluster_is_examined_with_what_its_api_server_knows(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("worker-1", "10.0.0.1")])
        await loop.create_pod("odd", cpu=100)
        report, code = await doctor(loop.kubeconfig)
        assert of(report, "definitions") == of(report, "leases") == of(report, "clocks") == []
        assert [(severity, subjects) for severity, subjects, _ in of(report, "operator")] == [
            ("hint", ["numazones-operator"])
        ]
        # The embedded server knows no access reviews. Of NodeResourceTopologies, nobody can have written one.
        assert set(report["notChecked"]) == {"access"}
        assert code == int(any(it["severity"] != "hint" for it in report["findings"]))


async def test_missing_rights_are_reported_and_their_checks_skipped(tmp_path: Path) -> None:
    async with serving(tmp_path, {"leases", "resourceslices", "pods/proxy"}) as kubeconfig:
        report, code = await doctor(kubeconfig)
    assert [(severity, subjects) for severity, subjects, _ in of(report, "access")] == [
        ("warning", ["list resourceslices.resource.k8s.io"]),
        ("warning", ["list leases.coordination.k8s.io"]),
    ]
    assert set(report["notChecked"]) == {"leases", "clocks"}
    assert "list leases.coordination.k8s.io: Forbidden" in report["notChecked"]["leases"]
    assert code == 1


@pytest.mark.parametrize(
    "container",
    [{"args": ["--recordings"]}, {"env": [{"name": "NUMAZONES_EXPORTER_RECORDINGS", "value": "true"}]}],
)
async def test_exporters_whose_recordings_the_user_may_not_fetch_are_found(
    container: dict[str, Any], tmp_path: Path
) -> None:
    def serve(pod: dict[str, Any]) -> None:
        pod["spec"]["containers"] = [{"name": "main", **container}]

    items = changed("Pod", "numazones-exporter", serve)
    async with serving(tmp_path, {"pods/proxy"}, items) as kubeconfig:
        report, _ = await doctor(kubeconfig)
    ((severity, subjects, message),) = of(report, "access")
    assert (severity, subjects) == ("hint", ["get pods/proxy"])
    assert "kubectl auth can-i get pods --subresource=proxy -n numazones-system" in message
    async with serving(tmp_path, set(), items) as kubeconfig:
        report, _ = await doctor(kubeconfig)
    assert of(report, "access") == []


@pytest.mark.parametrize("denied", [set(), {"events"}], ids=["events are seen", "events are denied"])
async def test_reason_for_a_failing_exporter_comes_from_its_events(denied: set[str], tmp_path: Path) -> None:
    def creating(pod: dict[str, Any]) -> None:
        waiting = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}
        pod["status"] |= {"phase": "Pending", "conditions": [], "containerStatuses": [waiting]}

    items = changed("Pod", "numazones-exporter-xy", creating)
    (pod,) = (item for item in items if item["metadata"]["name"] == "numazones-exporter-xy")
    items = [item for item in items if item["kind"] != "NUMAZone" or item["spec"]["nodeName"] != "worker-2"]
    event = {
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "numazones-system"},
        "involvedObject": {"kind": "Pod", "uid": pod["metadata"]["uid"]},
        "reason": "FailedMount",
        "message": "hostPath type check failed: /var/lib/kubelet is not a directory",
        "lastTimestamp": "2026-11-20T10:00:00Z",
    }
    async with serving(tmp_path, denied, [*items, event]) as kubeconfig:
        report, _ = await doctor(kubeconfig)
    ((severity, _, message),) = of(report, "exporters")
    assert severity == "error"
    assert ("/var/lib/kubelet is not a directory" in message) == (not denied)


async def test_a_user_who_may_do_everything_finds_nothing_wrong(tmp_path: Path) -> None:
    async with serving(tmp_path, set()) as kubeconfig:
        report, _ = await doctor(kubeconfig)
    assert report["notChecked"] == {}
    assert [it for it in report["findings"] if it["check"] != "leases"] == []


async def test_commands_read_the_live_cluster_and_name_omissions(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, {"poddisruptionbudgets"}) as kubeconfig:
        code, output, errors = await plugin.streams("top", "--kubeconfig", kubeconfig)
    assert [line.split()[0] for line in output.splitlines()] == [
        "NODE",
        *["worker-1"] * 2,
        *["worker-2"] * 2,
    ]
    assert errors.startswith("warning: PodDisruptionBudget objects were left out: ")
    assert code == 0


COUNTED = """# HELP numazones_extender_sampled_requests_total Filter requests in which …
numazones_extender_sampled_requests_total {sampled}
numazones_extender_repeated_requests_total {repeated}
numazones_extender_unread_answers_total{{verb="filter"}} {unread}
numazones_extender_unread_answers_total{{verb="bind"}} 1.0
numazones_extender_request_duration_seconds_count{{verb="filter"}} 1e+06
"""


@pytest.mark.parametrize("name", ["numazones-scheduler", "numazones-extender"])
async def test_extender_traps_are_found_by_its_metrics(tmp_path: Path, name: str) -> None:
    items = [*healthy(), program(name)]
    bad = COUNTED.format(sampled="3.0", repeated="101.0", unread="4.0")
    async with serving(tmp_path, set(), items, metrics=bad) as kubeconfig:
        report, code = await doctor(kubeconfig)
    subject = f"{program(name)['metadata']['namespace']}/{program(name)['metadata']['name']}"
    assert [(severity, subjects) for severity, subjects, _ in of(report, "traffic")] == [
        ("warning", [subject])
    ] * 3
    messages = " ".join(message for _, _, message in of(report, "traffic"))
    assert "3 times since it started" in messages
    assert "101 requests since it started were for pods that the scheduler keeps retrying" in messages
    assert "5 responses since it started came after the scheduler's timeout" in messages
    assert code == 1


async def test_an_extender_whose_traffic_is_in_order_is_not_mentioned(tmp_path: Path) -> None:
    good = "numazones_extender_sampled_requests_total 0.0\nnumazones_extender_repeated_requests_total 100.0\n"
    items = [*healthy(), program("numazones-extender")]
    async with serving(tmp_path, set(), items, metrics=good) as kubeconfig:
        report, _ = await doctor(kubeconfig)
    assert of(report, "traffic") == []
    assert "traffic" not in report["notChecked"]


async def test_extender_traffic_is_not_checked_without_right_to_its_pod(tmp_path: Path) -> None:
    items = [*healthy(), program("numazones-extender")]
    async with serving(tmp_path, {"metrics"}, items) as kubeconfig:
        report, _ = await doctor(kubeconfig)
    assert "could not be read" in report["notChecked"]["traffic"]
