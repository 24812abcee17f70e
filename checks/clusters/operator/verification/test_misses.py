"""Wrong predictions that nothing explains are kept, some of them, and can be replayed."""

import base64
import logging
from pathlib import Path

import pytest

from checks.clusters.operator.closed_loop import OPTIONS, closed_loop
from checks.clusters.operator.wrong_predictions import WrongPredictions, config_map, kept_misses
from numazones.whatif import wrong_prediction
from tests.operator.offline_pipeline import RUNNING
from tests.waiting import eventually

NAMESPACE = OPTIONS.namespace


REJECTED = {"phase": "Failed", "reason": "TopologyAffinityError", "message": "Pod was rejected: no room"}


async def test_wrong_prediction_is_kept_with_everything_for_a_replay(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await config_map(loop)
        erring = WrongPredictions(loop)
        writing = loop.tasks.create_task(erring.misses.run())
        erring.err("late", **REJECTED)
        ((key, data),) = (await eventually(lambda: kept_misses(loop), what="a miss is kept")).items()
        writing.cancel()
    assert key == "1970-01-01T001711Z-default.late.json.gz"
    found = wrong_prediction.read(base64.b64decode(data))
    assert (found.pod.pod.name, found.node.name) == ("late", "node")
    assert (found.predicted.reason, found.actual) == (
        "Admitted",
        wrong_prediction.Answer("TopologyAffinityError", "no room"),
    )
    assert wrong_prediction.replay(found) == found.predicted


async def test_what_was_right_is_not_kept(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await config_map(loop)
        erring = WrongPredictions(loop)
        loop.tasks.create_task(erring.misses.run())
        erring.err("wrong", phase="Failed", reason="TopologyAffinityError")
        erring.err("right", **RUNNING)
        assert ["default.wrong" in key for key in await eventually(lambda: kept_misses(loop))] == [True]


@pytest.mark.parametrize("limit", ["_MOST", "_MAX_BYTES"])
async def test_latest_misses_are_kept_up_to_number_and_size(
    tmp_path: Path, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with closed_loop(tmp_path) as loop:
        await config_map(loop)
        erring = WrongPredictions(loop)
        loop.tasks.create_task(erring.misses.run())
        erring.err("p0", **REJECTED)
        ((_, data),) = (await eventually(lambda: kept_misses(loop))).items()
        three = 3 if limit == "_MOST" else 3 * len(data) + 40
        monkeypatch.setattr(f"numazones_operator.verification.misses.{limit}", three)
        for number in range(1, 6):
            erring.err(f"p{number}", **REJECTED)

        async def last() -> list[str]:
            names = sorted(key.split(".")[1] for key in await kept_misses(loop))
            return names if "p5" in names else []

        assert await eventually(last, what="the last is kept") == ["p3", "p4", "p5"]


async def test_without_its_config_map_the_operator_says_what_to_apply(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with closed_loop(tmp_path) as loop:
        erring = WrongPredictions(loop)
        loop.tasks.create_task(erring.misses.run())
        with caplog.at_level(logging.WARNING, "numazones_operator.verification.misses"):
            erring.err("late", **REJECTED)
            await eventually(lambda: "was not saved for replay" in caplog.text)
    assert "apply manifests/operator, which includes this ConfigMap and the permission" in caplog.text
