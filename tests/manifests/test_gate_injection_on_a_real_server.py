"""The gate's injection, as a real kube-apiserver evaluates the policy that is shipped."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from numazones.cluster import ClusterPod
from numazones.prediction import relevant
from numazones.waiting import GATE, OPT_IN

from ..real_apiserver import RealAPIServer  # noqa: TID252 - test folders are not packages
from .test_gate_injection import CASES, CONCERNED, pod

FOLDER = Path(__file__).resolve().parents[2] / "manifests" / "gate-injection"
_SECONDS = 120
"""How long the server may take to learn of a new policy."""

pytestmark = pytest.mark.real_apiserver


def made(server: RealAPIServer, body: dict[str, Any], namespace: str = "gated") -> dict[str, Any]:
    """Return a pod as the server would store it."""
    told = json.dumps({**body, "metadata": {**body["metadata"], "namespace": namespace}})
    stored: dict[str, Any] = json.loads(
        server.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=told)
    )
    return stored


def gates(stored: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in stored["spec"].get("schedulingGates") or ()]


@pytest.fixture(scope="module")
def server(real_apiserver: RealAPIServer) -> RealAPIServer:
    for name, label in (("numazones-operator", ""), ("gated", "=".join(OPT_IN)), ("plain", "")):
        real_apiserver.kubectl("create", "namespace", name)
        if label:
            real_apiserver.kubectl("label", "namespace", name, label)
    real_apiserver.kubectl("apply", "-k", str(FOLDER))
    end = time.monotonic() + _SECONDS
    while GATE not in gates(made(real_apiserver, pod())):
        assert time.monotonic() < end, "the policy is there, and does not put the gate on a Guaranteed pod"
        time.sleep(0.2)
    return real_apiserver


@pytest.mark.parametrize("name", CASES)
def test_the_policy_and_the_operator_agree_on_which_pods_are_concerned(
    name: str, server: RealAPIServer
) -> None:
    stored = made(server, CASES[name])
    assert (GATE in gates(stored)) is (name in CONCERNED)
    assert relevant(ClusterPod.from_api(stored)) is (name in CONCERNED)


def test_gates_of_others_stay_and_ours_comes_once(server: RealAPIServer) -> None:
    other = "example.com/wait"
    assert gates(made(server, pod("a", schedulingGates=[{"name": other}]))) == [other, GATE]
    assert gates(made(server, pod("b", schedulingGates=[{"name": GATE}]))) == [GATE]


def test_namespaces_that_do_not_opt_in_and_pods_that_have_a_node_are_left_alone(
    server: RealAPIServer,
) -> None:
    assert gates(made(server, pod(), "plain")) == []
    assert gates(made(server, pod(nodeName="node"))) == []


def test_without_its_parameters_nothing_is_injected(server: RealAPIServer) -> None:
    server.kubectl("-n", "numazones-operator", "delete", "configmap", "numazones-admission-gate")
    end = time.monotonic() + _SECONDS
    while GATE in gates(made(server, pod())):
        assert time.monotonic() < end, "the parameters are gone, and pods still get the gate"
        time.sleep(0.2)
