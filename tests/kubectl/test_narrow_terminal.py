"""Every command on a terminal of 80 columns, over recorded and random clusters whose names are long."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checks.programs.kubectl.test_every_command import DUMP, SETTING
from numazones.cluster.dump import Object
from tests.follow_advice import objects_of
from tests.kubectl.test_advice_followed import REQUESTS, pod
from tests.laws import examples
from tests.places import DATA
from tests.random_clusters import SimulatedNode, clusters, installed

Run = Callable[..., Result]
RECORDINGS = DATA
COLUMNS = 80
LONG = "ip-10-0-131-42.eu-central-1.compute.internal"
LONG_POD = "the-team-with-the-long-name/inference-of-the-large-model-7d4b9c5f6d-x2x07"
_SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")

ASKED: dict[str, tuple[str, ...]] = {
    "why": ("why", "{stuck}"),
    "why, wide": ("why", "{stuck}", "-o", "wide"),
    "why, a node": ("why", "{stuck}", "--node", "{node}"),
    "why, all": ("why", "-A"),
    "why, all, wide": ("why", "-A", "-o", "wide"),
    "fit": ("fit", "cpu=3,memory=1Gi", "--replicas", "200"),
    "who": ("who", "{node}"),
    "top": ("top",),
    "tree": ("tree", "{node}"),
    "plan": ("plan", "--effort", "500"),
    "whatif": ("whatif", "--set", SETTING, "--runs", "2"),
    "sweep": ("sweep", "--vary", SETTING, "--runs", "2"),
    "size": ("size", "4xcpu=3,memory=1Gi", "--node", "{node}"),
    "doctor": ("doctor",),
}
"""What is asked of every cluster."""


@pytest.fixture
def narrow(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command as on a terminal of 80 columns; return what it shows there."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(COLUMNS))

    def shown(*arguments: object) -> str:
        done = run(*arguments)
        assert done.exception is None, done.exception
        return _SEQUENCE.sub("", done.stdout)

    return shown


def check(text: str) -> None:
    """Lines are narrow enough, and nothing was cut; commands to be copied may be longer."""
    for line in text.splitlines():
        assert len(line.rstrip()) <= COLUMNS or len(max(line.split(), key=len)) > COLUMNS - 4, line
    assert "…" not in text.replace("cpu=…", "")


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("long", [False, True], ids=["guide", "guide with long names"])
def test_tables_of_the_guides_cluster_fit(
    name: str, narrow: Callable[..., str], tmp_path: Path, *, long: bool
) -> None:
    text, stuck, node = DUMP.read_text(), "team/trainer-2", "worker-1"
    if long:
        stuck = LONG_POD
        text = text.replace("worker-", f"{LONG}-").replace("trainer-2", stuck.partition("/")[2])
        text, node = text.replace('"team"', f'"{stuck.partition("/")[0]}"'), f"{LONG}-1"
    dump = tmp_path / "dump.json"
    dump.write_text(text)
    shown = narrow(*(part.format(stuck=stuck, node=node) for part in ASKED[name]), "-f", dump)
    check(shown)
    if name == "top":
        assert [line.split()[0] for line in shown.splitlines()[1:]].count(node) == 2  # whole, on one line


@pytest.mark.parametrize("recording", ["recordings/one-node", "kubectl/recorded"])
@pytest.mark.parametrize("name", ["fit", "who", "top", "tree", "plan", "doctor", "why, all"])
def test_tables_of_recorded_clusters_fit(recording: str, name: str, narrow: Callable[..., str]) -> None:
    node = {"recordings/one-node": "rig-b", "kubectl/recorded": "node-1"}[recording]
    check(narrow(*(part.format(node=node) for part in ASKED[name]), "-f", RECORDINGS / recording))


@pytest.mark.parametrize("recording", ["recordings/one-node", "kubectl/recorded"])
def test_a_replay_fits(recording: str, narrow: Callable[..., str]) -> None:
    check(narrow("replay", RECORDINGS / recording))


def with_long_names(items: list[Object]) -> list[Any]:
    """The objects with nodes that have a cloud's names, and pods with those of a large company."""
    text = json.dumps(items)
    text = re.sub(r"\bnode-(\d)", rf"{LONG}-\1", text)
    return list(json.loads(text.replace('"name": "p', f'"name": "{LONG_POD.partition("/")[2]}-')))


@settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    cluster=clusters(most_pods=30), requests=REQUESTS, name=st.sampled_from(sorted(set(ASKED) - {"sweep"}))
)
def test_tables_of_random_clusters_fit(
    cluster: tuple[list[SimulatedNode], list[Any]],
    requests: dict[str, str],
    name: str,
    narrow: Callable[..., str],
    tmp_path: Path,
) -> None:
    nodes, _ = cluster
    waiting = pod("stuck", requests)
    waiting["metadata"] |= dict(zip(("namespace", "name"), LONG_POD.split("/"), strict=True))
    by_name = {node.spec.name: node for node in nodes}
    bodies: list[Object] = [*objects_of(by_name, [waiting]), *installed(nodes)]
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"kind": "List", "items": with_long_names(bodies)}))
    asked = (part.format(stuck=LONG_POD, node=f"{LONG}-0") for part in ASKED[name])
    check(narrow(*asked, "-f", dump))
