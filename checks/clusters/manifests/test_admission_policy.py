"""Tests of what the admission policy rejects, on a real API server, with tokens that it issued."""

import json
from typing import Any

import pytest

from tests.real_apiserver import RealAPIServer

NAMESPACE = "numazones-system"
ACCOUNT = "numazones-exporter"

pytestmark = pytest.mark.real_apiserver


class Cluster:
    """A real API server with the exporter's manifests, two nodes, and an exporter's token on node-a."""

    def __init__(self, server: RealAPIServer) -> None:
        self.server = server
        self.uids = {name: self._make_node(name) for name in ("node-a", "node-b")}
        self._make_pod("exporter-a", "node-a")
        self.token = self._token("--bound-object-kind=Pod", "--bound-object-name=exporter-a")
        self.unbound_token = self._token()

    def _make_node(self, name: str) -> str:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        self.server.kubectl("create", "-f", "-", stdin=json.dumps(body))
        return self.server.kubectl("get", "node", name, "-o", "jsonpath={.metadata.uid}")

    def _make_pod(self, name: str, node: str) -> None:
        spec = {
            "nodeName": node,
            "serviceAccountName": ACCOUNT,
            "containers": [{"name": "exporter", "image": "x"}],
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec,
        }
        self.server.kubectl("create", "-f", "-", stdin=json.dumps(body))

    def _token(self, *bound: str) -> str:
        return self.server.kubectl("-n", NAMESPACE, "create", "token", ACCOUNT, *bound).strip()

    def owner(self, node: str) -> dict[str, str]:
        return {"apiVersion": "v1", "kind": "Node", "name": node, "uid": self.uids[node]}

    def zone(self, name: str, *, node: str, numa_id: int = 0, **metadata: Any) -> dict[str, Any]:
        return {
            "apiVersion": "numazones.io/v1alpha1",
            "kind": "NUMAZone",
            "metadata": {
                "name": name,
                "labels": {"numazones.io/node": node},
                "ownerReferences": [self.owner(node)],
                **metadata,
            },
            "spec": {"nodeName": node, "numaID": numa_id},
        }

    def lease(self, name: str, *, node: str) -> dict[str, Any]:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": {"numazones.io/node": node},
                "ownerReferences": [self.owner(node)],
            },
            "spec": {"holderIdentity": node},
        }

    def apply(self, body: dict[str, Any], *options: str, token: str | None = None) -> str:
        """Apply as the exporter of node-a does; return what kubectl said."""
        return self.server.kubectl(
            "apply",
            "--server-side",
            "--force-conflicts",
            f"--field-manager={ACCOUNT}",
            "--validate=false",  # the exporter's token may not read the schema
            *options,
            "-f",
            "-",
            stdin=json.dumps(body),
            token=self.token if token is None else token,
            check=False,
        )


@pytest.fixture(scope="module")
def cluster(real_cluster: RealAPIServer) -> Cluster:
    return Cluster(real_cluster)


def test_rbac_alone_would_let_an_exporter_write_any_node(cluster: Cluster) -> None:
    account = f"--as=system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
    for verb, subresource in (("create", ""), ("patch", ""), ("delete", ""), ("patch", "status")):
        options = [f"--subresource={subresource}"] if subresource else []
        said = cluster.server.kubectl("auth", "can-i", verb, "numazones.numazones.io", *options, account)
        assert said.endswith("yes\n"), said


def test_an_exporter_writes_its_own_nodes_objects(cluster: Cluster) -> None:
    own = cluster.zone("node-a-numa-0", node="node-a")
    assert "serverside-applied" in cluster.apply(own)
    status = {key: own[key] for key in ("apiVersion", "kind")} | {
        "metadata": {"name": "node-a-numa-0"},
        "status": {"snapshot": "s"},
    }
    assert "serverside-applied" in cluster.apply(status, "--subresource=status")
    assert "serverside-applied" in cluster.apply(cluster.lease("numazones-exporter-node-a", node="node-a"))


def forged(cluster: Cluster) -> dict[str, tuple[dict[str, Any], str]]:
    """Map what a thief could try with the token of node-a's exporter to why it is rejected."""
    not_ours = "the exporter of node node-a may not write {}: its name and spec must be those of this node"
    wrong_spec = cluster.zone("node-a-numa-7", node="node-a", numa_id=7)
    wrong_spec["spec"]["nodeName"] = "node-b"
    zone_name = "numazones node-a-numa-7"
    label = f"the label numazones.io/node of {zone_name} must be node-a"
    owner = f"the only owner of {zone_name} must be the Node node-a"

    def zone(**metadata: Any) -> dict[str, Any]:
        return cluster.zone("node-a-numa-7", node="node-a", numa_id=7, **metadata)

    stale = cluster.owner("node-a") | {"uid": "00000000-0000-0000-0000-000000000000"}
    both = [cluster.owner("node-a"), cluster.owner("node-b")]
    return {
        "zone of another node": (
            cluster.zone("node-b-numa-0", node="node-b"),
            not_ours.format("numazones node-b-numa-0"),
        ),
        "spec of another node": (wrong_spec, not_ours.format(zone_name)),
        "name of another zone": (
            cluster.zone("node-a-numa-7", node="node-a", numa_id=6),
            not_ours.format(zone_name),
        ),
        "name that begins alike": (
            cluster.zone("node-a-numa-7-x", node="node-a", numa_id=7),
            not_ours.format("numazones node-a-numa-7-x"),
        ),
        "label of another node": (zone(labels={"numazones.io/node": "node-b"}), label),
        "no label": (zone(labels={}), label),
        "owned by another node": (zone(ownerReferences=[cluster.owner("node-b")]), owner),
        "owned by two nodes": (zone(ownerReferences=both), owner),
        "owned by a node of the same name": (zone(ownerReferences=[stale]), owner),
        "owned by nobody": (zone(ownerReferences=[]), owner),
        "lease of another node": (
            cluster.lease("numazones-exporter-node-b", node="node-b"),
            not_ours.format("leases numazones-exporter-node-b"),
        ),
        "lease of another program": (
            cluster.lease("numazones-operator", node="node-a"),
            not_ours.format("leases numazones-operator"),
        ),
    }


def test_forged_objects_are_rejected_with_the_reason(cluster: Cluster) -> None:
    for what, (body, why) in forged(cluster).items():
        said = cluster.apply(body)
        assert "(Forbidden)" in said, (what, said)
        assert why in said, (what, said)


def test_another_nodes_status_cannot_be_written_either(cluster: Cluster) -> None:
    other = cluster.zone("node-b-numa-1", node="node-b", numa_id=1)
    cluster.server.kubectl("create", "-f", "-", stdin=json.dumps(other))
    status = {key: other[key] for key in ("apiVersion", "kind")} | {
        "metadata": {"name": "node-b-numa-1"},
        "status": {"snapshot": "forged"},
    }
    said = cluster.apply(status, "--subresource=status")
    assert "the exporter of node node-a may not write numazones node-b-numa-1" in said


def test_another_nodes_zone_cannot_be_deleted_its_own_can(cluster: Cluster) -> None:
    cluster.server.kubectl(
        "create", "-f", "-", stdin=json.dumps(cluster.zone("node-b-numa-2", node="node-b", numa_id=2))
    )
    said = cluster.server.kubectl("delete", "numazones", "node-b-numa-2", token=cluster.token, check=False)
    assert "the exporter of node node-a may not write numazones node-b-numa-2" in said
    cluster.apply(cluster.zone("node-a-numa-2", node="node-a", numa_id=2))
    assert "deleted" in cluster.server.kubectl(
        "delete", "numazones", "node-a-numa-2", "--wait=false", token=cluster.token
    )


def test_a_token_bound_to_no_node_writes_nothing(cluster: Cluster) -> None:
    said = cluster.apply(cluster.zone("node-a-numa-0", node="node-a"), token=cluster.unbound_token)
    assert "the token is not bound to a node" in said


def silence(
    cluster: Cluster, status: dict[str, Any], *options: str, token: str, manager: str = "numazones-operator"
) -> str:
    """Apply a status to the zone of node-b, as the operator does."""
    body = {"apiVersion": "numazones.io/v1alpha1", "kind": "NUMAZone", "metadata": {"name": "node-b-numa-4"}}
    return cluster.server.kubectl(
        "apply",
        "--server-side",
        "--force-conflicts",
        f"--field-manager={manager}",
        "--validate=false",
        "--subresource=status",
        *options,
        "-f",
        "-",
        stdin=json.dumps(body | {"status": status}),
        token=token,
        check=False,
    )


def test_the_operator_says_which_zones_are_silent_and_nothing_else(cluster: Cluster) -> None:
    server = cluster.server
    zone = cluster.zone("node-b-numa-4", node="node-b", numa_id=4)
    written = {
        "snapshot": "s",
        "resources": [{"name": "cpu", "capacity": "8"}],
        "conditions": [{"type": "Ready", "status": "True", "reason": "Complete"}],
        "kubelet": {"topologyManagerPolicy": "none"},
        "summary": {"assigned": "0", "free": "8", "memoryFree": "4.0Gi"},
    }
    server.kubectl("create", "-f", "-", stdin=json.dumps(zone))
    server.kubectl(
        "patch", "numazones", "node-b-numa-4", "--subresource=status", "--type=merge",
        "-p", json.dumps({"status": written}),
    )  # fmt: skip

    def cell(head: str) -> str:
        shown = server.kubectl("get", "numazones", "node-b-numa-4", "-o", "wide").splitlines()
        return shown[1][shown[0].index(head) :].split("  ")[0].strip()

    assert cell("STATE") == ""
    token = server.kubectl("-n", "numazones-operator", "create", "token", "numazones-operator").strip()
    said = {"silence": {"state": "Silent", "since": "2026-01-31T08:00:00Z", "message": "it is silent"}}
    assert "serverside-applied" in silence(cluster, said, token=token)
    assert cell("STATE") == "Silent"
    for forged in (
        {"snapshot": "t"},
        {"podsFingerprint": "new"},
        {"resources": [{"name": "cpu", "capacity": "9"}]},
        {"resources": [{"name": "memory", "capacity": "9"}]},
        {"conditions": [{"type": "Ready", "status": "False", "reason": "Forged"}]},
        {"conditions": [{"type": "Other", "status": "False", "reason": "Forged"}]},
        {"summary": {"state": "Unknown"}},
    ):
        answer = silence(cluster, said | forged, token=token)
        told = (
            "of NUMAZone node-b-numa-4, the operator may write only status.silence, status.placement and "
            "status.dynamicResources"
        )
        assert told in answer, forged
    assert "serverside-applied" in silence(cluster, {}, token=token)
    assert cell("STATE") == ""
    figures = ("POLICY", "ASSIGNED", "FREE", "MEM-FREE")
    assert [cell(head) for head in figures] == ["none", "0", "8", "4.0Gi"]
    decides = {"model": "koordinator", "assigned": "6", "free": "2", "memoryFree": "1.0Gi", "record": "{}"}
    placed = {"token": token, "manager": "numazones-operator-placement"}
    assert "serverside-applied" in silence(cluster, {"placement": decides}, **placed)
    assert [cell(head) for head in figures] == ["koordinator", "6", "2", "1.0Gi"]
    assert "the operator may write only" in silence(
        cluster, {"placement": decides, "snapshot": "t"}, **placed
    )
    assert "serverside-applied" in silence(cluster, {}, **placed)
    assert [cell(head) for head in figures] == ["none", "0", "8", "4.0Gi"]
    left = json.loads(server.kubectl("get", "numazones", "node-b-numa-4", "-o", "json"))["status"]
    assert "silence" not in left
    assert left["snapshot"] == "s"
    for verb in ("create", "update", "delete"):
        asked = server.kubectl("auth", "can-i", verb, "numazones.numazones.io", token=token, check=False)
        assert asked.endswith("no\n"), verb


def test_others_are_not_concerned(cluster: Cluster) -> None:
    body = json.dumps(cluster.zone("node-b-numa-9", node="node-b", numa_id=9))
    assert "created" in cluster.server.kubectl("create", "-f", "-", stdin=body)
