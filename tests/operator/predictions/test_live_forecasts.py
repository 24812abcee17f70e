"""Forecasts are shared by pods of one kind, and renewed where nodes have changed."""

import pytest

from tests.operator.one_node_pipeline import OneNodePipeline


@pytest.fixture
def setting() -> OneNodePipeline:
    return OneNodePipeline()


async def test_pods_of_one_kind_share_a_forecast_and_only_changes_are_yielded(
    setting: OneNodePipeline,
) -> None:
    for name in "abc":
        setting.pod(name)
    names = [pod.name async for pod, _, _ in setting.pipeline.forecasts.renew()]
    assert set(names) == {"a", "b", "c"}
    assert len(setting.pipeline.forecasts._kinds) == 1
    setting.pod("d", cpu=40)
    names = [pod.name async for pod, _, _ in setting.pipeline.forecasts.renew()]
    assert set(names) == {"d"}
    assert setting.pipeline.forecasts.verdicts() == {"Admissible": 3, "Inadmissible": 1, "Unknown": 0}
    assert setting.pipeline.forecasts.blocked_by() == {("Kubelet", "TopologyAffinityError"): 1}


async def test_a_node_that_fills_changes_the_forecasts_that_depend_on_it(setting: OneNodePipeline) -> None:
    setting.pod("waits", cpu=20)
    await setting.renew()
    for name in "ab":
        setting.pod(name, cpu=20, node="node")
    changes = [(pod.name, made.verdict) async for pod, made, _ in setting.pipeline.forecasts.renew()]
    assert ("waits", "Inadmissible") in changes
    assert setting.pipeline.forecasts.backlog == 0
