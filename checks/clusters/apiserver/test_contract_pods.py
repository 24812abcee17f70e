# ruff: noqa: E501 - tables of cases read by rows
"""Pods, nodes and what belongs to them: defaults, binding, graceful deletion, eviction."""

from typing import Any

import pytest

READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def _limited(**resources: Any) -> Any:
    return {"containers": [{"name": "c", "image": "c:1", "resources": resources}]}


async def test_a_pod_gets_its_defaults(api: Any, pod: Any) -> None:
    body = (await api.post(api.core("pods"), pod("p"))).body
    spec = body["spec"]
    for key, value in {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "enableServiceLinks": True,
    }.items():
        assert spec[key] == value
    assert spec["containers"][0] == {
        "name": "c",
        "image": "registry.example/c:1",
        "imagePullPolicy": "IfNotPresent",
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    assert [one["key"] for one in spec["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert body["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert body["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("resources", "requests", "limits", "qos"),
    [
        ({"limits": {"cpu": "2", "memory": "1Gi"}}, {"cpu": "2", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}, "Guaranteed"),
        ({"requests": {"cpu": "1500m"}}, {"cpu": "1500m"}, None, "Burstable"),
        ({"limits": {"cpu": "1000m", "memory": "1024Mi"}}, {"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}, "Guaranteed"),
        ({"requests": {"memory": 1048576}}, {"memory": "1048576"}, None, "Burstable"),
        ({"requests": {"cpu": 0.5}}, {"cpu": "500m"}, None, "Burstable"),
        ({"limits": {"example.com/nic": 2}}, {"example.com/nic": "2"}, {"example.com/nic": "2"}, "BestEffort"),
        ({"requests": {"memory": "1500M"}}, {"memory": "1500M"}, None, "Burstable"),
        ({"requests": {"memory": "0.5Gi"}}, {"memory": "512Mi"}, None, "Burstable"),
        ({"requests": {"memory": "1e3"}}, {"memory": "1e3"}, None, "Burstable"),
        ({"requests": {"cpu": "9e99"}}, {"cpu": "9e99"}, None, "Burstable"),
        ({"requests": {"cpu": None}}, {"cpu": "0"}, None, "BestEffort"),
    ],
)  # fmt: skip
async def test_quantities_of_a_pod_are_written_back_in_canonical_form(
    api: Any, pod: Any, resources: Any, requests: Any, limits: Any, qos: str
) -> None:
    answer = await api.post(api.core("pods"), pod("p", **_limited(**resources)))
    assert answer.code == 201, answer.body
    found = answer.body["spec"]["containers"][0]["resources"]
    assert found.get("requests") == requests
    assert found.get("limits") == limits
    assert answer.body["status"]["qosClass"] == qos


@pytest.mark.parametrize(
    ("of_pod", "of_container", "requests", "qos"),
    [
        ({"limits": {"cpu": "2", "memory": "1Gi"}}, {}, {"cpu": "2", "memory": "1Gi"}, "Guaranteed"),
        (
            {"limits": {"cpu": "2", "memory": "1Gi"}},
            {"requests": {"cpu": "1"}},
            {"cpu": "1", "memory": "1Gi"},
            "Burstable",
        ),
        (
            {"requests": {"cpu": "2", "memory": "1Gi"}},
            {"limits": {"cpu": "1", "memory": "1Gi"}},
            {"cpu": "2", "memory": "1Gi"},
            "Burstable",
        ),
        ({"limits": {"cpu": "2"}}, {}, {"cpu": "2"}, "Burstable"),
    ],
)
async def test_pod_level_resources_have_defaults_and_decide_the_qos_class(
    api: Any, pod: Any, of_pod: Any, of_container: Any, requests: Any, qos: str
) -> None:
    container = {"name": "c", "image": "registry.example/c:1", "resources": of_container}
    answer = await api.post(api.core("pods"), pod("p", resources=of_pod, containers=[container]))
    assert answer.code == 201, answer.body
    assert answer.body["spec"]["resources"]["requests"] == requests
    assert answer.body["status"]["qosClass"] == qos


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"containers": []}, "spec.containers", "Required value"),
        ({"containers": [{"image": "i"}]}, "spec.containers[0].name", "Required value"),
        ({"containers": [{"name": "c"}]}, "spec.containers[0].image", "Required value"),
        ({"containers": [{"name": "C_", "image": "i"}]}, "spec.containers[0].name", "a lowercase RFC 1123 label must consist of"),
        ({"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]}, "spec.containers[1].name", 'Duplicate value: "c"'),
        (_limited(requests={"cpu": "2"}, limits={"cpu": "1"}), "spec.containers[0].resources.requests", 'Invalid value: "2": must be less than or equal to cpu limit of 1'),
        (_limited(requests={"example.com/x": "1"}), "spec.containers[0].resources.limits", "Limit must be set for non overcommitable resources"),
    ],
)  # fmt: skip
async def test_broken_pods_are_invalid(api: Any, pod: Any, spec: Any, field: str, message: str) -> None:
    answer = await api.post(api.core("pods"), pod("p", **spec))
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert field in [one for one, _ in answer.causes]
    assert message in answer.body["message"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"containers": [{"name": 1}]}, "json: cannot unmarshal number into Go struct field"),
        ({"containers": "c"}, "json: cannot unmarshal string into Go struct field"),
        (_limited(limits={"cpu": "x"}), "quantities must match the regular expression"),
        (_limited(limits={"cpu": [1]}), "quantities must match the regular expression"),
        (_limited(limits={"cpu": {"a": 1}}), "quantities must match the regular expression"),
    ],
)
async def test_pods_that_cannot_be_decoded_are_bad_requests(
    api: Any, pod: Any, spec: Any, message: str
) -> None:
    answer = await api.post(api.core("pods"), pod("p", **spec))
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    assert answer.body["message"].startswith('Pod in version "v1" cannot be handled as a Pod: ')
    assert message in answer.body["message"]


async def test_unknown_fields_of_built_in_kinds_cause_warnings_or_rejection(api: Any, pod: Any) -> None:
    answer = await api.post(api.core("pods"), pod("p", extra=1), fieldValidation="Strict")
    assert answer.code == 400
    assert answer.body["message"] == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.extra"'
    )
    warned = await api.post(api.core("pods"), pod("p", extra=1))
    assert warned.code == 201
    assert warned.headers.getall("Warning") == ['299 - "unknown field \\"spec.extra\\""']


async def test_a_priority_class_sets_the_priority(api: Any, pod: Any) -> None:
    answer = await api.post(api.core("pods"), pod("p", priorityClassName="system-node-critical"))
    assert answer.body["spec"]["priority"] == 2000001000
    rejected = await api.post(api.core("pods"), pod("q", priorityClassName="absent"))
    assert (rejected.code, rejected.body["reason"]) == (403, "Forbidden")
    assert "no PriorityClass with name absent was found" in rejected.body["message"]


async def test_few_fields_of_a_pod_s_spec_may_change(api: Any, pod: Any) -> None:
    path = api.core("pods")
    created = (await api.post(path, pod("p"))).body
    created["spec"]["containers"][0]["image"] = "registry.example/c:2"
    changed = await api.put(f"{path}/p", created)
    assert changed.code == 200
    assert changed.body["metadata"]["generation"] == 2
    body = changed.body
    body["spec"]["containers"][0]["command"] = ["x"]
    rejected = await api.put(f"{path}/p", body)
    assert rejected.code == 422
    assert (
        "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`"
        in rejected.body["message"]
    )


async def test_a_gated_pod_has_a_condition_until_it_is_bound(api: Any, pod: Any) -> None:
    body = pod("gated", schedulingGates=[{"name": "example.com/wait"}])
    path = f"{api.core('pods')}/gated"
    created = (await api.post(api.core("pods"), body)).body
    (condition,) = created["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    assert condition["reason"] == "SchedulingGated"
    assert condition["message"] == "Scheduling is blocked due to non-empty scheduling gates"
    assert (await api.merge(path, {"spec": {"schedulingGates": None}})).code == 200
    binding = {"metadata": {"name": "gated"}, "target": {"kind": "Node", "name": "node-1"}}
    assert (await api.post(f"{path}/binding", binding)).code == 201
    bound = (await api.get(path)).body
    (scheduled,) = [one for one in bound["status"]["conditions"] if one["type"] == "PodScheduled"]
    assert (scheduled["status"], scheduled.get("reason")) == ("True", None)


_OF_TERMS = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
_ONLY_ADDITIONS = "only additions are allowed (no mutations or deletions)"
_SAME_NUMBER = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
_ONE_VALUE = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"


def _name_is(*names: str) -> Any:
    return {"key": "metadata.name", "operator": "In", "values": list(names)}


_ZONE: Any = {"key": "zone", "operator": "Exists"}
_BY_ZONE: Any = {"matchExpressions": [_ZONE]}
_BY_NAME: Any = {"matchFields": [_name_is("n1")]}


@pytest.mark.parametrize(
    ("before", "after", "errors"),
    [
        pytest.param(None, [_BY_NAME], [], id="any where there was none"),
        pytest.param([_BY_NAME], [{"matchFields": [_name_is("n2")]}], [(f"{_OF_TERMS}[0]", _ONLY_ADDITIONS)], id="changed value"),
        pytest.param([_BY_ZONE], None, [(_OF_TERMS, _SAME_NUMBER)], id="taken away"),
        pytest.param([_BY_ZONE], [_BY_ZONE, _BY_NAME], [(_OF_TERMS, _SAME_NUMBER)], id="one term more"),
        pytest.param([_BY_ZONE, _BY_NAME], [_BY_ZONE], [(_OF_TERMS, _SAME_NUMBER)], id="one term less"),
        pytest.param([_BY_ZONE], [_BY_ZONE | _BY_NAME], [], id="the name beside labels"),
        pytest.param([_BY_NAME], [_BY_ZONE | _BY_NAME], [], id="labels beside the name"),
        pytest.param([_BY_NAME], [{"matchFields": [_name_is("n1"), _name_is("n1")]}], [], id="appended"),
        pytest.param([_BY_ZONE], [{"matchFields": [_name_is("n1")]}], [(f"{_OF_TERMS}[0]", _ONLY_ADDITIONS)], id="replaced"),
        pytest.param([{"matchFields": [_name_is("n1")]}], [{"matchFields": [_name_is("n2"), _name_is("n1")]}], [(f"{_OF_TERMS}[0]", _ONLY_ADDITIONS)], id="put in front"),
        pytest.param([{}, _BY_ZONE], [_BY_NAME, _BY_ZONE], [(f"{_OF_TERMS}[0]", _ONLY_ADDITIONS)], id="an empty term filled"),
        pytest.param([{}, _BY_ZONE], [{}, _BY_ZONE | _BY_NAME], [], id="an empty term left"),
        pytest.param(None, [{"matchFields": [_name_is("n1", "n2")]}], [(f"{_OF_TERMS}[0].matchFields[0].values", _ONE_VALUE)], id="two names in one requirement"),
        pytest.param([_BY_ZONE], [{"matchExpressions": [_ZONE, {"key": "host", "operator": "In", "values": []}]}], [(f"{_OF_TERMS}[0].matchExpressions[1].values", "must be specified when `operator` is 'In' or 'NotIn'")], id="among no values"),
    ],
)  # fmt: skip
async def test_node_affinity_of_a_gated_pod_may_only_become_stricter(
    api: Any, pod: Any, before: Any, after: Any, errors: list[tuple[str, str]]
) -> None:
    """Together with taking the gate away, as what releases pods does."""

    def affinity(terms: Any) -> Any:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        return {} if terms is None else {"affinity": {"nodeAffinity": required}}

    gates = [{"name": "example.com/wait"}]
    body = (await api.post(api.core("pods"), pod("p", schedulingGates=gates, **affinity(before)))).body
    body["spec"].pop("affinity", None)
    body["spec"] |= {"schedulingGates": [], **affinity(after)}
    answer = await api.put(f"{api.core('pods')}/p", body)
    assert answer.code == (422 if errors else 200), answer.body
    found = answer.causes if errors else []
    assert [field for field, _ in found] == [field for field, _ in errors]
    assert all(message in answer.body["message"] for _, message in errors)


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"schedulingGates": [{"name": "other/gate"}]}, "spec.schedulingGates[0].name", "Forbidden: only deletion is allowed, but found new scheduling gate 'other/gate'"),
        ({"nodeSelector": {"disk": "hdd"}}, "spec.nodeSelector", 'Invalid value: {"disk":"hdd"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)'),
        ({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}, "spec", "pod updates may not change fields"),
        ({"terminationGracePeriodSeconds": 7}, "spec", "pod updates may not change fields"),
    ],
)  # fmt: skip
async def test_nothing_else_of_a_gated_pod_may_change(
    api: Any, pod: Any, change: Any, field: str, message: str
) -> None:
    gates = [{"name": "example.com/wait"}]
    body = (
        await api.post(api.core("pods"), pod("p", schedulingGates=gates, nodeSelector={"disk": "ssd"}))
    ).body
    body["spec"] |= change
    answer = await api.put(f"{api.core('pods')}/p", body)
    assert answer.code == 422
    assert [found for found, _ in answer.causes] == [field]
    assert message in answer.body["message"]


async def test_more_node_selectors_may_be_added_to_a_gated_pod(api: Any, pod: Any) -> None:
    gates = [{"name": "example.com/wait"}]
    body = (
        await api.post(api.core("pods"), pod("p", schedulingGates=gates, nodeSelector={"disk": "ssd"}))
    ).body
    body["spec"]["nodeSelector"]["zone"] = "a"
    assert (await api.put(f"{api.core('pods')}/p", body)).code == 200


async def test_a_gated_pod_cannot_be_made_on_a_node(api: Any, pod: Any) -> None:
    answer = await api.post(
        api.core("pods"), pod("p", nodeName="n1", schedulingGates=[{"name": "example.com/wait"}])
    )
    assert answer.code == 422
    why = "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"
    assert answer.body["message"] == f'Pod "p" is invalid: {why}'


async def test_binding_assigns_a_node_once(api: Any, pod: Any) -> None:
    path = api.core("pods")
    await api.post(path, pod("p"))
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n1"},
    }
    answer = await api.post(f"{path}/p/binding", binding)
    assert (answer.code, answer.body["status"]) == (201, "Success")
    body = (await api.get(f"{path}/p")).body
    assert body["spec"]["nodeName"] == "n1"
    [condition] = body["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    again = await api.post(f"{path}/p/binding", binding)
    assert again.code == 409
    assert again.body["message"] == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"'
    )


async def test_a_bound_pod_is_deleted_gracefully(api: Any, pod: Any) -> None:
    path = api.core("pods")
    await api.post(path, pod("p", nodeName="n1"))
    dying = await api.delete(f"{path}/p")
    assert dying.code == 200
    assert dying.body["kind"] == "Pod"
    assert dying.body["metadata"]["deletionGracePeriodSeconds"] == 30
    assert dying.body["metadata"]["deletionTimestamp"] > dying.body["metadata"]["creationTimestamp"]
    assert (await api.get(f"{path}/p")).code == 200
    final = await api.delete(f"{path}/p", {"gracePeriodSeconds": 0})
    assert final.code == 200
    assert (await api.get(f"{path}/p")).code == 404


async def test_an_unbound_pod_is_deleted_at_once(api: Any, pod: Any) -> None:
    path = api.core("pods")
    await api.post(path, pod("p"))
    answer = await api.delete(f"{path}/p")
    assert (answer.code, answer.body["kind"]) == (200, "Pod")
    assert (await api.get(f"{path}/p")).code == 404


async def test_status_of_a_pod_is_merged_by_condition_type(api: Any, pod: Any) -> None:
    path = api.core("pods")
    await api.post(path, pod("p"))
    await api.merge(f"{path}/p/status", {"status": READY})
    patch = {"status": {"conditions": [{"type": "Initialized", "status": "True"}]}}
    answer = await api.send(
        "PATCH", f"{path}/p/status", patch, media="application/strategic-merge-patch+json"
    )
    assert {one["type"] for one in answer.body["status"]["conditions"]} == {"Ready", "Initialized"}
    assert answer.body["status"]["phase"] == "Running"
    ignored = await api.merge(f"{path}/p", {"status": {"phase": "Failed"}})
    assert ignored.body["status"]["phase"] == "Running"


# --- eviction --------------------------------------------------------------------------------


def _eviction(name: str, **options: Any) -> Any:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name},
        "deleteOptions": options,
    }


async def _running(api: Any, pod: Any, *names: str) -> str:
    path: str = api.core("pods")
    for name in names:
        body = pod(name, nodeName="n1")
        body["metadata"]["labels"] = {"app": "web"}
        assert (await api.post(path, body)).code == 201
        assert (await api.merge(f"{path}/{name}/status", {"status": READY})).code == 200
    return path


async def _budget(api: Any, name: str, healthy: int, desired: int, **spec: Any) -> None:
    """A budget whose status says what its controller would say; a lone kube-apiserver has none."""
    path = f"/apis/policy/v1/namespaces/{api.namespace}/poddisruptionbudgets"
    body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec}}
    created = await api.post(path, body)
    assert created.code == 201, created.body
    if api.real:
        allowed = max(healthy - desired, 0)
        status = {"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": desired}
        status |= {"expectedPods": healthy, "observedGeneration": 1}
        written = await api.merge(f"{path}/{name}/status", {"status": status})
        assert written.code == 200, written.body
    else:
        await api.server.settle()


async def test_an_eviction_adds_a_condition_and_deletes_the_pod(api: Any, pod: Any) -> None:
    path = await _running(api, pod, "p")
    answer = await api.post(f"{path}/p/eviction", _eviction("p"))
    assert (answer.code, answer.body["status"]) == (201, "Success")
    body = (await api.get(f"{path}/p")).body
    assert body["metadata"]["deletionTimestamp"]
    target = next(one for one in body["status"]["conditions"] if one["type"] == "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")
    assert target["message"] == "Eviction API: evicting"


async def test_eviction_of_a_missing_pod_is_not_found(api: Any) -> None:
    answer = await api.post(api.core("pods") + "/none/eviction", _eviction("none"))
    assert (answer.code, answer.body["message"]) == (404, 'pods "none" not found')


async def test_a_budget_that_allows_no_disruption_rejects_the_eviction(api: Any, pod: Any) -> None:
    path = await _running(api, pod, "p")
    await _budget(api, "guard", 1, 1, minAvailable=1)
    answer = await api.post(f"{path}/p/eviction", _eviction("p"))
    assert (answer.code, answer.body["reason"]) == (429, "TooManyRequests")
    assert answer.body["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert answer.body["details"]["causes"] == [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget guard needs 1 healthy pods and has 1 currently",
        }
    ]
    assert "deletionTimestamp" not in (await api.get(f"{path}/p")).body["metadata"]


async def test_an_eviction_lowers_the_disruptions_that_a_budget_allows(api: Any, pod: Any) -> None:
    path = await _running(api, pod, "p", "q")
    await _budget(api, "guard", 2, 1, minAvailable=1)
    assert (await api.post(f"{path}/p/eviction", _eviction("p", dryRun=["All"]))).code == 201
    assert (await api.post(f"{path}/p/eviction", _eviction("p"))).code == 201
    guard = (await api.get(f"/apis/policy/v1/namespaces/{api.namespace}/poddisruptionbudgets/guard")).body
    assert guard["status"]["disruptionsAllowed"] == 0
    rejected = await api.post(f"{path}/q/eviction", _eviction("q"))
    assert rejected.code == 429


async def test_a_pod_with_two_budgets_cannot_be_evicted(api: Any, pod: Any) -> None:
    path = await _running(api, pod, "p")
    await _budget(api, "one", 1, 0, minAvailable=0)
    await _budget(api, "two", 1, 0, minAvailable=0)
    answer = await api.post(f"{path}/p/eviction", _eviction("p"))
    assert answer.code == 500
    assert answer.body["message"] == (
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    )


async def test_a_pending_pod_is_evicted_whatever_the_budget(api: Any, pod: Any) -> None:
    path = api.core("pods")
    body = pod("p", nodeName="n1")
    body["metadata"]["labels"] = {"app": "web"}
    await api.post(path, body)
    await _budget(api, "guard", 0, 1, minAvailable=1)
    assert (await api.post(f"{path}/p/eviction", _eviction("p"))).code == 201


async def test_an_eviction_whose_preconditions_fail_conflicts(api: Any, pod: Any) -> None:
    path = await _running(api, pod, "p")
    answer = await api.post(f"{path}/p/eviction", _eviction("p", preconditions={"uid": "other"}))
    assert (answer.code, answer.body["reason"]) == (409, "Conflict")


# --- other kinds -----------------------------------------------------------------------------


async def test_a_lease_is_stored_and_its_duration_checked(api: Any) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases"
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    created = await api.post(path, {"metadata": {"name": "l"}, "spec": spec})
    assert (created.code, created.body["spec"]) == (201, spec)
    rejected = await api.post(path, {"metadata": {"name": "m"}, "spec": {"leaseDurationSeconds": 0}})
    assert rejected.code == 422
    assert "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0" in rejected.body["message"]


async def test_a_node_keeps_the_status_it_registers_with(api: Any) -> None:
    name = f"node-{api.namespace}"
    status = {"capacity": {"cpu": "4000m", "memory": "16Gi"}, "nodeInfo": _node_info()}
    created = await api.post("/api/v1/nodes", {"metadata": {"name": name}, "status": status})
    assert created.code == 201, created.body
    assert created.body["status"]["capacity"] == {"cpu": "4", "memory": "16Gi"}
    patch = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    patched = await api.send(
        "PATCH", f"/api/v1/nodes/{name}/status", patch, media="application/strategic-merge-patch+json"
    )
    assert patched.body["status"]["conditions"][0]["type"] == "Ready"
    await api.delete(f"/api/v1/nodes/{name}")


def _node_info() -> dict[str, str]:
    names = "machineID systemUUID bootID kernelVersion osImage containerRuntimeVersion kubeletVersion"
    return dict.fromkeys(f"{names} kubeProxyVersion operatingSystem architecture".split(), "x")


async def test_the_selector_of_a_workload_must_match_its_template(api: Any) -> None:
    template = {"metadata": {"labels": {"app": "b"}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}}
    body = {
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template},
    }
    answer = await api.post(api.apps("deployments"), body)
    assert answer.code == 422
    assert "`selector` does not match template `labels`" in answer.body["message"]


async def test_replicas_are_read_and_set_through_the_scale_subresource(api: Any) -> None:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}}
    body = {
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template},
    }
    path = api.apps("deployments")
    await api.post(path, body)
    scale = (await api.get(f"{path}/d/scale")).body
    assert (scale["kind"], scale["apiVersion"], scale["spec"]) == ("Scale", "autoscaling/v1", {"replicas": 1})
    assert scale["status"]["selector"] == "app=a"
    answer = await api.merge(f"{path}/d/scale", {"spec": {"replicas": 7}})
    assert (answer.code, answer.body["spec"]) == (200, {"replicas": 7})
    assert (await api.get(f"{path}/d")).body["spec"]["replicas"] == 7


async def test_a_budget_cannot_have_both_bounds(api: Any) -> None:
    path = f"/apis/policy/v1/namespaces/{api.namespace}/poddisruptionbudgets"
    answer = await api.post(
        path, {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "maxUnavailable": 1}}
    )
    assert answer.code == 422
    assert "minAvailable and maxUnavailable cannot be both set" in answer.body["message"]


async def test_secrets_take_plain_strings(api: Any) -> None:
    answer = await api.post(api.core("secrets"), {"metadata": {"name": "s"}, "stringData": {"k": "v"}})
    assert answer.body["data"] == {"k": "dg=="}
    assert answer.body["type"] == "Opaque"
    assert "stringData" not in answer.body


async def test_network_policies_have_types(api: Any) -> None:
    path = f"/apis/networking.k8s.io/v1/namespaces/{api.namespace}/networkpolicies"
    answer = await api.post(path, {"metadata": {"name": "n"}, "spec": {"podSelector": {}, "egress": [{}]}})
    assert (answer.code, answer.body["spec"]["policyTypes"]) == (201, ["Ingress", "Egress"])
    answer = await api.post(path, {"metadata": {"name": "m"}, "spec": {"podSelector": {}}})
    assert answer.body["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    assert answer.body["metadata"]["generation"] == 1


async def test_immutable_config_maps_cannot_be_changed(api: Any) -> None:
    path = api.core("configmaps")
    await api.post(path, {"metadata": {"name": "i"}, "data": {"a": "1"}, "immutable": True})
    answer = await api.merge(f"{path}/i", {"data": {"a": "2"}})
    assert answer.code == 422
    assert "field is immutable when `immutable` is set" in answer.body["message"]


async def test_built_in_namespaces_cannot_be_deleted(api: Any) -> None:
    answer = await api.delete("/api/v1/namespaces/default")
    assert (answer.code, answer.body["reason"]) == (403, "Forbidden")
    assert answer.body["message"] == 'namespaces "default" is forbidden: this namespace may not be deleted'


async def test_limit_range_gives_defaults_to_the_containers_of_later_pods(api: Any, pod: Any) -> None:
    item = {
        "type": "Container",
        "max": {"cpu": "4", "memory": "4Gi"},
        "default": {"memory": "1Gi"},
        "defaultRequest": {"cpu": "500m"},
    }
    body = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "usual"},
        "spec": {"limits": [item, {"type": "Pod", "max": {"cpu": "8"}}]},
    }
    created = (await api.post(api.core("limitranges"), body)).body
    container, whole = created["spec"]["limits"]
    assert container["default"] == {"cpu": "4", "memory": "1Gi"}
    assert container["defaultRequest"] == {"cpu": "500m", "memory": "1Gi"}
    assert whole == {"type": "Pod", "max": {"cpu": "8"}}
    made = (await api.post(api.core("pods"), pod("p", **_limited(requests={"cpu": "2"})))).body
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "4", "memory": "1Gi"},
        "requests": {"cpu": "2", "memory": "1Gi"},
    }
    assert made["status"]["qosClass"] == "Burstable"
    assert (await api.delete(f"{api.core('limitranges')}/usual")).code == 200
    made = (await api.post(api.core("pods"), pod("q"))).body
    assert made["spec"]["containers"][0]["resources"] == {}


async def test_a_runtime_class_adds_overhead_selector_and_tolerations(api: Any, pod: Any) -> None:
    name = f"sandboxed-{api.namespace}"
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    body = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
        "scheduling": {
            "nodeSelector": {"kata": "yes"},
            "tolerations": [{"key": "kata", "operator": "Exists"}],
        },
    }
    assert (await api.post(path, body)).code == 201
    made = (await api.post(api.core("pods"), pod("p", runtimeClassName=name))).body
    assert made["spec"]["overhead"] == {"cpu": "250m", "memory": "120Mi"}
    assert made["spec"]["nodeSelector"] == {"kata": "yes"}
    assert {"key": "kata", "operator": "Exists"} in made["spec"]["tolerations"]
    changed = await api.merge(f"{path}/{name}", {"handler": "other"})
    assert (changed.code, changed.body["details"]["causes"][0]["field"]) == (422, "handler")
    assert (await api.delete(f"{path}/{name}")).code == 200
    unknown = await api.post(api.core("pods"), pod("q", runtimeClassName="no-such-class"))
    assert (unknown.code, unknown.body["message"]) == (
        403,
        'pods "q" is forbidden: pod rejected: RuntimeClass "no-such-class" not found',
    )
