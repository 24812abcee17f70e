"""This node's pods from recorded lists."""

from pathlib import Path
from typing import Any

import pytest

from numazones_exporter.observation import NodePod
from numazones_exporter.sources.node_pods import FilePodsReader, pods_of
from numazones_node.problems import SourceError


def pod(name: str, *, node: str = "n", phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", **metadata},
        "spec": {"nodeName": node},
        "status": {"phase": phase, "qosClass": "Guaranteed"},
    }


def test_pods_of_other_nodes_are_left_out() -> None:
    items = [pod("b"), pod("x", node="other"), {"metadata": {"name": "u"}, "spec": {}}, pod("a")]
    assert [item.name for item in pods_of(items, "n")] == ["a", "b"]


@pytest.mark.parametrize(
    ("phase", "active"),
    [("Pending", True), ("Running", True), ("Unknown", True), ("Succeeded", False), ("Failed", False)],
)
def test_pods_that_have_ended_are_not_active(phase: str, *, active: bool) -> None:
    (item,) = pods_of([pod("a", phase=phase)], "n")
    assert item.active is active


def test_a_mirror_pod_has_the_uid_of_its_static_pod() -> None:
    annotations = {"kubernetes.io/config.mirror": "hash", "kubernetes.io/config.hash": "static-uid"}
    (item,) = pods_of([pod("a", annotations=annotations)], "n")
    assert item == NodePod("ns", "a", "static-uid", "Running", "Guaranteed", static=True)


async def test_json_and_yaml_lists_are_read(tmp_path: Path) -> None:
    (tmp_path / "pods").write_text('kind: PodList\nitems:\n- metadata: {name: a}\n  spec: {nodeName: "n"}\n')
    assert [item.name for item in await FilePodsReader(tmp_path / "pods", "n").read()] == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"kind": "Pod"}', "is not a PodList: it has no 'items' list"),
        ('{"items": [3]}', "is not a PodList: AttributeError"),
        ('{"items": [{"spec": {"nodeName": "n"}}]}', "is not a PodList: KeyError('metadata')"),
        (
            '{"items": [{"metadata": {"name": 5}, "spec": {"nodeName": "n"}}]}',
            "namespace, name, uid, phase and QoS class must be strings, not ('default', 5, '', '', '')",
        ),
        (
            '{"items": [{"metadata": {"name": "a", "uid": ["u"]}, "spec": {"nodeName": "n"}}]}',
            "must be strings",
        ),
        (r'{"items": [], "name": "\ud800"}', "is not valid JSON: 'utf-8' codec can't encode"),
        ('items: []\nname: "\\ud800"', "is neither JSON nor YAML"),
    ],
)
async def test_what_is_no_list_of_pods_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "pods").write_text(text)
    with pytest.raises(SourceError) as caught:
        await FilePodsReader(tmp_path / "pods", "n").read()
    assert message in str(caught.value)
