"""Roles for people: reading for all who view, deciding about plans for those who edit everything."""

from tests.manifests.kustomizations import MANIFESTS, documents

READ = {"get", "list", "watch"}
AGGREGATED = "rbac.authorization.k8s.io/aggregate-to-"


def test_only_those_who_edit_all_namespaces_write_policies_and_plans() -> None:
    roles = list(documents(MANIFESTS / "roles"))
    # A RoleBinding to the cluster's own roles grants nothing of kinds that belong to no namespace.
    assert {role["kind"] for role in roles} == {"ClusterRole"}
    writable: dict[str, set[str]] = {}
    for role in roles:
        held_by = {
            label.removeprefix(AGGREGATED)
            for label, value in role["metadata"]["labels"].items()
            if label.startswith(AGGREGATED) and value == "true"
        }
        for rule in role["rules"]:
            assert rule["apiGroups"] == ["numazones.io"]
            if set(rule["verbs"]) - READ:
                for resource in rule["resources"]:
                    writable.setdefault(resource, set()).update(held_by)
    holders = {"edit", "admin"}
    assert writable == {"rebalancepolicies": holders, "rebalancerecommendations": holders}
