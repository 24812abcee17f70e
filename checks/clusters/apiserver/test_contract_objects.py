# ruff: noqa: E501 - tables of cases read by rows
"""Creating, reading, replacing, patching and deleting objects, as a real kube-apiserver does it."""

import asyncio
from typing import Any

import pytest


async def test_created_object_gets_a_uid_a_version_and_a_time(api: Any, widget: Any) -> None:
    answer = await api.post(api.widgets, widget("a"))
    assert answer.code == 201
    metadata = answer.body["metadata"]
    assert metadata["name"] == "a"
    assert metadata["namespace"] == api.namespace
    assert metadata["generation"] == 1
    assert {"uid", "creationTimestamp", "resourceVersion", "managedFields"} <= metadata.keys()
    assert (await api.get(f"{api.widgets}/a")).body == answer.body


async def test_a_name_that_exists_cannot_be_created_again(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("a"))
    answer = await api.post(api.widgets, widget("a"))
    assert (answer.code, answer.body["reason"]) == (409, "AlreadyExists")
    assert answer.body["message"] == 'widgets.contract.example.com "a" already exists'
    assert answer.body["details"] == {"name": "a", "group": "contract.example.com", "kind": "widgets"}


async def test_an_object_that_does_not_exist_is_not_found(api: Any) -> None:
    answer = await api.get(f"{api.widgets}/none")
    assert (answer.code, answer.body["reason"]) == (404, "NotFound")
    assert answer.body["message"] == 'widgets.contract.example.com "none" not found'
    assert answer.body["details"] == {"name": "none", "group": "contract.example.com", "kind": "widgets"}
    answer = await api.get(api.core("pods") + "/none")
    assert answer.body["message"] == 'pods "none" not found'
    assert answer.body["details"] == {"name": "none", "kind": "pods"}


async def test_unknown_paths_are_not_found(api: Any) -> None:
    assert (await api.get("/apis/nobody.example.com/v1/things")).code == 404
    assert (await api.get("/api/v1/things")).code == 404
    assert (await api.get("/nothing")).code == 404


async def test_a_namespace_must_exist(api: Any, widget: Any) -> None:
    answer = await api.post("/apis/contract.example.com/v1/namespaces/absent/widgets", widget())
    assert (answer.code, answer.body["message"]) == (404, 'namespaces "absent" not found')


async def test_generate_name_makes_a_new_name(api: Any, widget: Any) -> None:
    body = widget()
    body["metadata"] = {"generateName": "some-"}
    names = {(await api.post(api.widgets, body)).body["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("some-") and len(name) == 10 for name in names)


async def test_a_name_is_needed(api: Any, widget: Any) -> None:
    body = widget()
    body["metadata"] = {}
    answer = await api.post(api.widgets, body)
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert "name or generateName is required" in answer.body["message"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "Upper",
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'",
        ),
        (
            "-a",
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'",
        ),
        ("a" * 254, "must be no more than 253 characters"),
    ],
)
async def test_names_are_checked(api: Any, name: str, message: str) -> None:
    answer = await api.post(api.core("configmaps"), {"metadata": {"name": name}})
    assert answer.code == 422
    assert message in answer.body["message"]


async def test_labels_are_checked(api: Any) -> None:
    answer = await api.post(api.core("configmaps"), {"metadata": {"name": "a", "labels": {"k": "not ok"}}})
    assert answer.code == 422
    assert answer.causes == [("metadata.labels", "FieldValueInvalid")]
    assert 'metadata.labels: Invalid value: "not ok"' in answer.body["message"]


async def test_body_and_path_must_agree(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("a"))
    other = widget("b")
    other["metadata"]["resourceVersion"] = "1"
    answer = await api.put(f"{api.widgets}/a", other)
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    assert answer.body["message"] == "the name of the object (b) does not match the name on the URL (a)"
    elsewhere = widget("c")
    elsewhere["metadata"]["namespace"] = "elsewhere"
    answer = await api.post(api.widgets, elsewhere)
    assert answer.code == 400
    assert (
        answer.body["message"]
        == "the namespace of the provided object does not match the namespace sent on the request"
    )


async def test_an_object_with_a_resource_version_cannot_be_created(api: Any, widget: Any) -> None:
    body = widget()
    body["metadata"]["resourceVersion"] = "5"
    answer = await api.post(api.widgets, body)
    assert (answer.code, answer.body["message"]) == (
        500,
        "resourceVersion should not be set on objects to be created",
    )


# --- replace ---------------------------------------------------------------------------------


async def test_a_stale_version_conflicts(api: Any, widget: Any) -> None:
    created = (await api.post(api.widgets, widget("a"))).body
    created["spec"]["size"] = 4
    assert (await api.put(f"{api.widgets}/a", created)).code == 200
    answer = await api.put(f"{api.widgets}/a", created)
    assert (answer.code, answer.body["reason"]) == (409, "Conflict")
    assert answer.body["message"] == (
        'Operation cannot be fulfilled on widgets.contract.example.com "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_custom_resources_are_replaced_only_by_version(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("a"))
    answer = await api.put(f"{api.widgets}/a", widget("a", size=5))
    assert answer.code == 422
    assert "metadata.resourceVersion: Invalid value: 0" in answer.body["message"]
    assert "must be specified for an update" in answer.body["message"]


async def test_config_maps_are_replaced_unconditionally(api: Any) -> None:
    path = api.core("configmaps")
    await api.post(path, {"metadata": {"name": "a"}, "data": {"k": "1"}})
    answer = await api.put(f"{path}/a", {"metadata": {"name": "a"}, "data": {"k": "2"}})
    assert (answer.code, answer.body["data"]) == (200, {"k": "2"})


async def test_another_uid_conflicts(api: Any, widget: Any) -> None:
    created = (await api.post(api.widgets, widget("a"))).body
    uid = created["metadata"]["uid"]
    created["metadata"]["uid"] = "0b5e71fc-0000-0000-0000-000000000000"
    answer = await api.put(f"{api.widgets}/a", created)
    assert answer.code == 409
    assert answer.body["message"].endswith(
        f"Precondition failed: UID in precondition: 0b5e71fc-0000-0000-0000-000000000000, UID in object meta: {uid}"
    )


async def test_the_same_write_again_changes_nothing(api: Any, widget: Any) -> None:
    created = await api.post(api.widgets, widget("a"))
    replaced = await api.put(f"{api.widgets}/a", created.body)
    patched = await api.merge(f"{api.widgets}/a", {"spec": {"size": 3}})
    assert replaced.version == patched.version == created.version


async def test_generation_counts_changes_of_the_spec(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("a"))
    path = f"{api.widgets}/a"
    assert (await api.merge(path, {"spec": {"size": 4}})).body["metadata"]["generation"] == 2
    assert (await api.merge(path, {"metadata": {"labels": {"a": "b"}}})).body["metadata"]["generation"] == 2
    assert (await api.merge(f"{path}/status", {"status": {"phase": "Done"}})).body["metadata"][
        "generation"
    ] == 2


async def test_fields_of_the_server_cannot_be_changed(api: Any, widget: Any) -> None:
    created = (await api.post(api.widgets, widget("a"))).body
    patch = {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 77}}
    patched = (await api.merge(f"{api.widgets}/a", patch)).body
    assert patched["metadata"] == created["metadata"]


# --- status ----------------------------------------------------------------------------------


async def test_status_and_spec_are_written_apart(api: Any, widget: Any) -> None:
    body = {**widget("a"), "status": {"phase": "Mine"}}
    created = (await api.post(api.widgets, body)).body
    assert "status" not in created
    created["status"] = {"phase": "Done"}
    created["spec"]["size"] = 9
    created["metadata"]["labels"] = {"x": "y"}
    written = (await api.put(f"{api.widgets}/a/status", created)).body
    assert written["status"] == {"phase": "Done"}
    assert written["spec"]["size"] == 3
    assert "labels" not in written["metadata"]
    plain = await api.merge(f"{api.widgets}/a", {"status": {"phase": "Other"}, "spec": {"size": 5}})
    assert plain.body["status"] == {"phase": "Done"}
    assert (await api.get(f"{api.widgets}/a/status")).body == plain.body


# --- patch -----------------------------------------------------------------------------------


async def test_a_merge_patch_deletes_with_null(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("a", labels={"a": "1", "b": "2"}, tags=["x"]))
    answer = await api.merge(f"{api.widgets}/a", {"spec": {"labels": {"a": None, "c": "3"}, "tags": None}})
    assert answer.code == 200
    assert answer.body["spec"]["labels"] == {"b": "2", "c": "3"}
    assert "tags" not in answer.body["spec"]


async def test_a_json_patch_is_applied_in_order(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("a", tags=["x"]))
    operations = [
        {"op": "test", "path": "/spec/size", "value": 3},
        {"op": "replace", "path": "/spec/size", "value": 4},
        {"op": "add", "path": "/spec/tags/-", "value": "y"},
        {"op": "copy", "from": "/spec/size", "path": "/spec/ratio"},
    ]
    answer = await api.send("PATCH", f"{api.widgets}/a", operations, media="application/json-patch+json")
    assert answer.code == 200
    assert answer.body["spec"] == {"color": "red", "size": 4, "tags": ["x", "y"], "ratio": 4}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/spec/size", "value": 8},
        {"op": "remove", "path": "/spec/absent"},
        {"op": "replace", "path": "/spec/absent/deeper", "value": 1},
    ],
)
async def test_a_json_patch_that_does_not_fit_is_invalid(api: Any, widget: Any, operation: Any) -> None:
    await api.post(api.widgets, widget("a"))
    answer = await api.send("PATCH", f"{api.widgets}/a", [operation], media="application/json-patch+json")
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert answer.body["message"].startswith("the server rejected our request due to an error in our request")


async def test_custom_resources_take_no_strategic_merge_patch(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("a"))
    answer = await api.send(
        "PATCH", f"{api.widgets}/a", {"spec": {"size": 4}}, media="application/strategic-merge-patch+json"
    )
    assert (answer.code, answer.body["reason"]) == (415, "UnsupportedMediaType")
    assert answer.body["message"] == (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )


def _deployment() -> dict[str, Any]:
    containers = [
        {"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}], "ports": [{"containerPort": 80}]},
        {"name": "b", "image": "b:1", "args": ["one"]},
    ]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


async def test_a_strategic_merge_patch_merges_lists_by_their_keys(api: Any) -> None:
    await api.post(api.apps("deployments"), _deployment())
    containers = [
        {"name": "b", "args": ["two"]},
        {"name": "c", "image": "c:1"},
        {"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "$patch": "delete"}]},
    ]
    patch = {"spec": {"template": {"spec": {"containers": containers, "nodeSelector": {"x": "y"}}}}}
    path = api.apps("deployments") + "/web"
    answer = await api.send("PATCH", path, patch, media="application/strategic-merge-patch+json")
    assert answer.code == 200
    after = answer.body["spec"]["template"]["spec"]
    by_name = {one["name"]: one for one in after["containers"]}
    assert list(by_name) == ["b", "c", "a"] or set(by_name) == {"a", "b", "c"}
    assert by_name["b"]["args"] == ["two"]
    assert by_name["b"]["image"] == "b:1"
    assert by_name["a"]["env"] == [{"name": "Y", "value": "2"}]
    assert by_name["a"]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert after["nodeSelector"] == {"x": "y"}


async def test_a_strategic_merge_patch_deletes_replaces_and_orders(api: Any) -> None:
    await api.post(api.apps("deployments"), _deployment())
    path = api.apps("deployments") + "/web"
    patch = {
        "spec": {
            "template": {
                "spec": {
                    "$setElementOrder/containers": [{"name": "d"}, {"name": "a"}],
                    "containers": [{"name": "d", "image": "d:1"}, {"$patch": "delete", "name": "b"}],
                }
            }
        }
    }
    answer = await api.send("PATCH", path, patch, media="application/strategic-merge-patch+json")
    assert [one["name"] for one in answer.body["spec"]["template"]["spec"]["containers"]] == ["d", "a"]
    patch = {
        "spec": {"template": {"spec": {"containers": [{"$patch": "replace"}, {"name": "z", "image": "z"}]}}}
    }
    answer = await api.send("PATCH", path, patch, media="application/strategic-merge-patch+json")
    assert [one["name"] for one in answer.body["spec"]["template"]["spec"]["containers"]] == ["z"]


async def test_an_unreadable_body_is_a_bad_request(api: Any) -> None:
    answer = await api.send("POST", api.core("configmaps"), b"{")
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")


async def test_a_body_may_be_yaml(api: Any) -> None:
    body = b"metadata: {name: from-yaml}\ndata:\n  when: '2001-01-01T00:00:00Z'\n"
    answer = await api.send("POST", api.core("configmaps"), body, media="application/yaml")
    assert (answer.code, answer.body["data"]) == (201, {"when": "2001-01-01T00:00:00Z"})


# --- delete ----------------------------------------------------------------------------------


async def test_a_deletion_answers_with_a_status(api: Any, widget: Any) -> None:
    created = (await api.post(api.widgets, widget("a"))).body
    answer = await api.delete(f"{api.widgets}/a")
    assert (answer.code, answer.body["status"]) == (200, "Success")
    uid = created["metadata"]["uid"]
    assert answer.body["details"] == {
        "name": "a",
        "group": "contract.example.com",
        "kind": "widgets",
        "uid": uid,
    }
    assert (await api.get(f"{api.widgets}/a")).code == 404


async def test_an_object_stays_until_its_finalizers_are_removed(api: Any, widget: Any) -> None:
    body = widget("a")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await api.post(api.widgets, body)
    path = f"{api.widgets}/a"
    dying = await api.delete(path)
    assert dying.code == 200
    assert dying.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert dying.body["metadata"]["generation"] == 2
    again = await api.delete(path)
    assert again.version == dying.version
    rejected = await api.merge(path, {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}})
    assert rejected.code == 422
    assert "no new finalizers can be added if the object is being deleted" in rejected.body["message"]
    last = await api.merge(path, {"metadata": {"finalizers": None}})
    assert last.code == 200
    assert (await api.get(path)).code == 404


async def test_a_deletion_whose_preconditions_fail_conflicts(api: Any, widget: Any) -> None:
    created = (await api.post(api.widgets, widget("a"))).body
    path = f"{api.widgets}/a"
    answer = await api.delete(path, {"preconditions": {"uid": "other"}})
    assert (answer.code, answer.body["reason"]) == (409, "Conflict")
    assert answer.body["message"] == (
        'Operation cannot be fulfilled on Widget.contract.example.com "a": the UID in the precondition (other) does not '
        f"match the UID in record ({created['metadata']['uid']}). The object might have been deleted and then recreated"
    )
    answer = await api.delete(path, {"preconditions": {"resourceVersion": "1"}})
    assert answer.code == 409
    assert (
        "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record"
        in answer.body["message"]
    )
    assert (await api.delete(path, {"preconditions": {"uid": created["metadata"]["uid"]}})).code == 200


async def test_a_collection_is_deleted_by_selector(api: Any, widget: Any) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        body = widget(name)
        body["metadata"]["labels"] = {"l": label}
        await api.post(api.widgets, body)
    answer = await api.delete(api.widgets, labelSelector="l=x")
    assert (answer.code, answer.body["kind"]) == (200, "WidgetList")
    assert [one["metadata"]["name"] for one in (await api.get(api.widgets)).body["items"]] == ["c"]


async def test_the_propagation_policy_adds_a_finalizer(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("a"))
    if not api.real:
        # A controller of the embedded cluster finishes the deletion; a lone kube-apiserver has none.
        await api.delete(f"{api.widgets}/a", {"propagationPolicy": "Foreground"})
        await api.server.settle()
        assert (await api.get(f"{api.widgets}/a")).code == 404
        return
    dying = await api.delete(f"{api.widgets}/a", {"propagationPolicy": "Foreground"})
    assert dying.body["metadata"]["finalizers"] == ["foregroundDeletion"]


# --- dry run ---------------------------------------------------------------------------------


async def test_dry_run_changes_nothing(api: Any, widget: Any) -> None:
    created = await api.post(api.widgets, widget("a"), dryRun="All")
    assert (created.code, created.body["spec"]["color"]) == (201, "red")
    assert (await api.get(f"{api.widgets}/a")).code == 404
    kept = await api.post(api.widgets, widget("a"))
    patched = await api.merge(f"{api.widgets}/a", {"spec": {"size": 9}}, dryRun="All")
    assert patched.body["spec"]["size"] == 9
    assert (await api.delete(f"{api.widgets}/a", dryRun="All")).code == 200
    assert (await api.get(f"{api.widgets}/a")).body == kept.body
    assert (await api.merge(f"{api.widgets}/a", {}, dryRun="Some")).code == 422


async def test_concurrent_writers_of_one_version_have_one_winner(api: Any, widget: Any) -> None:
    created = (await api.post(api.widgets, widget("a"))).body
    bodies = [{**created, "spec": {**created["spec"], "size": size}} for size in range(4, 10)]
    answers = await asyncio.gather(*(api.put(f"{api.widgets}/a", body) for body in bodies))
    assert sorted(answer.code for answer in answers) == [200, 409, 409, 409, 409, 409]
