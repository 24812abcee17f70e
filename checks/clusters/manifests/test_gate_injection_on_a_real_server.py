"""The gate's injection, as a real kube-apiserver evaluates the policy that is shipped."""

import json
import time
from typing import Any

import pytest

from checks.clusters.manifests.test_gate_injection import CASES, CONCERNED, pod
from numazones.cluster.admission_gate import GATE, OPT_IN
from numazones.cluster.cluster import ClusterPod
from numazones.prediction.forecast import relevant
from tests.places import ROOT
from tests.real_apiserver import RealAPIServer

MANIFESTS = ROOT / "manifests"
FOLDER = MANIFESTS / "gate-injection"
RIGHTS = (
    MANIFESTS / "operator" / "rbac.yaml",
    MANIFESTS / "components" / "operator-admission-gate" / "rbac.yaml",
)
BINDING = ("mutatingadmissionpolicybinding", "numazones-admission-gate")
_SECONDS = 120
"""How long the server may take to learn of what was applied or deleted."""

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


def wait_until(server: RealAPIServer, *, injects: bool) -> None:
    """Wait until new pods get the gate, or none."""
    end = time.monotonic() + _SECONDS
    while (GATE in gates(made(server, pod()))) is not injects:
        assert time.monotonic() < end, f"pods {'get no' if injects else 'still get the'} gate"
        time.sleep(0.2)


def install(server: RealAPIServer) -> None:
    """Apply the rights of the operator and the injection, and wait until it works."""
    for file in RIGHTS:
        server.kubectl("apply", "-f", str(file))
    server.kubectl("apply", "-k", str(FOLDER))
    wait_until(server, injects=True)


@pytest.fixture(scope="module")
def server(real_apiserver: RealAPIServer) -> RealAPIServer:
    for name in ("numazones-operator", "numazones-system", "gated", "plain"):
        real_apiserver.kubectl("create", "namespace", name)
    real_apiserver.kubectl("label", "namespace", "gated", "=".join(OPT_IN))
    install(real_apiserver)
    return real_apiserver


@pytest.mark.parametrize("name", CASES)
def test_policy_and_operator_agree_on_the_pods_concerned(name: str, server: RealAPIServer) -> None:
    stored = made(server, CASES[name])
    assert (GATE in gates(stored)) is (name in CONCERNED)
    assert relevant(ClusterPod.from_api(stored)) is (name in CONCERNED)


def test_gates_of_others_stay_and_ours_comes_once(server: RealAPIServer) -> None:
    other = "example.com/wait"
    assert gates(made(server, pod("a", schedulingGates=[{"name": other}]))) == [other, GATE]
    assert gates(made(server, pod("b", schedulingGates=[{"name": GATE}]))) == [GATE]


def test_other_namespaces_and_bound_pods_get_no_gate(
    server: RealAPIServer,
) -> None:
    assert gates(made(server, pod(), "plain")) == []
    assert gates(made(server, pod(nodeName="node"))) == []


def test_the_injection_works_again_after_it_was_deleted_and_applied(server: RealAPIServer) -> None:
    """With a parameter object of a built-in kind it would not, before the server is restarted."""
    for _ in range(2):
        server.kubectl("delete", "-k", str(FOLDER))
        wait_until(server, injects=False)
        install(server)


def test_without_its_binding_nothing_is_injected(server: RealAPIServer) -> None:
    server.kubectl("delete", *BINDING)
    wait_until(server, injects=False)
    install(server)


@pytest.mark.parametrize(
    "binding",
    [
        ("clusterrolebinding", "numazones-operator-admission-gate"),
        ("--namespace=numazones-operator", "rolebinding", "numazones-operator"),
    ],
    ids=["to release pods", "of its namespace"],
)
def test_nothing_is_injected_once_the_operator_lost_its_rights(
    binding: tuple[str, ...], server: RealAPIServer
) -> None:
    server.kubectl("delete", *binding)
    wait_until(server, injects=False)
    install(server)
