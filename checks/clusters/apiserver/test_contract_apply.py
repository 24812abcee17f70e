"""Server-side apply: who owns what, what conflicts, what is taken away (KEP-555)."""

from typing import Any

import pytest


def owned(body: Any) -> dict[tuple[str, str, str], Any]:
    """Fields by manager, operation and subresource."""
    return {
        (one["manager"], one["operation"], one.get("subresource", "")): one["fieldsV1"]
        for one in body["metadata"]["managedFields"]
    }


def config(widget: Any, **spec: Any) -> Any:
    body = widget("a")
    body["spec"] = spec
    return body


async def test_apply_creates_the_object_and_owns_its_fields(api: Any, widget: Any) -> None:
    body = config(
        widget, size=3, labels={"k": "v"}, tags=["x"], items=[{"name": "one", "value": "1"}], plain=["p"]
    )
    body["metadata"]["labels"] = {"app": "w"}
    answer = await api.apply(f"{api.widgets}/a", body)
    assert answer.code == 201
    assert answer.body["spec"]["color"] == "red"
    assert owned(answer.body) == {
        ("applier", "Apply", ""): {
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {
                "f:size": {},
                "f:labels": {"f:k": {}},
                "f:tags": {'v:"x"': {}},
                "f:plain": {},
                "f:items": {'k:{"name":"one"}': {".": {}, "f:name": {}, "f:value": {}}},
            },
        }
    }


async def test_the_same_apply_again_changes_nothing(api: Any, widget: Any) -> None:
    body = config(widget, size=3, items=[{"name": "one", "value": "1"}])
    first = await api.apply(f"{api.widgets}/a", body)
    second = await api.apply(f"{api.widgets}/a", body)
    assert second.code == 200
    assert second.body == first.body


async def test_fields_that_are_no_longer_applied_are_removed(api: Any, widget: Any) -> None:
    path = f"{api.widgets}/a"
    await api.apply(
        path, config(widget, size=3, short="abc", tags=["x", "y"], items=[{"name": "one"}, {"name": "two"}])
    )
    answer = await api.apply(path, config(widget, size=3, tags=["y"], items=[{"name": "two"}]))
    assert answer.body["spec"] == {
        "size": 3,
        "color": "red",
        "tags": ["y"],
        "items": [{"name": "two", "weight": 1}],
    }
    gone = await api.apply(path, config(widget, size=3))
    assert gone.body["spec"] == {"size": 3, "color": "red"}


async def test_fields_that_other_managers_own_are_kept(api: Any, widget: Any) -> None:
    path = f"{api.widgets}/a"
    await api.apply(path, config(widget, size=3, items=[{"name": "one", "value": "1"}]), "first")
    await api.apply(path, config(widget, size=3, items=[{"name": "one"}, {"name": "two"}]), "second")
    answer = await api.apply(path, config(widget, size=3), "first")
    assert [one["name"] for one in answer.body["spec"]["items"]] == ["one", "two"]
    assert "value" not in answer.body["spec"]["items"][0]


async def test_apply_that_drops_a_parent_keeps_patched_fields(api: Any, widget: Any) -> None:
    path = f"{api.widgets}/a"
    await api.apply(path, config(widget, size=3, labels={"a": "1"}))
    await api.merge(path, {"spec": {"labels": {"b": "2"}}})
    answer = await api.apply(path, config(widget, size=3))
    assert answer.body["spec"]["labels"] == {"b": "2"}


async def test_an_apply_that_changes_another_manager_s_field_conflicts(api: Any, widget: Any) -> None:
    path = f"{api.widgets}/a"
    await api.apply(path, config(widget, size=3), "first")
    answer = await api.apply(path, config(widget, size=4), "second")
    assert (answer.code, answer.body["reason"]) == (409, "Conflict")
    assert answer.body["message"] == 'Apply failed with 1 conflict: conflict with "first": .spec.size'
    assert answer.body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "first"', "field": ".spec.size"}
    ]
    same = await api.apply(path, config(widget, size=3), "second")
    assert same.code == 200
    assert len(owned(same.body)) == 2


async def test_every_conflict_is_named(api: Any, widget: Any) -> None:
    path = f"{api.widgets}/a"
    await api.apply(path, config(widget, size=3, items=[{"name": "one", "value": "1"}]), "first")
    await api.merge(path, {"spec": {"short": "abc"}})
    answer = await api.apply(
        path, config(widget, size=4, short="xyz", items=[{"name": "one", "value": "2"}]), "second"
    )
    assert answer.code == 409
    fields = {(one["message"], one["field"]) for one in answer.body["details"]["causes"]}
    assert {field for _, field in fields} == {".spec.size", ".spec.short", '.spec.items[name="one"].value'}
    assert answer.body["message"].startswith("Apply failed with 3 conflicts: conflicts with ")
    messages = sorted({message for message, _ in fields})
    assert messages[1] == 'conflict with "first"'
    assert messages[0].startswith('conflict with "contract" using contract.example.com/v1')


async def test_a_forced_apply_takes_over_the_field(api: Any, widget: Any) -> None:
    path = f"{api.widgets}/a"
    await api.apply(path, config(widget, size=3, short="abc"), "first")
    answer = await api.apply(path, config(widget, size=4), "second", force="true")
    assert answer.body["spec"]["size"] == 4
    assert owned(answer.body) == {
        ("first", "Apply", ""): {"f:spec": {"f:short": {}}},
        ("second", "Apply", ""): {"f:spec": {"f:size": {}}},
    }


async def test_an_update_owns_the_fields_that_it_changes(api: Any, widget: Any) -> None:
    path = f"{api.widgets}/a"
    await api.apply(path, config(widget, size=3, short="abc"), "first")
    answer = await api.merge(path, {"spec": {"size": 5, "labels": {"x": "y"}}}, fieldManager="editor")
    assert owned(answer.body) == {
        ("first", "Apply", ""): {"f:spec": {"f:short": {}}},
        ("editor", "Update", ""): {"f:spec": {"f:size": {}, "f:labels": {".": {}, "f:x": {}}}},
    }


async def test_the_user_agent_names_the_field_manager(api: Any, widget: Any) -> None:
    created = await api.post(api.widgets, widget("a"))
    assert owned(created.body) == {
        ("contract", "Update", ""): {"f:spec": {".": {}, "f:size": {}, "f:color": {}}}
    }


async def test_status_is_applied_by_its_own_manager(api: Any, widget: Any) -> None:
    path = f"{api.widgets}/a"
    await api.apply(path, config(widget, size=3))
    body = {"apiVersion": "contract.example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
    status = {"phase": "Done", "conditions": [{"type": "Ready", "status": "True"}]}
    answer = await api.apply(f"{path}/status", {**body, "status": status}, "statuser")
    assert answer.code == 200
    assert answer.body["status"] == status
    assert owned(answer.body)["statuser", "Apply", "status"] == {
        "f:status": {
            "f:phase": {},
            "f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:type": {}, "f:status": {}}},
        }
    }
    again = await api.apply(f"{path}/status", {**body, "status": status}, "statuser")
    assert again.version == answer.version
    less = await api.apply(f"{path}/status", {**body, "status": {"phase": "Done"}}, "statuser")
    assert less.body["status"] == {"phase": "Done"}


async def test_status_in_an_apply_of_the_whole_object_is_ignored(api: Any, widget: Any) -> None:
    body = {**config(widget, size=3), "status": {"phase": "Mine"}}
    answer = await api.apply(f"{api.widgets}/a", body)
    assert "status" not in answer.body
    assert owned(answer.body) == {("applier", "Apply", ""): {"f:spec": {"f:size": {}}}}


@pytest.mark.parametrize(
    ("change", "query", "code", "message"),
    [
        ({}, {"fieldManager": None}, 422, "fieldManager: Required value: is required for apply patch"),
        ({"managedFields": [{}]}, {}, 400, "metadata.managedFields must be nil"),
        ({"resourceVersion": "1"}, {}, 409, "the object has been modified"),
    ],
)
async def test_an_apply_that_makes_no_sense_is_rejected(
    api: Any, widget: Any, change: Any, query: Any, code: int, message: str
) -> None:
    await api.apply(f"{api.widgets}/a", config(widget, size=3))
    body = config(widget, size=4)
    body["metadata"] |= change
    fields = {key: value for key, value in ({"fieldManager": "applier"} | query).items() if value}
    answer = await api.send("PATCH", f"{api.widgets}/a", body, media="application/apply-patch+yaml", **fields)
    assert answer.code == code
    assert message in answer.body["message"]


async def test_an_apply_of_unknown_fields_is_rejected(api: Any, widget: Any) -> None:
    answer = await api.apply(f"{api.widgets}/a", config(widget, size=3, extra=1))
    assert answer.code == 500
    assert answer.body["message"].endswith("Kind=Widget): .spec.extra: field not declared in schema")


async def test_list_maps_keep_the_order_of_the_configuration(api: Any, widget: Any) -> None:
    path = f"{api.widgets}/a"
    await api.apply(path, config(widget, size=3, items=[{"name": "b"}, {"name": "d"}]), "first")
    answer = await api.apply(
        path, config(widget, size=3, items=[{"name": "d"}, {"name": "c"}, {"name": "b"}]), "second"
    )
    assert [one["name"] for one in answer.body["spec"]["items"]] == ["d", "c", "b"]
    answer = await api.apply(path, config(widget, size=3, items=[{"name": "e"}, {"name": "b"}]), "third")
    assert [one["name"] for one in answer.body["spec"]["items"]] == ["d", "c", "e", "b"]


async def test_an_apply_of_duplicate_keys_is_rejected(api: Any, widget: Any) -> None:
    body = config(widget, size=3, items=[{"name": "a"}, {"name": "a"}])
    answer = await api.apply(f"{api.widgets}/a", body)
    assert answer.code in (422, 500)
    assert "uplicate" in answer.body["message"]


async def test_an_apply_as_a_dry_run_stores_nothing(api: Any, widget: Any) -> None:
    answer = await api.apply(f"{api.widgets}/a", config(widget, size=3), dryRun="All")
    assert answer.code == 201
    assert (await api.get(f"{api.widgets}/a")).code == 404


async def test_an_empty_entry_of_managed_fields_forgets_all_owners(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("a"))
    path = f"{api.widgets}/a"
    reset = await api.merge(path, {"metadata": {"managedFields": [{}]}})
    assert reset.code == 200
    assert "managedFields" not in reset.body["metadata"]
    answer = await api.apply(path, config(widget, size=4), force="true")
    assert set(owned(answer.body)) == {("applier", "Apply", ""), ("before-first-apply", "Update", "")}


async def test_containers_merge_by_name_and_ports_by_number_and_protocol(api: Any) -> None:
    def deployment(containers: Any) -> Any:
        template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": containers}}
        spec = {"selector": {"matchLabels": {"app": "w"}}, "template": template}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"}, "spec": spec}

    path = api.apps("deployments") + "/w"
    first = [
        {
            "name": "c",
            "image": "c:1",
            "ports": [{"containerPort": 80}],
            "resources": {"limits": {"cpu": "1000m"}},
        }
    ]
    created = await api.apply(path, deployment(first), "first")
    assert created.code == 201, created.body
    assert created.body["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1"}
    ports = owned(created.body)["first", "Apply", ""]["f:spec"]["f:template"]["f:spec"]["f:containers"][
        'k:{"name":"c"}'
    ]["f:ports"]
    assert ports == {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}}
    second = [{"name": "c", "ports": [{"containerPort": 81}]}, {"name": "side", "image": "s:1"}]
    merged = await api.apply(path, deployment(second), "second")
    assert merged.code == 200
    containers = merged.body["spec"]["template"]["spec"]["containers"]
    assert [one["name"] for one in containers] == ["c", "side"]
    assert containers[0]["image"] == "c:1"
    assert {port["containerPort"] for port in containers[0]["ports"]} == {80, 81}
    again = await api.apply(path, deployment(first), "first")
    assert again.version == merged.version


async def test_a_config_map_is_applied_key_by_key(api: Any) -> None:
    path = api.core("configmaps") + "/m"
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
    await api.apply(path, {**head, "data": {"a": "1"}}, "first")
    answer = await api.apply(path, {**head, "data": {"b": "2"}}, "second")
    assert answer.body["data"] == {"a": "1", "b": "2"}
    answer = await api.apply(path, head, "first")
    assert answer.body["data"] == {"b": "2"}
