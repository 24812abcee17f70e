"""Gauges of blocked pods: bounded however many there are, the oldest first."""

from dataclasses import replace

import pytest

from numazones_operator.predictions import gauges
from numazones_operator.predictions.gauges import PredictionGauges
from tests.operator.offline_pipeline import OfflinePipeline

NAME = "numazones_blocked_pod_created_timestamp_seconds"


def shown(found: PredictionGauges) -> dict[str, tuple[float, str, str]]:
    """Pod → when it was made, reason, recommendation."""
    (family,) = [one for one in found.families() if one.name == NAME]
    return {
        sample.labels["pod"]: (sample.value, sample.labels["reason"], sample.labels["recommendation"])
        for sample in family.samples
    }


async def test_only_the_longest_blocked_pods_are_shown_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gauges, "_MAX_PODS", 2)
    setting = OfflinePipeline()
    setting.add_node()
    setting.pipeline.synced = True

    plans = {"uid-old": "plan-1", "uid-middle": ""}
    found = PredictionGauges(setting.pipeline.forecasts, recommendation_for=plans.__getitem__)
    assert shown(found) == {}
    setting.put_pod("fits", cpu=2)
    for name, created in (
        ("new", "2026-01-31T12:00:00Z"),
        ("old", "2026-01-31T10:00:00Z"),
        ("middle", "2026-01-31T11:00:00Z"),
    ):
        setting.put_pod(name, cpu=40)
        known = setting.state.pods.get(f"uid-{name}")
        assert known is not None
        setting.state.pods.put(replace(known, created=created))
    await setting.renew()
    ten = 1769853600.0
    assert shown(found) == {
        "old": (ten, "TopologyAffinityError", "plan-1"),
        "middle": (ten + 3600, "TopologyAffinityError", ""),
    }
