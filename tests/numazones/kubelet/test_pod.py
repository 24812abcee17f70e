"""Tests of what admission reads out of a pod."""

from typing import Any

import pytest

from numazones.apimachinery.quantity import InvalidQuantity
from numazones.kubelet.demand import ContainerKind, PodLevel, QOSClass
from numazones.kubelet.pod import InvalidPod, Pod


def pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **more: Any) -> Pod:
    spec = {"containers": list(containers), "initContainers": list(init), **more.pop("spec", {})}
    return Pod.from_api({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec, **more})


def asks(
    name: str, requests: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def equal(name: str, **amounts: str) -> dict[str, Any]:
    return asks(name, amounts, amounts)


@pytest.mark.parametrize(
    ("containers", "qos"),
    [
        ([asks("a")], QOSClass.BEST_EFFORT),
        ([{"name": "a"}], QOSClass.BEST_EFFORT),
        ([asks("a", {"vendor/gpu": "1"}, {"vendor/gpu": "1"})], QOSClass.BEST_EFFORT),
        ([asks("a", {"cpu": "0"}, {"memory": "0"})], QOSClass.BEST_EFFORT),
        ([equal("a", cpu="1", memory="1Gi")], QOSClass.GUARANTEED),
        ([asks("a", {"cpu": "1000m", "memory": "1Gi"}, {"cpu": 1, "memory": "1024Mi"})], QOSClass.GUARANTEED),
        ([equal("a", cpu="1", memory="1Gi"), equal("b", cpu="1", memory="1Gi")], QOSClass.GUARANTEED),
        ([equal("a", cpu="1", memory="1Gi"), asks("b")], QOSClass.BURSTABLE),
        ([asks("a", {"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"})], QOSClass.BURSTABLE),
        ([asks("a", {}, {"cpu": "1", "memory": "1Gi"})], QOSClass.BURSTABLE),
        ([equal("a", cpu="1")], QOSClass.BURSTABLE),
    ],
)
def test_the_qos_class_follows_from_requests_and_limits(
    containers: list[dict[str, Any]], qos: QOSClass
) -> None:
    assert pod(*containers).qos is qos


def test_init_containers_count_for_the_qos_class() -> None:
    assert pod(equal("a", cpu="1", memory="1Gi"), init=(asks("i"),)).qos is QOSClass.BURSTABLE


def test_the_status_tells_the_qos_class_first() -> None:
    told = pod(asks("a", {"cpu": "2"}), status={"qosClass": "Guaranteed"})
    assert (told.qos, told.demand().demands[0].cpus) == (QOSClass.GUARANTEED, 2)


def whole(*containers: dict[str, Any], cpu: str = "4", memory: str = "4Gi") -> Pod:
    amounts = {"cpu": cpu, "memory": memory}
    return pod(*containers, spec={"resources": {"requests": amounts, "limits": amounts}})


@pytest.mark.parametrize(
    ("level", "qos", "cpus"),
    [
        (PodLevel.DROPPED, QOSClass.BURSTABLE, [0, 0]),
        (PodLevel.QOS_ONLY, QOSClass.GUARANTEED, [2, 1]),
        (PodLevel.LEFT_ALONE, QOSClass.GUARANTEED, [2, 1]),
        (PodLevel.LEFT_ALONE_UNSEEN, QOSClass.BURSTABLE, [0, 0]),
        (PodLevel.MANAGED, QOSClass.GUARANTEED, [2, 0]),
    ],
)
def test_kubelets_make_different_things_of_pod_level_resources(
    level: PodLevel, qos: QOSClass, cpus: list[int]
) -> None:
    read = whole(equal("own", cpu="2", memory="1Gi"), asks("other", {"cpu": "1"})).demand(level)
    assert read.qos is qos
    assert read.served == (level not in {PodLevel.LEFT_ALONE, PodLevel.LEFT_ALONE_UNSEEN})
    assert [demand.cpus for demand in read.demands] == cpus
    assert read.managed == (level is PodLevel.MANAGED)
    assert read.total.cpus == (4 if read.managed else sum(cpus))


def test_pod_without_pod_level_resources_is_equal_on_all_kubelets() -> None:
    plain = pod(equal("a", cpu="2", memory="1Gi"))
    assert {plain.demand(level) for level in PodLevel} == {plain.demand()}


def test_an_empty_field_decides_the_qos_class_and_no_more() -> None:
    empty = pod(equal("a", cpu="2", memory="1Gi"), spec={"resources": {}})
    assert (empty.qos, empty.demand().served) == (QOSClass.BEST_EFFORT, True)
    assert not empty.demand(PodLevel.MANAGED).managed
    assert empty.demand(PodLevel.DROPPED).qos is QOSClass.GUARANTEED


def test_limits_of_one_resource_alone_make_no_guarantee() -> None:
    assert pod(asks("a"), spec={"resources": {"limits": {"cpu": "1"}}}).qos is QOSClass.BURSTABLE


def test_pod_total_has_no_fractional_cpus_and_no_empty_types() -> None:
    read = whole(asks("a"), cpu="2500m").demand(PodLevel.MANAGED)
    assert (read.total.cpus, read.total.memory) == (0, (("memory", 4 << 30),))
    odd = whole(asks("a"), memory="1.5Gi").demand(PodLevel.MANAGED)
    assert odd.total.memory is None


def test_init_containers_come_first_and_sidecars_are_told_apart() -> None:
    read = pod(asks("app"), init=(asks("first"), asks("side", restartPolicy="Always"), asks("last")))
    assert [(container.name, container.kind) for container in read.containers] == [
        ("first", ContainerKind.INIT),
        ("side", ContainerKind.SIDECAR),
        ("last", ContainerKind.INIT),
        ("app", ContainerKind.APP),
    ]


def test_pod_total_is_the_larger_of_startup_and_running() -> None:
    def one(name: str, cpu: str, **more: Any) -> dict[str, Any]:
        amounts = {"cpu": cpu, "memory": "1Gi", "vendor/gpu": cpu}
        return asks(name, amounts, amounts, **more)

    running = pod(
        one("a", "2"), one("b", "2"), init=(one("side", "1", restartPolicy="Always"), one("i", "3"))
    )
    assert running.demand().total.cpus == 5
    assert dict(running.demand().total.limits)["vendor/gpu"] == 5
    assert running.demand().total.memory == (("memory", 3 << 30),)
    peak = pod(
        one("a", "2"), init=(one("early", "4"), one("side", "1", restartPolicy="Always"), one("late", "4"))
    )
    assert peak.demand().total.cpus == 5


def test_memory_types_of_only_init_containers_are_not_in_total() -> None:
    read = pod(
        equal("a", cpu="1", memory="1Gi"),
        init=(equal("i", cpu="1", memory="1Gi", **{"hugepages-2Mi": "4Mi"}),),
    )
    assert read.demand().total.memory == (("memory", 1 << 30),)
    assert dict(read.demand().demands[0].memory or ())["hugepages-2Mi"] == 4 << 20


def test_an_amount_that_cannot_be_converted_leaves_the_memory_open() -> None:
    read = pod(equal("a", cpu="1", memory="1.5Gi"), equal("b", cpu="1", memory="1Gi"))
    assert read.demand().demands[0].memory is None
    assert read.demand().demands[1].memory == (("memory", 1 << 30),)
    assert read.demand().total.memory is None


def test_a_manifest_gets_the_defaults_of_the_api_server() -> None:
    manifest = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": 2, "memory": "1.5Gi"}}}]},
    }
    read = Pod.from_manifest(manifest)
    assert read.qos is QOSClass.GUARANTEED
    assert read.demand().demands[0].memory == (("memory", 3 << 29),)
    assert Pod.from_api(manifest).qos is QOSClass.BURSTABLE


def test_a_static_pods_uid_is_the_kubelets() -> None:
    mirror = {
        "metadata": {
            "uid": "of-the-mirror",
            "annotations": {"kubernetes.io/config.mirror": "of-the-kubelet"},
        },
        "spec": {"containers": [asks("a")]},
    }
    assert Pod.from_api(mirror).uid == "of-the-kubelet"


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"spec": {}}, "has no containers"),
        ({"spec": {"containers": [{}]}}, "has no name"),
        ({"spec": "x"}, "spec must be a mapping, not str"),
        ({"spec": {"containers": [asks("a")]}, "status": {"qosClass": "Best"}}, "unknown qosClass 'Best'"),
    ],
)
def test_what_is_no_pod_is_rejected(broken: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPod, match=message):
        Pod.from_api(broken)


def test_what_other_placers_than_the_kubelet_read_is_kept() -> None:
    metadata = {"name": "p", "uid": "u", "labels": {"b": "2", "a": "1"}, "annotations": {"x": "{}"}}
    spec = {"containers": [asks("a")], "overhead": {"cpu": "250m"}, "priority": 9500}
    read = Pod.from_api({"metadata": metadata, "spec": spec})
    assert read.labels == (("a", "1"), ("b", "2"))
    assert read.annotations == (("x", "{}"),)
    assert [(name, amount.milli()) for name, amount in read.overhead] == [("cpu", 250)]
    assert read.priority == 9500
    assert pod(asks("a")).priority is None
    with pytest.raises(InvalidPod, match="priority must be an integer, not 'high'"):
        pod(asks("a"), spec={"priority": "high"})


def test_what_is_no_quantity_is_rejected() -> None:
    with pytest.raises(InvalidQuantity, match="'many'"):
        pod(asks("a", {"cpu": "many"}))


def test_equal_pods_are_equal_values() -> None:
    assert pod(equal("a", cpu="1", memory="1Gi")) == pod(equal("a", cpu="1000m", memory="1024Mi"))


def test_pod_of_a_known_template_is_renamed_without_rereading() -> None:
    template = pod(asks("a", {"cpu": "2", "memory": "1Gi"}))
    metadata = {
        "name": "q", "namespace": "n", "uid": "u2", "creationTimestamp": "2026-01-31T08:00:00Z",
        "labels": {"app": "db"}, "annotations": {"kubernetes.io/config.mirror": "static"},
    }  # fmt: skip
    renamed = template.with_metadata(metadata)
    assert (renamed.name, renamed.namespace, renamed.uid) == ("q", "n", "static")
    assert (renamed.labels, renamed.created) == ((("app", "db"),), "2026-01-31T08:00:00Z")
    assert renamed.demand() is template.demand()
    assert template.uid != renamed.uid
