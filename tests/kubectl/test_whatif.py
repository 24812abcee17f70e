"""``whatif`` and ``sweep``: what gets into the experiment, and that who runs it makes no difference."""

import csv
import json
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import Result

from kubectl_numazones.experiments import execution
from kubectl_numazones.experiments import experiment as experiment_module
from kubectl_numazones.experiments.execution import CannotExecute, Chunk, OneCore
from kubectl_numazones.reading.cluster import NotThere
from numazones.errors import NumazonesError
from numazones.kubelet.config import InvalidConfiguration
from numazones.whatif.experiment import Experiment, Run, Variant, make_runs
from numazones.whatif.machine_type import node_template
from numazones.whatif.workload import PodGroup, Recipe
from tests.kubectl.small_cluster import node_body, pod_body, written
from tests.places import DATA

Invoke = Callable[..., Result]

MACHINE = ("--machine", "sockets=2,numa=2,cores=8,threads=2,memory=32Gi")
PODS = ("--pods", "8xcpu=1-6,memory=1Gi", "--churn", "10")
RECORDING = DATA / "recordings/one-node"
POLICIES = ("--vary", "topologyManagerPolicy=restricted", "--vary", "topologyManagerPolicy=single-numa-node")


def document(result: Result) -> dict[str, object]:
    assert result.exception is None, result.exception
    found: dict[str, object] = json.loads(result.stdout)
    return found


def measures(result: Result, variant: int = 0) -> dict[str, float]:
    variants = document(result)["variants"]
    assert isinstance(variants, list)
    return {name: value["mean"] for name, value in variants[variant]["measures"].items()}


def test_pods_of_a_dump_arrive_where_they_are(run: Invoke, dump: Path) -> None:
    # worker-1 has 7 and 8 CPUs for pods of 3 and 6, and for the one of 5 that waits: worker-2 is cordoned.
    # They fit together only if the one of 6 comes first, which is so in 2 of 6 orders.
    result = run("whatif", "--set", "topologyManagerPolicy=restricted", "-f", dump, "-o", "json")
    variants = document(result)["variants"]
    assert isinstance(variants, list)
    admitted = variants[0]["measures"]["admitted"]
    assert admitted["low"] < 2 + 2 / 6 < admitted["high"]
    assert document(result)["shape"] == "cpu=6,memory=1Gi"


def test_nodes_are_selected_by_their_labels(run: Invoke, dump: Path) -> None:
    chosen = ("--nodes", "kubernetes.io/hostname=worker-2", "--pods", "2xcpu=5")
    result = run("whatif", "--set", "topologyManagerPolicy=restricted", "-f", dump, *chosen, "-o", "json")
    assert measures(result)["rejected Unschedulable"] == 2  # it is cordoned
    nobody = run("whatif", "--set", "topologyManagerScope=pod", "-f", dump, "--nodes", "gpu").exception
    assert isinstance(nobody, NotThere)


def test_pods_may_be_rescheduled_but_not_those_of_the_node(run: Invoke, tmp_path: Path, dump: Path) -> None:
    items = [item for item in json.loads(dump.read_text())["items"] if item["metadata"]["name"] != "waiting"]
    for item in items:
        if item["kind"] == "Node":
            item["spec"] = {"unschedulable": item["metadata"]["name"] == "worker-1"}
        if item["metadata"]["name"] == "one":
            item["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "d", "uid": "d"}]
    turned = written(tmp_path / "turned.json", items)
    stay = ("whatif", "--set", "topologyManagerScope=pod", "-f", turned, "--runs", "5", "-o", "json")
    # 3 and 6 CPUs beside each other on worker-1; or the DaemonSet's 3 there and the 6 on worker-2.
    assert measures(run(*stay))["spread over NUMA nodes"] == 6 - 3
    assert measures(run(*stay, "--reschedule"))["spread over NUMA nodes"] == 6 + 3


def test_a_recording_is_replayed_once_under_both_settings(run: Invoke) -> None:
    result = run("whatif", "--set", "topologyManagerPolicy=single-numa-node", "-f", RECORDING, "-o", "json")
    lines = [json.loads(line) for line in (RECORDING / "replay.jsonl").read_text().splitlines()]
    arrivals = [line["outcome"] for line in lines if line["op"] == "create" and line.get("node")]
    rejected = [one for one in arrivals if (one.get("message") or "").startswith("Pod was rejected")]
    old = measures(result)
    assert (old["admitted"], old["rejected"]) == (len(arrivals) - len(rejected), len(rejected))
    assert document(result)["runs"] == 1


def test_a_gate_that_an_option_needs_is_named(run: Invoke) -> None:
    option = "topologyManagerPolicyOptions.prefer-most-allocated-numa-node=true"
    shown = run("whatif", *MACHINE, *PODS, "--runs", "2", "--set", option)
    assert f"new: {option} featureGates.TopologyManagerPolicyAlphaOptions=true\n" in shown.output


def test_what_does_not_vary_is_run_once(run: Invoke) -> None:
    shown = run("whatif", *MACHINE, "--pods", "3xcpu=4", "--set", "topologyManagerScope=pod")
    assert "3xcpu=4 on 1 node; 1 run with seed 1\n" in shown.output
    assert "INTERVAL" not in shown.output


def test_nodes_of_unknown_state_are_left_out_and_named(run: Invoke, tmp_path: Path, dump: Path) -> None:
    items = [
        *json.loads(dump.read_text())["items"],
        node_body("dark"),
        pod_body("there", 2, spec={"nodeName": "dark"}),
    ]
    path = written(tmp_path / "with-dark.json", items)
    shown = run("whatif", "--set", "topologyManagerScope=pod", "-f", path, "--runs", "2")
    assert "warning: left out: node dark: no NUMAZones have been published" in shown.stderr
    assert shown.stdout.startswith("3 pods on 2 nodes; 2 runs")


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (("--set", "maxPods=3", *MACHINE, *PODS), NumazonesError, "maxPods is not a setting that affects"),
        (
            ("--set", "topologyManagerScope=node", *MACHINE, *PODS),
            InvalidConfiguration,
            "with topologyManagerScope=node, the kubelet of machine-1 would not start: invalid configuration",
        ),
        (
            ("--given", "cpuManagerPolicy=x", "--set", "cpuManagerPolicy=none", *MACHINE, *PODS),
            InvalidConfiguration,
            "x",
        ),
        (
            ("--set", "topologyManagerScope=pod", *MACHINE),
            Exception,
            "specify the pods to place on the machine: --pods",
        ),
        (
            ("--set", "topologyManagerScope=pod", "--machine", "cores=2", *PODS),
            NumazonesError,
            "memory is missing",
        ),
        (
            ("--set", "topologyManagerScope=pod", *MACHINE, "--pods", "cpu"),
            NumazonesError,
            "is not a group of pods",
        ),
        (
            ("--set", "topologyManagerScope=pod", *MACHINE, *PODS, "-f", "x"),
            Exception,
            "do not use it with -f or --nodes",
        ),
        (
            ("--set", "topologyManagerScope=pod", *MACHINE, *PODS, "--usage"),
            Exception,
            "--machine has no pods whose usage was measured",
        ),
        (
            ("--set", "topologyManagerScope=pod", *MACHINE, *PODS, "--shape", "x"),
            Exception,
            "invalid shape 'x'",
        ),
        (
            ("--set", "topologyManagerScope=pod", "-f", RECORDING, *PODS),
            Exception,
            "a recording has its own pods",
        ),
        (
            ("--set", "topologyManagerScope=pod", *MACHINE, *PODS, "--nodes", "a"),
            Exception,
            "do not use it with -f or --nodes",
        ),
        (
            ("--set", "topologyManagerScope=pod", *MACHINE, *PODS, "--scheduler", "tcp://127.0.0.1:1"),
            CannotExecute,
            "no Dask scheduler responded at tcp://127.0.0.1:1",
        ),
    ],
)
def test_bad_input_is_named(
    run: Invoke,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[object, ...],
    kind: type[Exception],
    said: str,
) -> None:
    monkeypatch.setattr(execution, "_SECONDS_TO_CONNECT", 0.2)
    error = run("whatif", *arguments).exception
    assert isinstance(error, kind)
    assert said in str(error)


def test_a_grid_has_every_combination(run: Invoke) -> None:
    grid = (*POLICIES, "--vary", "topologyManagerScope=container", "--vary", "topologyManagerScope=pod")
    shown = run("sweep", *grid, *MACHINE, *PODS, "--runs", "3")
    rows = [line.split()[:2] for line in shown.output.splitlines()[3:]]
    assert rows == [
        ["restricted", "container"],
        ["restricted", "pod"],
        ["single-numa-node", "container"],
        ["single-numa-node", "pod"],
    ]


@pytest.mark.parametrize(
    ("command", "whole"),
    [
        (("sweep", *POLICIES), "single-numa-node   "),
        (("whatif", "--set", "topologyManagerScope=pod"), "largest pod that still fits (CPUs)   "),
    ],
)
def test_a_narrow_terminal_gets_fewer_columns(
    run: Invoke, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], whole: str
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "96")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", run(*command, *MACHINE, *PODS, "--runs", "3").stdout)
    assert whole in shown
    assert "…" not in shown
    assert max(map(len, shown.partition("\n\n")[2].splitlines())) <= 96


def test_a_sweep_writes_table_and_plot(run: Invoke, tmp_path: Path) -> None:
    table, plot = tmp_path / "t.csv", tmp_path / "p.svg"
    files = ("--table", table, "--plot", plot, "--title", "two policies")
    result = run("sweep", *POLICIES, *MACHINE, *PODS, "--runs", "4", *files, "-o", "json")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {row["topologyManagerPolicy"] for row in rows} == {"restricted", "single-numa-node"}
    assert {(row["seed"], row["runs"]) for row in rows} == {("1", "4")}
    admitted = next(row for row in rows if row["measure"] == "admitted")
    assert float(admitted["mean"]) == measures(result)["admitted"]
    texts = " ".join(ET.fromstring(plot.read_text()).itertext())  # noqa: S314 - our own
    assert "two policies" in texts
    assert "topologyManagerPolicy=single-numa-node" in texts
    assert f"{measures(result)['admitted']:.2f}" in texts
    before = plot.read_bytes()
    run("sweep", *POLICIES, *MACHINE, *PODS, "--runs", "4", *files)
    assert plot.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--table", "t.xls"), "--table t.xls: name a .csv or .json file"),
        (("--plot", "p.gif"), "--plot p.gif: name a file that ends in .svg, .png, .pdf"),
        (
            ("--plot", "p.svg", "--measure", "speed"),
            "unknown measure 'speed'; use one of admitted, rejected",
        ),
        (("--table", "no/such/t.csv"), "no/such/t.csv: No such file or directory"),
    ],
)
def test_what_cannot_be_written_is_named(
    run: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    error = run("sweep", *POLICIES, *MACHINE, *PODS, "--runs", "2", *arguments).exception
    assert said in str(error)


SWEEP = ("sweep", *POLICIES, *MACHINE, *PODS, "--runs", "33", "-o", "json")


@pytest.mark.slow
def test_whatever_runs_it_the_bytes_are_the_same(run: Invoke) -> None:
    distributed = pytest.importorskip("distributed")
    one = run(*SWEEP).stdout_bytes
    assert run(*SWEEP, "--workers", "2").stdout_bytes == one
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        assert run(*SWEEP, "--scheduler", cluster.scheduler_address).stdout_bytes == one


def experiment() -> Experiment:
    node = node_template(MACHINE[1], name="m0")
    return Experiment((Variant((), (node,)),), Recipe((PodGroup.parse("4xcpu=1-9"),)), 1)


class Interrupted(OneCore):
    """Ctrl-C comes with the second chunk."""

    def run(self, experiment: Experiment, chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, list[Run]]]:
        for number, done in enumerate(super().run(experiment, chunks)):
            if number == 1:
                signal.raise_signal(signal.SIGINT)
            yield done


def test_an_interrupt_keeps_what_is_done() -> None:
    done = execution.execute(experiment(), range(16), Interrupted())
    assert done == dict(enumerate(make_runs(experiment(), range(2))))
    with pytest.raises(KeyboardInterrupt):  # as before
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_while_workers_start_is_not_lost() -> None:
    started = []

    def start() -> None:
        with execution._workers_ignore_interrupts():
            signal.raise_signal(signal.SIGINT)
            started.append("all")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert started == ["all"]


def test_an_interrupted_sweep_tells_its_figures(run: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment_module, "OneCore", Interrupted)
    interrupted = run(*SWEEP)
    made = len(execution.execute(experiment(), range(33), Interrupted()))
    assert (
        f"interrupted: {made} of 33 runs have finished; the figures cover only these\n" in interrupted.stderr
    )
    monkeypatch.undo()
    whole = json.loads(run(*SWEEP, "--runs", str(made)).stdout)
    assert json.loads(interrupted.stdout) == {**whole, "asked": 33}


SMALL = ("--machine", "sockets=2,numa=2,cores=8,threads=2,memory=32Gi")


def test_size_compares_policies_and_reserved_cpus(run: Invoke) -> None:
    shown = run("size", "4xcpu=6,memory=1Gi", *SMALL, "--reserve", "4")
    assert shown.return_value == 0
    assert shown.output.startswith(
        "4 pods on 2 machines (the minimum), with "
        "topologyManagerPolicy=single-numa-node reservedSystemCPUs=0,4,8,12\n"
    )
    rows = [line.split() for line in shown.output.splitlines()[3:]]
    assert [row[:4] for row in rows[:2]] == [
        ["single-numa-node", "0-1,8-9", "4", "4"],
        ["single-numa-node", "0,4,8,12", "2", "2"],
    ]


def test_size_takes_the_machine_of_a_node(run: Invoke, dump: Path) -> None:
    named = run("size", "2xcpu=7", "--node", "worker-1", "-f", dump, "-o", "json")
    assert document(named)["best"] == {
        "settings": {"topologyManagerPolicy": "single-numa-node", "reservedSystemCPUs": "0"},
        "machines": 1,
        "atLeast": 1,
        "cpusLeft": 1,
        "strandedCPUs": 1,
        "podsAcrossNUMANodes": 0,
        "misfit": "",
    }
    recorded = run("size", "2xcpu=4", "--node", "rig-b", "-f", RECORDING)
    assert recorded.output.startswith(
        "2 pods on 1 machine (the minimum), with topologyManagerPolicy=single-numa"
    )


def test_size_says_what_fits_nowhere(run: Invoke) -> None:
    shown = run("size", "1xcpu=17", *SMALL)
    assert shown.return_value == 1
    assert shown.output.startswith("this pod does not fit on this machine type, however many you have")
    assert "1xcpu=17: Insufficient cpu" in shown.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("1xcpu=1",), "either --machine TYPE or --node NODE"),
        (("1xcpu=1", *SMALL, "--node", "x"), "either --machine TYPE or --node NODE"),
        (("2xcpu=1-4", *SMALL), "2xcpu=1-4 is a range"),
        (("x", *SMALL), "is not a group of pods"),
        (
            ("1xcpu=1", "--node", "nowhere", "-f", RECORDING),
            "node nowhere is not in the recording, which has rig-b",
        ),
        (("1xcpu=1", *SMALL, "--reserve", "16"), "--reserve 16: the machine has 16 CPUs"),
    ],
)
def test_size_names_bad_input(run: Invoke, arguments: tuple[object, ...], said: str) -> None:
    assert said in str(run("size", *arguments).exception)


LARGE = ("--machines", "3", "--pods", "12xcpu=1-7,memory=1Gi", "--churn", "20", "--away", "3", "--runs", "5")


def test_a_scheduler_that_asks_first_leaves_nothing_to_reject(run: Invoke) -> None:
    result = run("whatif", "--set", "placement=pack", *MACHINE, *LARGE, "-o", "json")
    old, new = measures(result, 0), measures(result, 1)
    assert old["rejected TopologyAffinityError"] > 0
    assert (new["rejected TopologyAffinityError"], new["rejected"]) == (0, new["rejected Unschedulable"])
    assert new["admitted"] > old["admitted"]


def test_a_placement_can_be_given_on_both_sides(run: Invoke) -> None:
    given = ("--given", "placement=pack", "--given", "topologyManagerPolicy=restricted")
    scope = ("--set", "topologyManagerScope=pod")
    both = run("whatif", *scope, *given, *MACHINE, *LARGE, "-o", "json")
    alone = run("whatif", "--set", "placement=pack", *given[2:], *MACHINE, *LARGE, "-o", "json")
    given_figures, set_figures = measures(both, 0), measures(alone, 1)
    assert given_figures == {name: set_figures[name] for name in given_figures}
    assert given_figures["admitted"] != measures(alone, 0)["admitted"]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        # Those of the policy, then those of the pods in the dump: 6, 5 and 3 CPUs.
        ((), ["cpu=12", "cpu=6,memory=1Gi", "cpu=5,memory=1Gi", "cpu=3,memory=1Gi"]),
        (("--pods", "2xcpu=2,memory=1Gi"), ["cpu=12", "cpu=2,memory=1Gi"]),
        (("--shape", "cpu=4"), ["cpu=4"]),
    ],
    ids=["pods of the dump", "pods that are given", "a shape that is given"],
)
def test_placement_by_shapes_keeps_room_for_named_shapes(
    run: Invoke,
    dump: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: Sequence[str],
    kept: list[str],
) -> None:
    policy = {
        "apiVersion": "numazones.io/v1alpha1",
        "kind": "RebalancePolicy",
        "metadata": {"name": "room"},
        "spec": {"goals": {"shapes": [{"name": "large", "resources": {"cpu": "12"}}]}},
    }
    unreadable = {**policy, "metadata": {"name": "bad"}, "spec": {"goals": {"shapes": "none"}}}
    items = [*json.loads(dump.read_text())["items"], policy, unreadable]
    seen: list[Experiment] = []

    def noted(experiment: Experiment, numbers: Sequence[int]) -> list[Run]:
        seen.append(experiment)
        return make_runs(experiment, numbers)

    monkeypatch.setattr(execution, "make_runs", noted)
    with_policy = written(tmp_path / "with-policy.json", items)
    result = run("whatif", "--set", "placement=shapes", "-f", with_policy, "--runs", "2", *options)
    assert result.exception is None, result.exception
    assert [str(shape) for shape in seen[0].shapes] == kept


def test_placements_are_swept(run: Invoke) -> None:
    varied = [part for name in ("default", "exact", "pack") for part in ("--vary", f"placement={name}")]
    result = run("sweep", *varied, *MACHINE, *LARGE)
    assert result.exception is None, result.exception
    assert [line.split()[0] for line in result.stdout.splitlines()[2:]] == [
        "PLACEMENT",
        "default",
        "exact",
        "pack",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("whatif", "--set", "placement=best", *MACHINE, *PODS),
            "use one of default, nrt, exact, pack, best-fit, scarce, shapes",
        ),
        (
            ("sweep", "--vary", "placement=best", *MACHINE, *PODS),
            "use one of default, nrt, exact, pack, best-fit, scarce, shapes",
        ),
    ],
)
def test_a_placement_that_makes_no_sense_is_refused(
    run: Invoke, arguments: tuple[str, ...], message: str
) -> None:
    assert message in str(run(*arguments).exception)
