"""Tests of what the embedded server adds for tests, and of a cluster's controllers in it."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from numazones_apiserver import ApiServer, NotLoopback, StatusError, WriteOptions

# --- being reached ---------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.1", "::"])  # noqa: S104
def test_it_listens_on_loopback_only(host: str) -> None:
    with pytest.raises(NotLoopback, match="listens on loopback only, not on"):
        ApiServer(host=host)


async def test_requests_need_the_token_when_one_is_set() -> None:
    async with ApiServer(token="secret") as server, aiohttp.ClientSession() as session:
        async with session.get(f"{server.url}/api/v1/pods") as answer:
            body = await answer.json()
            assert answer.status == 401
            assert (body["kind"], body["reason"], body["message"]) == (
                "Status",
                "Unauthorized",
                "Unauthorized",
            )
        headers = {"Authorization": "Bearer secret"}
        async with session.get(f"{server.url}/api/v1/pods", headers=headers) as answer:
            assert answer.status == 200


async def test_the_kubeconfig_is_private_and_complete(tmp_path: Path) -> None:
    async with ApiServer(token="secret") as server:
        path = server.kubeconfig(tmp_path / "deep" / "config")
        assert path.stat().st_mode & 0o777 == 0o600
        config = yaml.safe_load(path.read_text())
        assert config["clusters"][0]["cluster"] == {"server": server.url}
        assert config["users"][0]["user"] == {"token": "secret"}


async def test_stopping_keeps_the_objects_and_the_port(embedded: Any, widget: Any) -> None:
    created = await embedded.post(embedded.widgets, widget("a"))
    url = embedded.server.url
    async with embedded.watch(embedded.widgets, resourceVersion=created.version) as watching:
        await embedded.server.stop()
        with pytest.raises(aiohttp.ClientError):
            await embedded.get(embedded.widgets)
        with pytest.raises(aiohttp.ClientError):
            await watching.next()
    await embedded.server.start()
    assert embedded.server.url == url
    assert (await embedded.get(f"{embedded.widgets}/a")).body == created.body


async def test_objects_are_read_and_written_without_http(embedded: Any) -> None:
    server = embedded.server
    kind = server.kind("configmaps")
    server.writes.create(
        kind, "default", {"metadata": {"name": "direct"}, "data": {"k": "v"}}, WriteOptions("test")
    )
    assert (await embedded.get("/api/v1/namespaces/default/configmaps/direct")).body["data"] == {"k": "v"}
    with pytest.raises(StatusError, match='configmaps "none" not found'):
        server.writes.get(kind, "default", "none")
    with pytest.raises(StatusError, match="could not find the requested resource"):
        server.kind("unheard")


async def test_fields_of_the_presented_release_are_kept(embedded: Any) -> None:
    volume = {"name": "scratch", "emptyDir": {"mode": 448}}
    body = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]},
    }
    answer = await embedded.post(embedded.core("pods"), body, fieldValidation="Strict")
    assert answer.body["spec"]["volumes"][0]["emptyDir"] == {"mode": 448}
    assert (await embedded.get("/version")).body["gitVersion"] == "v1.37.0+numazones-apiserver"


async def test_a_kubelet_answers_through_the_proxy(embedded: Any) -> None:
    await embedded.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    path = "/api/v1/nodes/n1/proxy/configz"
    rejected = await embedded.get(path)
    assert (rejected.code, rejected.body["reason"]) == (503, "ServiceUnavailable")

    async def answers(node: str, asked: str) -> dict[str, Any]:
        return {"kubeletconfig": {"node": node, "path": asked}}

    embedded.server.node_proxy = answers
    assert (await embedded.get(path)).body == {"kubeletconfig": {"node": "n1", "path": "configz"}}
    assert (await embedded.get("/api/v1/nodes/none/proxy/configz")).code == 404


# --- faults ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "code", "reason"),
    [
        ("conflict", 409, "Conflict"),
        ("resource_expired", 410, "Expired"),
        ("too_many_requests", 429, "TooManyRequests"),
        ("server_error", 500, "InternalError"),
    ],
)
async def test_a_fault_strikes_the_requests_that_it_matches(
    embedded: Any, widget: Any, fault: str, code: int, reason: str
) -> None:
    struck = getattr(embedded.server.faults, fault)(verb="create", resource="widgets", count=2)
    assert (await embedded.get(embedded.widgets)).code == 200
    for _ in range(2):
        answer = await embedded.post(embedded.widgets, widget("a"))
        assert (answer.code, answer.body["reason"]) == (code, reason)
    assert struck.struck == 2
    assert (await embedded.post(embedded.widgets, widget("a"))).code == 201


async def test_an_answer_429_says_when_to_try_again(embedded: Any) -> None:
    embedded.server.faults.too_many_requests(7)
    answer = await embedded.get(embedded.widgets)
    assert answer.headers["Retry-After"] == "7"
    assert answer.body["details"]["retryAfterSeconds"] == 7


async def test_an_answer_can_be_late_or_cut(embedded: Any) -> None:
    embedded.server.faults.delay(0.3, resource="widgets")
    begun = time.monotonic()
    assert (await embedded.get(embedded.widgets)).code == 200
    assert time.monotonic() - begun >= 0.3
    fault = embedded.server.faults.reset(resource="widgets", count=None)
    for _ in range(3):
        with pytest.raises(aiohttp.ClientError):
            await embedded.get(embedded.widgets)
    embedded.server.faults.remove(fault)
    assert (await embedded.get(embedded.widgets)).code == 200


async def served(embedded: Any, watches: int = 1) -> None:
    """Wait until watches are served, of which a client has only seen the answers' heads."""
    async with asyncio.timeout(120):
        while len(embedded.server.faults.watches) < watches:  # noqa: ASYNC110 - it has no event of its own
            await asyncio.sleep(0.01)


async def test_open_watches_can_be_cut(embedded: Any) -> None:
    async with embedded.watch(embedded.widgets) as watching:
        await served(embedded)
        assert embedded.server.faults.drop_watches("pods") == 0
        assert embedded.server.faults.drop_watches("widgets") == 1
        with pytest.raises(aiohttp.ClientError):
            await watching.next()


async def test_open_watches_can_die_without_a_word(embedded: Any, widget: Any) -> None:
    async with embedded.watch(embedded.widgets) as watching, embedded.watch(embedded.widgets) as other:
        await served(embedded, watches=2)
        assert embedded.server.faults.silence_watches("pods") == 0
        assert embedded.server.faults.silence_watches("widgets", client="somebody else") == 0
        assert embedded.server.faults.silence_watches("widgets") == 2
        await embedded.post(embedded.widgets, widget("a"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await watching.next()
        async with embedded.watch(embedded.widgets) as later:
            assert (await later.next())[0] == "ADDED"
        embedded.server.faults.drop_watches()
        with pytest.raises(aiohttp.ClientError):
            await other.next()


async def test_open_watches_can_end_with_an_expired_resource_version(embedded: Any) -> None:
    async with embedded.watch(embedded.widgets) as watching:
        await served(embedded)
        embedded.server.faults.drop_watches(compacted=True)
        kind, status = await watching.next()
        assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
        assert (await watching.next())[0] == "END"


# --- compaction ------------------------------------------------------------------------------


async def test_older_resource_versions_expire_after_compaction(embedded: Any, widget: Any) -> None:
    start = await embedded.get(embedded.widgets)
    for name in ("a", "b", "c"):
        await embedded.post(embedded.widgets, widget(name))
    page = await embedded.get(embedded.widgets, limit=1)
    await embedded.post(embedded.widgets, widget("d"))
    embedded.server.compact()
    async with embedded.watch(embedded.widgets, resourceVersion=start.version) as watching:
        kind, status = await watching.next()
        assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
        assert status["message"].startswith(f"too old resource version: {start.version} (")
    following = await embedded.get(
        embedded.widgets, limit=1, **{"continue": page.body["metadata"]["continue"]}
    )
    assert (following.code, following.body["reason"]) == (410, "Expired")
    exact = await embedded.get(embedded.widgets, resourceVersion=start.version, resourceVersionMatch="Exact")
    assert exact.code == 410


async def test_history_is_bounded(tmp_path: Path) -> None:
    async with ApiServer(history=10) as server, aiohttp.ClientSession() as session:
        kind = server.kind("configmaps")
        first = server.writes.create(kind, "default", {"metadata": {"name": "m"}}, WriteOptions())
        for number in range(50):
            server.writes.patch(
                kind,
                "default",
                "m",
                "application/merge-patch+json",
                {"data": {"n": str(number)}},
                WriteOptions(),
            )
        query = {"watch": "1", "resourceVersion": first["metadata"]["resourceVersion"], "timeoutSeconds": "2"}
        async with session.get(f"{server.url}/api/v1/configmaps", params=query) as answer:
            assert json.loads(await answer.content.readline())["type"] == "ERROR"
        assert len(server.store.collection("", "configmaps").history) <= 20


async def test_bookmarks_say_how_far_the_stream_has_come(widget: Any) -> None:
    async with ApiServer(bookmark_seconds=0.1) as server, aiohttp.ClientSession() as session:
        query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": "300"}
        async with session.get(f"{server.url}/api/v1/configmaps", params=query) as answer:
            event = json.loads(await answer.content.readline())
        assert event["type"] == "BOOKMARK"
        assert event["object"]["kind"] == "ConfigMap"
        assert int(event["object"]["metadata"]["resourceVersion"]) == server.store.revision


# --- the cluster's own controllers -----------------------------------------------------------


def _owned(body: Any, owner: Any, **more: Any) -> Any:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        **more,
    }
    body["metadata"].setdefault("ownerReferences", []).append(reference)
    return body


async def _names(api: Any, path: str) -> list[str]:
    return [one["metadata"]["name"] for one in (await api.get(path)).body["items"]]


async def test_dependents_are_deleted_with_their_owner(embedded: Any, widget: Any) -> None:
    owner = (await embedded.post(embedded.widgets, widget("owner"))).body
    child = (await embedded.post(embedded.widgets, _owned(widget("child"), owner))).body
    await embedded.post(embedded.widgets, _owned(widget("grandchild"), child))
    await embedded.delete(f"{embedded.widgets}/owner")
    await embedded.server.settle()
    assert await _names(embedded, embedded.widgets) == []


async def test_an_object_is_kept_while_one_owner_exists(embedded: Any, widget: Any) -> None:
    one = (await embedded.post(embedded.widgets, widget("one"))).body
    two = (await embedded.post(embedded.widgets, widget("two"))).body
    await embedded.post(embedded.widgets, _owned(_owned(widget("child"), one), two))
    await embedded.delete(f"{embedded.widgets}/one")
    await embedded.server.settle()
    child = (await embedded.get(f"{embedded.widgets}/child")).body
    assert [owner["name"] for owner in child["metadata"]["ownerReferences"]] == ["two"]


async def test_an_object_whose_owner_never_existed_is_deleted(embedded: Any, widget: Any) -> None:
    ghost = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "ghost", "uid": "no-such-uid"}}
    await embedded.post(embedded.widgets, _owned(widget("child"), ghost))
    await embedded.server.settle()
    assert await _names(embedded, embedded.widgets) == []


async def test_foreground_deletion_waits_for_dependents_that_block_it(embedded: Any, widget: Any) -> None:
    owner = (await embedded.post(embedded.widgets, widget("owner"))).body
    child = _owned(widget("child"), owner, blockOwnerDeletion=True)
    child["metadata"]["finalizers"] = ["example.com/hold"]
    await embedded.post(embedded.widgets, child)
    await embedded.delete(f"{embedded.widgets}/owner", {"propagationPolicy": "Foreground"})
    await embedded.server.settle()
    assert await _names(embedded, embedded.widgets) == ["child", "owner"]
    await embedded.merge(f"{embedded.widgets}/child", {"metadata": {"finalizers": None}})
    await embedded.server.settle()
    assert await _names(embedded, embedded.widgets) == []


async def test_orphaned_dependents_are_kept(embedded: Any, widget: Any) -> None:
    owner = (await embedded.post(embedded.widgets, widget("owner"))).body
    await embedded.post(embedded.widgets, _owned(widget("child"), owner))
    await embedded.delete(f"{embedded.widgets}/owner", {"propagationPolicy": "Orphan"})
    await embedded.server.settle()
    assert await _names(embedded, embedded.widgets) == ["child"]
    assert "ownerReferences" not in (await embedded.get(f"{embedded.widgets}/child")).body["metadata"]


async def test_a_namespace_is_deleted_with_its_content(embedded: Any, widget: Any, pod: Any) -> None:
    await embedded.post(embedded.widgets, widget("a"))
    await embedded.post(embedded.core("pods"), pod("p"))
    held = widget("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await embedded.post(embedded.widgets, held)
    path = f"/api/v1/namespaces/{embedded.namespace}"
    dying = await embedded.delete(path)
    assert dying.body["status"]["phase"] == "Terminating"
    await embedded.server.settle()
    rejected = await embedded.post(embedded.widgets, widget("late"))
    assert rejected.code == 403
    assert rejected.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert await _names(embedded, embedded.widgets) == ["held"]
    await embedded.merge(f"{embedded.widgets}/held", {"metadata": {"finalizers": None}})
    await embedded.server.settle()
    assert (await embedded.get(path)).code == 404


async def test_a_definition_is_deleted_with_its_custom_resources(embedded: Any, widget: Any) -> None:
    await embedded.post(embedded.widgets, widget("a"))
    async with embedded.watch(embedded.widgets, resourceVersion=embedded.server.store.revision) as watching:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.contract.example.com"
        await embedded.delete(path)
        await embedded.server.settle()
        assert (await watching.next())[0] == "DELETED"
        assert (await embedded.get(path)).code == 404
        assert (await embedded.get(embedded.widgets)).code == 404


async def test_a_changed_definition_is_served_at_once(embedded: Any, definition: Any, widget: Any) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.contract.example.com"
    operation = {
        "op": "add",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/novel",
        "value": {"type": "string"},
    }
    changed = await embedded.send("PATCH", path, [operation], media="application/json-patch+json")
    assert changed.code == 200
    assert (await embedded.post(embedded.widgets, widget("a", novel="x"))).body["spec"]["novel"] == "x"


async def test_versions_of_a_resource_share_their_objects(embedded: Any, definition: Any) -> None:
    body = definition("sprockets", "Sprocket")
    [first] = body["spec"]["versions"]
    body["spec"]["versions"] = [first, {**first, "name": "v2beta1", "storage": False}]
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert (await embedded.post(path, body)).code == 201
    group = (await embedded.get("/apis/contract.example.com")).body
    assert [one["version"] for one in group["versions"]] == ["v1", "v2beta1"]
    root = "/apis/contract.example.com"
    place = f"namespaces/{embedded.namespace}/sprockets"
    sprocket = {"apiVersion": "contract.example.com/v2beta1", "kind": "Sprocket", "metadata": {"name": "s"}}
    created = await embedded.post(f"{root}/v2beta1/{place}", {**sprocket, "spec": {"size": 3}})
    assert created.body["apiVersion"] == "contract.example.com/v2beta1"
    stable = await embedded.get(f"{root}/v1/{place}/s")
    assert stable.body["apiVersion"] == "contract.example.com/v1"
    assert stable.version == created.version
    async with embedded.watch(f"{root}/v2beta1/{place}") as watching:
        assert (await watching.next())[1]["apiVersion"] == "contract.example.com/v2beta1"


async def test_a_warning_names_rules_that_are_not_evaluated(embedded: Any, definition: Any) -> None:
    body = definition("gizmos", "Gizmo")
    spec = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["x-kubernetes-validations"] = [{"rule": "self.size > 2"}]
    answer = await embedded.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
    assert answer.code == 201
    [warning] = answer.headers.getall("Warning")
    assert "is stored but not evaluated" in warning
    assert "self.size > 2" in warning


def _ready(pods: Any, count: int) -> list[Any]:
    bodies = []
    for number in range(count):
        body = pods(f"p{number}", nodeName="n1")
        body["metadata"]["labels"] = {"app": "web"}
        bodies.append(body)
    return bodies


@pytest.mark.parametrize(
    ("spec", "replicas", "desired", "allowed"),
    [
        ({"minAvailable": 1}, 3, 1, 2),
        ({"minAvailable": 3}, 3, 3, 0),
        ({"minAvailable": "50%"}, 3, 2, 1),
        ({"maxUnavailable": 1}, 3, 2, 1),
        ({"maxUnavailable": "50%"}, 3, 1, 2),
        ({"maxUnavailable": 1}, 4, 3, 0),
    ],
)
async def test_the_status_of_a_budget_follows_its_pods(
    embedded: Any, pod: Any, spec: Any, replicas: int, desired: int, allowed: int
) -> None:
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "c:1"}]},
    }
    workload = {"selector": {"matchLabels": {"app": "web"}}, "replicas": replicas, "template": template}
    owner = (
        await embedded.post(embedded.apps("replicasets"), {"metadata": {"name": "rs"}, "spec": workload})
    ).body
    owner |= {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    path = embedded.core("pods")
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    for body in _ready(pod, 3):
        await embedded.post(path, _owned(body, owner, controller=True))
        await embedded.merge(f"{path}/{body['metadata']['name']}/status", ready)
    budgets = f"/apis/policy/v1/namespaces/{embedded.namespace}/poddisruptionbudgets"
    await embedded.post(
        budgets, {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec}}
    )
    await embedded.server.settle()
    status = (await embedded.get(f"{budgets}/b")).body["status"]
    assert (status["currentHealthy"], status["desiredHealthy"], status["disruptionsAllowed"]) == (
        3,
        desired,
        allowed,
    )
    assert status["conditions"][0]["reason"] == ("SufficientPods" if allowed else "InsufficientPods")
    await embedded.merge(
        f"{path}/p0/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    )
    await embedded.server.settle()
    after = (await embedded.get(f"{budgets}/b")).body["status"]
    assert (after["currentHealthy"], after["disruptionsAllowed"]) == (2, max(allowed - 1, 0))


# --- the program -----------------------------------------------------------------------------


def test_the_program_serves_until_a_signal_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    command = [
        sys.executable,
        "-m",
        "numazones_apiserver",
        "--kubeconfig",
        str(path),
        "--token",
        "t",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Serving the Kubernetes API on http://127.0.0.1:")
        assert str(path) in process.stdout.readline()
        assert yaml.safe_load(path.read_text())["users"][0]["user"] == {"token": "t"}
        process.terminate()
        assert process.wait(timeout=120) == 0


def test_the_program_refuses_addresses_other_than_loopback() -> None:
    command = [sys.executable, "-m", "numazones_apiserver", "--host", "0.0.0.0"]  # noqa: S104
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "listens on loopback only" in done.stderr


async def test_a_connection_that_arrives_while_the_server_stops_is_closed(embedded: Any) -> None:
    port = int(embedded.server.url.rpartition(":")[2])
    # The kernel takes the connections; the server's event loop learns of them only while it stops.
    latecomers = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(5)]
    await embedded.server.stop()
    for latecomer in latecomers:
        with latecomer, contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(latecomer.recv, 1) == b""
