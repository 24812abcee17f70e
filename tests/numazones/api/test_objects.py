"""Reading and writing objects: newer writers are read, broken ones are named."""

import pytest

from numazones.api.eviction_limits import EvictionLimits
from numazones.api.meta import API_VERSION, Condition, InvalidResource, ObjectMeta
from numazones.api.numazone import NUMAZone, NUMAZoneSpec, NUMAZoneStatus, ZoneResource, zone_name
from numazones.api.prediction import AdmissionPrediction
from numazones.api.rebalance import RebalancePolicy, RebalanceRecommendation
from numazones.apimachinery import duration
from numazones.rebalance.protections import DEFAULT, Protections
from numazones_client.resources import NUMAZONES


def test_object_is_written_with_its_type_and_without_empty_fields() -> None:
    zone = NUMAZone(
        metadata=ObjectMeta(name=zone_name("worker", 3)),
        spec=NUMAZoneSpec(node_name="worker", numa_id=3),
        status=NUMAZoneStatus(resources=(ZoneResource(name="cpu", capacity="4"),)),
    )
    assert zone.to_api() == {
        "apiVersion": "numazones.io/v1alpha1",
        "kind": "NUMAZone",
        "metadata": {"name": "worker-numa-3"},
        "spec": {"nodeName": "worker", "numaID": 3},
        "status": {"resources": [{"name": "cpu", "capacity": "4"}]},
    }
    assert NUMAZone.from_api(zone.to_api()) == zone


def test_a_newer_writers_fields_and_policies_are_read() -> None:
    zone = NUMAZone.from_api(
        {
            "apiVersion": "numazones.io/v1alpha1",
            "kind": "NUMAZone",
            "metadata": {"name": "a-numa-0", "managedFields": []},
            "spec": {"nodeName": "a", "numaID": 0, "color": "red"},
            "status": {
                "kubelet": {
                    "topologyManagerPolicy": "balanced",
                    "cpuManagerPolicyOptions": {"turbo": "true"},
                },
                "temperature": 40,
            },
        }
    )
    assert zone.status is not None
    assert zone.status.kubelet is not None
    assert zone.status.kubelet.topology_manager_policy == "balanced"
    assert AdmissionPrediction.from_api({"spec": {"podUID": "u"}, "status": {"verdict": "Perhaps"}}).status


def test_numbers_stand_for_quantities() -> None:
    assert ZoneResource.model_validate({"name": "cpu", "capacity": 4}).capacity == "4"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"kind": "Pod"}, "expected a NUMAZone, not a 'Pod'"),
        ({}, r"NUMAZone \(unnamed\): spec is missing\. Upgrade the program that wrote it, or delete it"),
        (
            {"metadata": {"name": "z"}, "spec": {"nodeName": "a", "numaID": -1}},
            "NUMAZone z: spec.numaID: must be at least 0, not -1",
        ),
        (
            {
                "spec": {"nodeName": "a", "numaID": 0},
                "status": {"resources": [{"name": "cpu", "capacity": "x"}]},
            },
            r'status.resources\[0\].capacity: "x" is not a quantity, such as 16',
        ),
        (
            {"spec": {"nodeName": "", "numaID": "x"}},
            r'spec.nodeName: must not be empty; spec.numaID: must be a whole number, not "x"',
        ),
        ({"metadata": 1, "spec": 2}, "metadata: must be an object with fields, not 1"),
    ],
)
def test_what_is_wrong_with_an_object_is_named(body: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidResource, match=message):
        NUMAZone.from_api(body)


def test_a_condition_has_one_of_three_statuses() -> None:
    with pytest.raises(ValueError, match="status"):
        Condition.model_validate({"type": "Ready", "status": "Perhaps", "reason": "R"})


def test_a_policys_settings_are_those_the_library_reads() -> None:
    policy = RebalancePolicy.from_api(
        {
            "metadata": {"name": "p"},
            "spec": {
                "protections": {
                    "podProtections": {
                        "extraEnabled": ["PodsWithPVC"],
                        "config": {"PodsWithPVC": {"protectedStorageClasses": [{"name": "fast"}]}},
                    },
                    "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                    "namespaceLabelSelector": {},
                    "priorityThreshold": {"value": 10},
                    "namespaces": {"exclude": ["kube-system"]},
                    "minPodAge": "5m",
                },
                "limits": {"maxNoOfPodsToEvictTotal": 3, "maxNoOfPodsToEvictPerNode": 1},
            },
        }
    )
    protections = Protections.of(policy.spec.protections, {})
    assert protections.effective == (*DEFAULT, "PodsWithPVC")
    assert protections.storage_classes == {"fast"}
    assert protections.excluded_namespaces == {"kube-system"}
    assert protections.namespace_label_selector is not None
    assert protections.priority_threshold == 10
    assert policy.spec.limits == EvictionLimits(total=3, per_node=1)
    for text in (policy.spec.cooldown, policy.spec.expiry, policy.spec.schedule.interval):
        assert duration.parse(text).total_seconds() > 0


def test_a_policy_without_settings_only_recommends() -> None:
    spec = RebalancePolicy.from_api({"spec": {}}).spec
    assert (spec.mode, spec.target, spec.goals.pending_pods) == ("Recommend", "Any", True)
    assert Protections.of(spec.protections, {}) == Protections()


def test_the_client_knows_zones_by_the_same_name() -> None:
    resource = NUMAZone.RESOURCE
    assert (resource.crd_name, resource.plural) == (NUMAZONES.full_name, NUMAZONES.plural)
    assert NUMAZONES.api_version == API_VERSION
    assert (resource.scope == "Namespaced") == NUMAZONES.namespaced


def test_a_recommendation_is_read_with_its_moves() -> None:
    place = {"node": "a", "numaIDs": [0]}
    body = {
        "apiVersion": "numazones.io/v1alpha1",
        "kind": "RebalanceRecommendation",
        "metadata": {"name": "r"},
        "spec": {
            "policy": "p",
            "goal": "default/big fits",
            "moves": [{"pod": {"namespace": "d", "name": "p"}, "source": place, "target": {"node": "b"}}],
            "gain": {"before": 0, "after": 1, "total": 1},
            "disruption": {"evictions": 1, "cpus": "2"},
            "digest": "0",
        },
    }
    assert RebalanceRecommendation.from_api(body).to_api() == body
