"""Forecasts are shared by pods of one kind, and renewed where nodes have changed."""

from random import Random

import pytest

from numazones.prediction.node_choice import ASKING, NodeChoice
from numazones_operator.options import OperatorOptions
from numazones_operator.prevention.extender import decisions
from numazones_operator.prevention.extender.verdicts import CurrentVerdicts
from numazones_operator.prevention.held_room import HeldRoom
from tests.operator.offline_pipeline import SETTLE, OfflinePipeline
from tests.operator.one_node_pipeline import OneNodePipeline


@pytest.fixture
def setting() -> OneNodePipeline:
    return OneNodePipeline()


async def test_equal_pods_share_a_forecast_and_only_changes_are_yielded(
    setting: OneNodePipeline,
) -> None:
    for name in "abc":
        setting.pod(name)
    names = [pod.name async for pods, _, _ in setting.pipeline.forecasts.renew() for pod in pods]
    assert set(names) == {"a", "b", "c"}
    assert len(setting.pipeline.forecasts._kinds) == 1
    setting.pod("d", cpu=40)
    names = [pod.name async for pods, _, _ in setting.pipeline.forecasts.renew() for pod in pods]
    assert set(names) == {"d"}
    assert setting.pipeline.forecasts.verdicts() == {"Admissible": 3, "Inadmissible": 1, "Unknown": 0}
    assert setting.pipeline.forecasts.blocked_by() == {("Kubelet", "TopologyAffinityError"): 1}


async def test_node_that_fills_changes_the_forecasts_that_depend_on_it(setting: OneNodePipeline) -> None:
    setting.pod("waits", cpu=20)
    await setting.renew()
    for name in "ab":
        setting.pod(name, cpu=20, node="node")
    changes = [
        (pod.name, made.verdict) async for pods, made, _ in setting.pipeline.forecasts.renew() for pod in pods
    ]
    assert ("waits", "Inadmissible") in changes
    assert setting.pipeline.forecasts.backlog == 0


PREFERRED = {
    # Both zones of "even" have 26 of 30 CPUs; "uneven" has 10 in one and 30 in the other, and fewer in all.
    NodeChoice.BEST_FIT: "uneven",
    NodeChoice.SCARCE: "uneven",
    NodeChoice.SHAPES: "uneven",
    NodeChoice.PACK: "uneven",
    NodeChoice.EXACT: "even",
}


def two_nodes(choice: NodeChoice) -> OfflinePipeline:
    offline = OfflinePipeline(
        OperatorOptions(settle=SETTLE, debounce=0.0, candidates=3, placement=choice.value)
    )
    for name, fillers in (("even", (4, 4)), ("uneven", (20,))):
        offline.add_node(name)
        for number, cpu in enumerate(fillers):
            offline.put_pod(f"{name}-{number}", cpu=cpu, nodeName=name)
    return offline


@pytest.mark.parametrize("choice", ASKING)
async def test_predictions_gate_and_extender_prefer_the_same_node(
    choice: NodeChoice,
) -> None:
    offline = two_nodes(choice)
    offline.put_pod("waits", cpu=10)
    await offline.renew()
    made = offline.published["waits"]
    names = tuple(candidate.node for candidate in made.candidates)
    assert names[0] == PREFERRED[choice]
    assert f"best is {names[0]}" in made.sentence
    assert offline.pipeline.forecasts.ranked("uid-waits") == list(names)
    pod = offline.state.pods.get("uid-waits")
    assert pod is not None
    ranking = offline.pipeline.ranking()
    verdicts = await CurrentVerdicts(offline.state, HeldRoom(offline.state)).of(pod, names)
    scores = decisions.scores(ranking.keys(pod, verdicts, offline.state.node))
    assert max(scores, key=scores.__getitem__) == names[0]


async def test_node_is_ranked_anew_though_its_verdict_has_not_changed() -> None:
    """A pod without CPUs of its own changes what is requested, and no zone."""
    offline = two_nodes(NodeChoice.EXACT)
    offline.put_pod("waits", cpu=10)
    await offline.renew()
    assert offline.published["waits"].candidates[0].node == "even"
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "30"}}}
    offline.put_pod("shares", containers=[container], nodeName="even")
    await offline.renew()
    assert offline.published["waits"].candidates[0].node == "uneven"


async def test_deleted_node_is_no_candidate_and_new_node_is_one() -> None:
    offline = two_nodes(NodeChoice.PACK)
    offline.put_pod("waits", cpu=10)
    await offline.renew()
    node = offline.state.nodes.get("uneven")
    assert node is not None
    offline.state.nodes.remove(node)
    await offline.renew()
    assert [one.node for one in offline.published["waits"].candidates] == ["even"]
    offline.put_pod("waits", cpu=10, nodeName="even")
    await offline.renew()
    offline.add_node("new")
    await offline.renew()
    offline.put_pod("later", cpu=10)
    await offline.renew()
    assert [one.node for one in offline.published["later"].candidates] == ["even", "new"]


async def test_incremental_ranking_equals_sorting_all_nodes() -> None:
    offline = OfflinePipeline(OperatorOptions(settle=SETTLE, debounce=0.0, candidates=3))
    random = Random(1)
    offline.put_pod("waits", cpu=10)
    for step in range(60):
        name = f"node-{random.randrange(12)}"
        known = offline.state.nodes.get(name)
        if known is None:
            offline.add_node(name)
        elif random.random() < 0.2:
            offline.state.nodes.remove(known)
        else:
            offline.put_pod(f"pod-{step}", cpu=random.randrange(1, 8), nodeName=name)
        if step == 30:
            offline.put_pod("waits", cpu=10, nodeName="node-0")  # nobody waits for a while
        if step == 40:
            offline.put_pod("later", cpu=10)
        await offline.renew()
        waiting = next(iter(offline.state.pending.values()), None)
        if waiting is not None:
            forecast = offline.pipeline.forecasts.forecast_of(waiting.uid)
            assert forecast is not None
            keys = offline.pipeline.ranking().keys(waiting, forecast.verdicts, offline.state.node)
            expected = sorted(keys, key=lambda name: (keys[name], name))
            assert offline.pipeline.forecasts.ranked(waiting.uid) == expected
            best = [one.node for one in offline.published[waiting.name].candidates]
            assert best == expected[:3]
