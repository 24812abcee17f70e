# ruff: noqa: E501 - tables of cases read by rows
"""Reading many objects: selectors, pages, resource versions, watches, tables."""

from typing import Any

import pytest

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


async def _maps(api: Any, **labels: dict[str, str]) -> str:
    for name, one in labels.items():
        created = await api.post(api.core("configmaps"), {"metadata": {"name": name, "labels": one}})
        assert created.code == 201
    path: str = api.core("configmaps")
    return path


def _names(answer: Any) -> list[str]:
    return [
        one["metadata"]["name"]
        for one in answer.body["items"]
        if one["metadata"]["name"] != "kube-root-ca.crt"
    ]


# --- selectors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", ["a", "b", "c", "d"]),
        ("env=prod", ["a", "b"]),
        ("env==prod", ["a", "b"]),
        ("env!=prod", ["c", "d"]),
        ("env", ["a", "b", "c"]),
        ("!env", ["d"]),
        ("env in (prod, dev)", ["a", "b", "c"]),
        ("env notin (prod)", ["c", "d"]),
        ("env=prod,tier=web", ["a"]),
        ("size>2", ["b"]),
        ("size<2", ["a"]),
        ("env in (dev),!tier", ["c"]),
        ("tier=", []),
    ],
)
async def test_a_label_selector_selects_objects(api: Any, selector: str, names: list[str]) -> None:
    path = await _maps(
        api,
        a={"env": "prod", "tier": "web", "size": "1"},
        b={"env": "prod", "tier": "db", "size": "10"},
        c={"env": "dev"},
        d={"size": "x"},
    )
    assert _names(await api.get(path, labelSelector=selector)) == names


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
    ],
)
async def test_unreadable_label_selector_is_a_bad_request(api: Any, selector: str, message: str) -> None:
    answer = await api.get(api.core("configmaps"), labelSelector=selector)
    assert (answer.code, answer.body["reason"], answer.body["message"]) == (400, "BadRequest", message)


async def test_a_field_selector_selects_objects(api: Any, pod: Any, widget: Any) -> None:
    path = api.core("pods")
    await api.post(path, pod("a", nodeName="n1"))
    await api.post(path, pod("b", nodeName="n2"))
    assert _names(await api.get(path, fieldSelector="spec.nodeName=n1")) == ["a"]
    assert _names(await api.get(path, fieldSelector="spec.nodeName!=n1,status.phase=Pending")) == ["b"]
    assert _names(await api.get(path, fieldSelector="metadata.name=a")) == ["a"]
    rejected = await api.get(path, fieldSelector="spec.volume=x")
    assert (rejected.code, rejected.body["message"]) == (400, "field label not supported: spec.volume")
    rejected = await api.get(api.core("configmaps"), fieldSelector="data=x")
    assert (
        rejected.body["message"]
        == '"data" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )
    await api.post(api.widgets, widget("r"))
    await api.post(api.widgets, widget("g", color="green"))
    assert _names(await api.get(api.widgets, fieldSelector="spec.color=green")) == ["g"]


async def test_events_are_selected_by_what_they_concern(api: Any) -> None:
    path = api.core("events")
    for name, about in (("e1", "x"), ("e2", "y")):
        involved = {"kind": "Pod", "name": about, "namespace": api.namespace}
        event = {
            "metadata": {"name": name},
            "involvedObject": involved,
            "reason": "R",
            "type": "Normal",
            "message": "m",
        }
        assert (await api.post(path, event)).code == 201
    assert _names(await api.get(path, fieldSelector="involvedObject.name=y,type=Normal,reason=R")) == ["e2"]
    new = await api.get(f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events/e1")
    assert new.body["apiVersion"] == "events.k8s.io/v1"
    assert new.body["regarding"]["name"] == "x"
    assert new.body["note"] == "m"


# --- pages -----------------------------------------------------------------------------------


async def test_all_pages_of_a_list_show_the_same_revision(api: Any) -> None:
    path = await _maps(api, a={}, b={}, c={}, d={}, e={})
    first = await api.get(path, limit=2)
    assert _names(first) == ["a", "b"]
    assert first.body["metadata"]["remainingItemCount"] == 3 + (
        1 if api.real and len(await _all(api, path)) == 6 else 0
    )
    await api.delete(f"{path}/c")
    await api.post(path, {"metadata": {"name": "cc"}})
    second = await api.get(path, limit=2, **{"continue": first.body["metadata"]["continue"]})
    assert _names(second) == ["c", "d"]
    assert second.version == first.version
    third = await api.get(path, limit=5, **{"continue": second.body["metadata"]["continue"]})
    assert _names(third) == ["e"]
    assert "continue" not in third.body["metadata"]


async def _all(api: Any, path: str) -> list[Any]:
    items: list[Any] = (await api.get(path)).body["items"]
    return items


async def test_remaining_items_are_not_counted_under_a_selector(api: Any) -> None:
    path = await _maps(api, a={"x": "1"}, b={"x": "1"}, c={"x": "1"})
    answer = await api.get(path, limit=2, labelSelector="x=1")
    assert "continue" in answer.body["metadata"]
    assert "remainingItemCount" not in answer.body["metadata"]


async def test_a_list_can_show_an_older_revision(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("a"))
    then = await api.get(api.widgets)
    await api.post(api.widgets, widget("b"))
    await api.delete(f"{api.widgets}/a")
    past = await api.get(api.widgets, resourceVersion=then.version, resourceVersionMatch="Exact")
    assert _names(past) == ["a"]
    assert past.version == then.version
    newer = await api.get(api.widgets, resourceVersion=then.version, resourceVersionMatch="NotOlderThan")
    assert _names(newer) == ["b"]


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ({"resourceVersionMatch": "Exact"}, 422, "resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ({"resourceVersionMatch": "Foo", "resourceVersion": "3"}, 422, 'supported values: "Exact", "NotOlderThan", ""'),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 422, 'is forbidden for resourceVersion "0"'),
        ({"resourceVersion": "99999999"}, 504, "Timeout: Too large resource version: 99999999, current: "),
        ({"resourceVersion": "x"}, 400, 'strconv.ParseUint: parsing "x": invalid syntax'),
        ({"continue": "abc"}, 400, "continue key is not valid"),
        ({"limit": "x"}, 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ({"sendInitialEvents": "true"}, 422, "sendInitialEvents is forbidden for list"),
        ({"watch": "1", "sendInitialEvents": "true"}, 422, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
    ],
)  # fmt: skip
async def test_parameters_that_make_no_sense_are_rejected(
    api: Any, query: Any, code: int, message: str
) -> None:
    answer = await api.get(api.core("configmaps"), **query)
    assert answer.code == code
    assert message in answer.body["message"]


# --- watches ---------------------------------------------------------------------------------


async def test_a_watch_sends_every_change_in_order(api: Any, widget: Any) -> None:
    start = await api.get(api.widgets)
    async with api.watch(api.widgets, resourceVersion=start.version) as watching:
        created = await api.post(api.widgets, widget("a"))
        changed = await api.merge(f"{api.widgets}/a", {"spec": {"size": 4}})
        await api.delete(f"{api.widgets}/a")
        assert await watching.next() == ("ADDED", created.body)
        assert await watching.next() == ("MODIFIED", changed.body)
        kind, last = await watching.next()
        assert kind == "DELETED"
        assert last["spec"] == changed.body["spec"]
        assert int(last["metadata"]["resourceVersion"]) > int(changed.version)


async def test_a_watch_without_a_version_begins_with_all_objects(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("b"))
    await api.post(api.widgets, widget("a"))
    async with api.watch(api.widgets) as watching:
        assert {(await watching.next())[1]["metadata"]["name"] for _ in range(2)} == {"a", "b"}
        await api.post(api.widgets, widget("c"))
        kind, obj = await watching.next()
        assert (kind, obj["metadata"]["name"]) == ("ADDED", "c")


async def test_objects_entering_or_leaving_a_selection_are_added_or_deleted(api: Any) -> None:
    path = await _maps(api, a={"on": "no"})
    start = await api.get(path)
    async with api.watch(path, resourceVersion=start.version, labelSelector="on=yes") as watching:
        await api.merge(f"{path}/a", {"metadata": {"labels": {"on": "yes"}}})
        await api.merge(f"{path}/a", {"data": {"k": "v"}})
        left = await api.merge(f"{path}/a", {"metadata": {"labels": {"on": "no"}}, "data": {"k": "w"}})
        await api.post(path, {"metadata": {"name": "b"}})
        await api.post(path, {"metadata": {"name": "c", "labels": {"on": "yes"}}})
        events = [await watching.next() for _ in range(4)]
    assert [(kind, obj["metadata"]["name"]) for kind, obj in events] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
        ("ADDED", "c"),
    ]
    gone = events[2][1]
    assert gone["metadata"]["labels"] == {"on": "yes"}
    assert gone["data"] == {"k": "v"}
    assert gone["metadata"]["resourceVersion"] == left.version


async def test_pods_of_a_node_are_watched_by_field(api: Any, pod: Any) -> None:
    path = api.core("pods")
    start = await api.get(path)
    async with api.watch(path, resourceVersion=start.version, fieldSelector="spec.nodeName=n1") as watching:
        await api.post(path, pod("other", nodeName="n2"))
        await api.post(path, pod("mine"))
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "mine"},
            "target": {"kind": "Node", "name": "n1"},
        }
        assert (await api.post(f"{path}/mine/binding", binding)).code == 201
        kind, obj = await watching.next()
    assert (kind, obj["metadata"]["name"]) == ("ADDED", "mine")


async def test_a_streaming_list_ends_with_a_bookmark(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("a"))
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with api.watch(api.widgets, **query) as watching:
        kind, obj = await watching.next(bookmarks=True)
        assert (kind, obj["metadata"]["name"]) == ("ADDED", "a")
        kind, mark = await watching.next(bookmarks=True)
        assert kind == "BOOKMARK"
        assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(mark["metadata"]["resourceVersion"]) >= int(obj["metadata"]["resourceVersion"])
        assert (mark["kind"], mark["apiVersion"]) == ("Widget", "contract.example.com/v1")


async def test_a_watch_ends_at_its_timeout(api: Any) -> None:
    async with api.watch(api.core("configmaps"), timeoutSeconds=1, resourceVersion="0") as watching:
        kind = ""
        while kind != "END":
            kind, _ = await watching.next(bookmarks=True)


async def test_a_watch_of_one_object_by_name(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("a"))
    await api.post(api.widgets, widget("b"))
    async with api.watch(api.widgets, fieldSelector="metadata.name=b") as watching:
        kind, obj = await watching.next()
        assert (kind, obj["metadata"]["name"]) == ("ADDED", "b")


# --- other forms -----------------------------------------------------------------------------


async def test_tables_have_the_columns_of_the_definition(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("a"))
    await api.merge(
        f"{api.widgets}/a/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    )
    table = (await api.get(api.widgets, accept=TABLE)).body
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    heads = [(one["name"], one["type"], one["format"], one["priority"]) for one in table["columnDefinitions"]]
    assert heads == [
        ("Name", "string", "name", 0),
        ("Size", "integer", "", 0),
        ("Color", "string", "", 1),
        ("Ready", "string", "", 0),
        ("Age", "date", "", 0),
    ]
    [row] = table["rows"]
    assert row["cells"][:4] == ["a", 3, "red", "True"]
    assert row["cells"][4].endswith("s")
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert "spec" not in row["object"]


async def test_a_single_object_as_a_table(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("a"))
    table = (await api.get(f"{api.widgets}/a", accept=TABLE, includeObject="Object")).body
    [row] = table["rows"]
    assert row["cells"][3] is None
    assert row["object"]["spec"]["size"] == 3


@pytest.mark.parametrize(
    ("plural", "columns"),
    [
        ("/api/v1/nodes", ["Name", "Status", "Roles", "Age", "Version", "Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"]),
        ("/api/v1/pods", ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"]),
        ("/api/v1/events", ["Last Seen", "Type", "Reason", "Object", "Subobject", "Source", "Message", "First Seen", "Count", "Name"]),
        ("/api/v1/namespaces", ["Name", "Status", "Age"]),
        ("/api/v1/configmaps", ["Name", "Data", "Age"]),
        ("/api/v1/secrets", ["Name", "Type", "Data", "Age"]),
        ("/api/v1/serviceaccounts", ["Name", "Age"]),
        ("/api/v1/services", ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector"]),
        ("/api/v1/persistentvolumeclaims", ["Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "Age", "VolumeMode"]),
        ("/api/v1/persistentvolumes", ["Name", "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass", "VolumeAttributesClass", "Reason", "Age", "VolumeMode"]),
        ("/apis/coordination.k8s.io/v1/leases", ["Name", "Holder", "Age"]),
        ("/apis/policy/v1/poddisruptionbudgets", ["Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"]),
        ("/apis/apps/v1/deployments", ["Name", "Ready", "Up-to-date", "Available", "Age", "Containers", "Images", "Selector"]),
        ("/apis/apps/v1/replicasets", ["Name", "Desired", "Current", "Ready", "Age", "Containers", "Images", "Selector"]),
        ("/apis/apps/v1/statefulsets", ["Name", "Ready", "Age", "Containers", "Images"]),
        ("/apis/apps/v1/daemonsets", ["Name", "Desired", "Current", "Ready", "Up-to-date", "Available", "Node Selector", "Age", "Containers", "Images", "Selector"]),
        ("/apis/batch/v1/jobs", ["Name", "Status", "Completions", "Duration", "Age", "Containers", "Images", "Selector"]),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", ["Name", "Value", "Global-Default", "Age", "PreemptionPolicy"]),
        ("/api/v1/limitranges", ["Name", "Created At"]),
        ("/apis/node.k8s.io/v1/runtimeclasses", ["Name", "Handler", "Age"]),
        ("/apis/storage.k8s.io/v1/storageclasses", ["Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"]),
        ("/apis/networking.k8s.io/v1/networkpolicies", ["Name", "Pod-Selector", "Age"]),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", ["Name", "Created At"]),
        ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", ["Name", "Role", "Age", "Users", "Groups", "ServiceAccounts"]),
        ("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", ["Name", "Validations", "ParamKind", "Age"]),
        ("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", ["Name", "PolicyName", "ParamRef", "Age"]),
        ("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies", ["Name", "Mutations", "ParamKind", "Age"]),
        ("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings", ["Name", "PolicyName", "ParamRef", "Age"]),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", ["Name", "Created At"]),
    ],
)  # fmt: skip
async def test_tables_of_built_in_kinds_have_the_real_columns(
    api: Any, plural: str, columns: list[str]
) -> None:
    table = (await api.get(plural, accept=TABLE)).body
    found = [one["name"] for one in table["columnDefinitions"]]
    assert found == columns


async def test_a_watch_can_send_tables(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("a"))
    async with api.watch(api.widgets, accept=TABLE) as watching:
        kind, table = await watching.next()
        assert (kind, table["kind"]) == ("ADDED", "Table")
        assert table["rows"][0]["cells"][0] == "a"
        assert [one["name"] for one in table["columnDefinitions"]] == [
            "Name",
            "Size",
            "Color",
            "Ready",
            "Age",
        ]


async def test_a_client_can_ask_for_metadata_only(api: Any, widget: Any) -> None:
    created = (await api.post(api.widgets, widget("a"))).body
    one = (await api.get(f"{api.widgets}/a", accept=PARTIAL)).body
    assert one == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": created["metadata"],
    }
    many = (await api.get(api.widgets, accept=PARTIAL_LIST)).body
    assert (many["kind"], many["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert [item["metadata"] for item in many["items"]] == [created["metadata"]]


async def test_an_unknown_media_type_is_not_acceptable(api: Any) -> None:
    answer = await api.get(api.core("configmaps"), accept="application/unheard-of")
    assert (answer.code, answer.body["reason"]) == (406, "NotAcceptable")
