"""The same runs under several settings: pure, divisible, comparable."""

import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numazones.apimachinery.answer import document as written
from numazones.cluster.cluster import ClusterNode
from numazones.kubelet.config import InvalidConfiguration
from numazones.whatif.experiment import Estimate, Experiment, Variant, compare, make_runs, shape_of
from numazones.whatif.machine_type import node_template
from numazones.whatif.node_template import start_nodes
from numazones.whatif.settings import parse
from numazones.whatif.trial import TrialResult
from numazones.whatif.workload import PodGroup, Recipe
from numazones_koordinator.placement import KoordinatorPlacement
from tests.laws import examples
from tests.models.koordinator import building as koordinator

MACHINE = "sockets=2,numa=2,cores=16,threads=2,memory=64Gi"


def experiment(*variants: str, seed: int = 1, churn: int = 5, recipe: str = "6xcpu=2-9") -> Experiment:
    base = node_template(MACHINE, name="m0")
    chosen = [parse([text] if text else []) for text in ("", *variants)]
    return Experiment(
        tuple(Variant(tuple(one.items()), (base.with_settings(one),)) for one in chosen),
        Recipe((PodGroup.parse(recipe),), churn=churn),
        seed,
    )


TWO = experiment("topologyManagerPolicy=restricted")


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.integers(0, 9), max_size=6))
def test_runs_are_the_same_however_they_are_divided(numbers: list[int]) -> None:
    whole = make_runs(TWO, range(10))
    assert make_runs(TWO, numbers) == [whole[number] for number in numbers]


def test_an_experiment_can_be_sent_to_another_process() -> None:
    state = koordinator.node(2)
    other = ClusterNode("m1", allocatable={"cpu": 16_000}).with_placement(KoordinatorPlacement(state))
    both = Experiment((Variant((), (*TWO.variants[0].nodes, other)),), TWO.workload, 1)
    assert make_runs(pickle.loads(pickle.dumps(both)), [3]) == make_runs(both, [3])  # noqa: S301 - our own


def test_another_seed_is_another_experiment() -> None:
    assert make_runs(experiment(seed=2), range(3)) != make_runs(experiment(seed=1), range(3))


def test_kubelet_that_cannot_start_is_reported_with_its_settings() -> None:
    with pytest.raises(InvalidConfiguration) as error:
        experiment("topologyManagerScope=node").check()
    assert str(error.value).startswith("with topologyManagerScope=node, the kubelet of m0 would not start: ")


def test_variant_shows_the_settings_of_nodes_with_a_kubelet() -> None:
    template = node_template(MACHINE, name="m0").with_settings(parse(["topologyManagerPolicy=restricted"]))
    (started,) = start_nodes([node_template(MACHINE, name="m1")])
    variant = Variant((), (template, started, ClusterNode("m2")))
    assert [(name, found.topology_manager_policy) for name, found in variant.configurations] == [
        ("m0", "restricted"),
        ("m1", "single-numa-node"),
    ]


def outcome(admitted: int, *, arrived: int = 10, largest: int = 4) -> TrialResult:
    rejected = (("TopologyAffinityError", arrived - admitted),) if admitted < arrived else ()
    return TrialResult(arrived, admitted, rejected, 0, 0, ((0, 3), (1, 1)), 2, 8, None, largest)


def test_an_estimate_is_mean_and_normal_interval() -> None:
    assert Estimate.of([3, 3, 3]) == Estimate(3, 3, 3)
    assert Estimate.of([5]) == Estimate(5, 5, 5)
    # 1, 2, 3, 4: standard deviation 1.291, standard error 0.6455
    assert Estimate.of([1, 2, 3, 4]) == Estimate(2.5, 1.2348, 3.7652)


def test_differences_are_those_within_the_same_run() -> None:
    runs = [(outcome(4), outcome(6)), (outcome(9), outcome(10)), (outcome(2), outcome(1))]
    old, new = compare(TWO, runs, asked=5).variants
    assert old.measures["admitted"].mean == 5
    assert not old.differences
    found = new.differences["admitted"]
    assert (found.mean, found.more, found.less) == (0.6667, 2, 1)
    assert new.measures["rejected TopologyAffinityError"].mean == 4.3333
    assert "stranded CPUs" not in new.measures


def test_a_comparison_is_json_that_names_its_seed() -> None:
    document = written(compare(TWO, [(outcome(4), outcome(6))], asked=5))
    assert json.loads(json.dumps(document)) == document
    assert (document["seed"], document["runs"], document["asked"], document["shape"]) == (1, 1, 5, None)
    assert document["variants"][1]["settings"] == {"topologyManagerPolicy": "restricted"}
    assert document["variants"][1]["differences"]["admitted"] == {
        "mean": 2.0,
        "low": 2.0,
        "high": 2.0,
        "more": 1,
        "less": 0,
    }


@pytest.mark.parametrize(
    ("groups", "shape"),
    [
        (("cpu=2,memory=1Gi", "cpu=9,memory=2Gi"), "cpu=9,memory=2Gi"),
        (("cpu=2", "cpu=20"), "cpu=2,memory=1Mi"),  # none of 20 fits one NUMA node of 16
        (("3xcpu=1-7",), "cpu=7,memory=1Mi"),
        (("cpu=500m",), None),
    ],
)
def test_largest_fitting_pod_measures_free_cpus(groups: tuple[str, ...], shape: str | None) -> None:
    recipe = Recipe(tuple(map(PodGroup.parse, groups)))
    found = shape_of(recipe.examples(), [node_template(MACHINE, name="m0")])
    assert (None if found is None else str(found)) == shape
