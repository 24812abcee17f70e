"""ResourceQuotas and pods that wait at the gate, on a real kube-apiserver.

They count from the moment they are made, with all that they request, and being released changes nothing.
"""

import json

import pytest

from numazones.cluster.admission_gate import GATE
from numazones_operator.prevention.gate_removal_patch import TargetNode, gate_removal_patch
from tests.operator.pods import pod_body
from tests.real_apiserver import RealAPIServer

pytestmark = pytest.mark.real_apiserver

NAMESPACE = "with-quota"
HARD = {"requests.cpu": "8", "pods": "10"}


@pytest.fixture(scope="module")
def server(real_apiserver: RealAPIServer) -> RealAPIServer:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": HARD}}
    real_apiserver.kubectl("create", "namespace", NAMESPACE)
    real_apiserver.kubectl("-n", NAMESPACE, "create", "serviceaccount", "default")
    real_apiserver.kubectl("-n", NAMESPACE, "create", "-f", "-", stdin=json.dumps(quota))
    # What the quota controller writes, which does not run here.
    status = json.dumps({"status": {"hard": HARD, "used": {"requests.cpu": "0", "pods": "0"}}})
    changed = ("--subresource=status", "--type=merge", "-p", status)
    real_apiserver.kubectl("-n", NAMESPACE, "patch", "resourcequota", "q", *changed)
    return real_apiserver


def create(server: RealAPIServer, name: str, cpu: int) -> str:
    body = pod_body(name, cpu=cpu, schedulingGates=[{"name": GATE}])
    body["metadata"]["namespace"] = NAMESPACE
    return server.kubectl("create", "-f", "-", stdin=json.dumps(body), check=False)


def used(server: RealAPIServer) -> dict[str, str]:
    found: dict[str, str] = json.loads(
        server.kubectl("-n", NAMESPACE, "get", "resourcequota", "q", "-o", "jsonpath={.status.used}")
    )
    return found


def test_gated_pod_counts_against_quota_immediately_and_only_once(
    server: RealAPIServer,
) -> None:
    for name in ("a", "b"):
        assert "created" in create(server, name, 4)
    assert used(server) == {"requests.cpu": "8", "pods": "2"}
    # What does not fit beside pods that wait is not made at all: it never comes to the gate.
    assert "exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=8" in create(server, "c", 1)
    uid = server.kubectl("-n", NAMESPACE, "get", "pod", "a", "-o", "jsonpath={.metadata.uid}")
    patch = json.dumps(gate_removal_patch(uid, [TargetNode("node", None)], now="2026-01-31T08:00:00Z"))
    kind = "--type=strategic"
    assert "patched" in server.kubectl("-n", NAMESPACE, "patch", "pod", "a", kind, "-p", patch)
    assert used(server) == {"requests.cpu": "8", "pods": "2"}
