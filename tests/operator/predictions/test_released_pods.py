"""Pods that the gate has just released: not asked about anew before they should have a node."""

from typing import Any

import pytest

from numazones.cluster.admission_gate import GATE, RELEASED
from numazones.cluster.cluster import ClusterPod
from numazones_operator.mirror.waiting_pods import RELEASED_SECONDS
from numazones_operator.predictions.live_forecasts import LiveForecasts
from tests.operator.offline_pipeline import OfflinePipeline
from tests.operator.pods import pod_body

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ONLY_B = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]


def put(setting: OfflinePipeline, *, released: bool, node: str = "") -> None:
    spec: dict[str, Any] = {"schedulingGates": [{"name": GATE}]}
    if released:
        spec = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": ONLY_B}}}}
    body = pod_body("p", cpu=4, nodeName=node, **spec)
    marked = {RELEASED: "2026-01-31T08:00:00Z"} if released else {}
    body["metadata"] |= {"uid": "uid-p", "annotations": marked}
    setting.state.pods.put(ClusterPod.from_api(body))


@pytest.fixture
async def setting(monkeypatch: pytest.MonkeyPatch) -> OfflinePipeline:
    """Two nodes, and a pod at the gate; what is asked about all nodes is counted."""
    found = OfflinePipeline()
    for name in ("a", "b"):
        found.add_node(name)
    put(found, released=False)
    await found.renew()
    asked.clear()
    ask_all = LiveForecasts._ask_all

    async def counted(forecasts: LiveForecasts, forecast: Any) -> bool:
        asked.append(forecast)
        return await ask_all(forecasts, forecast)

    monkeypatch.setattr(LiveForecasts, "_ask_all", counted)
    return found


asked: list[Any] = []
"""Forecasts for which all nodes were asked."""


async def test_released_pod_bound_in_time_is_not_predicted(setting: OfflinePipeline) -> None:
    put(setting, released=True)
    await setting.renew()
    put(setting, released=True, node="b")
    setting.let_pass(RELEASED_SECONDS)
    await setting.renew()
    assert asked == []
    assert setting.pipeline.forecasts.prediction_of("uid-p") is None


async def test_unbound_released_pod_is_soon_predicted_for_its_nodes(
    setting: OfflinePipeline,
) -> None:
    put(setting, released=True)
    await setting.renew()
    assert setting.published["p"].nodes.evaluated == 2
    setting.let_pass(RELEASED_SECONDS)
    assert setting.state.changed.is_set()
    await setting.renew()
    assert len(asked) == 1
    assert (setting.published["p"].nodes.evaluated, setting.published["p"].nodes.excluded) == (1, 1)
    # And then once only.
    setting.let_pass(RELEASED_SECONDS)
    await setting.renew()
    assert len(asked) == 1


async def test_pod_released_before_first_sight_is_predicted_immediately(
    setting: OfflinePipeline,
) -> None:
    found = ClusterPod.from_api(pod_body("p") | {"metadata": {"name": "p", "uid": "uid-p"}})
    setting.state.pods.remove(found)
    put(setting, released=True)
    await setting.renew()
    assert (setting.published["p"].nodes.evaluated, setting.published["p"].nodes.excluded) == (1, 1)
