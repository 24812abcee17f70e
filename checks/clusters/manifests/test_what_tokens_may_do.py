"""Tests that a thief of a program's token is limited, by the shipped rules and by a real API server."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from ssl import create_default_context
from typing import Any

import pytest

from tests.manifests.kustomizations import MANIFESTS, composition
from tests.real_apiserver import ASSETS, RealAPIServer, run
from tests.yaml_files import documents

COMPONENTS = (
    "components/exporter-noderesourcetopologies",
    "components/exporter-recordings",
    "components/operator-admission-gate",
    "components/operator-eviction",
)
FOLDERS = ("exporter", "operator", "extender", "scheduler", *COMPONENTS)
EXPORTER = "system:serviceaccount:numazones-system:numazones-exporter"
ANNOTATION = "numazones may change only its own annotations of pod victim"
METADATA = "numazones may change only its own annotations in the metadata of pod victim"
OPERATOR = "system:serviceaccount:numazones-operator:numazones-operator"
EXTENDER = "system:serviceaccount:numazones-operator:numazones-extender"
SCHEDULER = "system:serviceaccount:numazones-operator:numazones-scheduler"

WRITE = ("create", "update", "patch", "delete", "deletecollection")
READ = ("get", "list", "watch")
NEVER = (
    (READ + WRITE, "", "secrets"),
    (("list", "watch"), "", "configmaps"),
    (("create", "update", "delete", "deletecollection"), "", "pods"),
    (("get", "create"), "", "pods/exec"),
    (("get", "create"), "", "pods/attach"),
    (("get", "create"), "", "pods/portforward"),
    (("get", "create"), "", "pods/proxy"),
    (("get",), "", "pods/log"),
    (("update", "patch"), "", "pods/ephemeralcontainers"),
    (("update", "patch"), "", "pods/resize"),
    (WRITE, "", "nodes"),
    (("update", "patch"), "", "nodes/status"),
    (("get", "create"), "", "nodes/proxy"),
    (WRITE, "", "serviceaccounts"),
    (("create",), "", "serviceaccounts/token"),
    (("impersonate",), "", "users"),
    (WRITE, "", "namespaces"),
    (WRITE, "", "persistentvolumes"),
    (WRITE, "apps", "daemonsets"),
    (WRITE, "apps", "deployments"),
    (WRITE, "apps", "replicasets"),
    (WRITE, "batch", "jobs"),
    ((*WRITE, "bind", "escalate"), "rbac.authorization.k8s.io", "clusterroles"),
    ((*WRITE, "bind", "escalate"), "rbac.authorization.k8s.io", "roles"),
    (WRITE, "rbac.authorization.k8s.io", "clusterrolebindings"),
    (WRITE, "rbac.authorization.k8s.io", "rolebindings"),
    (WRITE, "admissionregistration.k8s.io", "validatingadmissionpolicies"),
    (WRITE, "admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    (WRITE, "admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    (WRITE, "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    (WRITE, "apiextensions.k8s.io", "customresourcedefinitions"),
    (WRITE, "policy", "poddisruptionbudgets"),
    (("create", "update", "patch"), "certificates.k8s.io", "certificatesigningrequests"),
)
"""(verbs, group, resource) that no program may, whatever is switched on."""
FORBIDDEN = {
    EXPORTER: (
        *NEVER,
        (("patch",), "", "pods"),
        (("create",), "", "pods/eviction"),
        (("create",), "", "pods/binding"),
        (WRITE, "", "events"),
        (READ + WRITE, "numazones.io", "rebalancepolicies"),
        (READ + WRITE, "numazones.io", "rebalancerecommendations"),
        (READ + WRITE, "numazones.io", "admissionpredictions"),
        (("update", "deletecollection"), "numazones.io", "numazones"),
    ),
    OPERATOR: (
        *NEVER,
        (WRITE, "numazones.io", "numazones"),
        (WRITE, "numazones.io", "rebalancepolicies"),
        (("create",), "", "pods/binding"),
        (WRITE, "topology.node.k8s.io", "noderesourcetopologies"),
    ),
    EXTENDER: (
        *NEVER,
        (("create",), "", "pods/eviction"),
        (("update", "patch"), "", "pods/status"),
        *(
            (WRITE, "numazones.io", kind)
            for kind in ("numazones", "rebalancepolicies", "admissionpredictions")
        ),
    ),
    SCHEDULER: (
        *(rule for rule in NEVER if rule[2] not in {"pods", "persistentvolumes"}),
        (("create", "update", "deletecollection"), "", "pods"),
        (("create", "delete", "deletecollection"), "", "persistentvolumes"),
        (("create",), "", "pods/eviction"),
        *(
            (WRITE, "numazones.io", kind)
            for kind in ("numazones", "rebalancepolicies", "admissionpredictions")
        ),
    ),
}
"""What each program may not; the scheduler deletes pods and binds volumes, as kube-scheduler does."""
REQUESTS = [
    (user, verb, group, resource)
    for user, rules in FORBIDDEN.items()
    for verbs, group, resource in rules
    for verb in verbs
]


@cache
def shipped_rules(user: str) -> list[dict[str, Any]]:
    """The rules of all cluster roles of ours that are bound to a service account, everything switched on.

    Those of the cluster's own, which kube-scheduler needs, a real API server knows.
    """
    namespace, name = user.split(":")[2:]
    bodies = [body for folder in FOLDERS for body in documents(MANIFESTS / folder / "rbac.yaml")]
    roles = {body["metadata"]["name"]: body for body in bodies if body["kind"] == "ClusterRole"}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    return [
        rule
        for body in bodies
        if body["kind"] == "ClusterRoleBinding" and subject in body["subjects"]
        for rule in roles.get(body["roleRef"]["name"], {"rules": ()})["rules"]
    ]


def grants(rule: dict[str, Any], verb: str, group: str, resource: str) -> bool:
    asked = {"verbs": verb, "apiGroups": group, "resources": resource}
    return all({value, "*"} & set(rule[key]) for key, value in asked.items())


def test_no_shipped_role_grants_what_a_thief_wants() -> None:
    found = [
        request
        for request in REQUESTS
        if any(grants(rule, *request[1:]) for rule in shipped_rules(request[0]))
    ]
    assert found == []
    # A role that is read wrongly would grant nothing.
    assert any(grants(rule, "create", "", "pods/eviction") for rule in shipped_rules(OPERATOR))
    assert any(grants(rule, "patch", "numazones.io", "numazones") for rule in shipped_rules(EXPORTER))
    assert any(grants(rule, "create", "", "pods/binding") for rule in shipped_rules(EXTENDER))
    assert any(grants(rule, "create", "", "pods/binding") for rule in shipped_rules(SCHEDULER))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealAPIServer]:
    """A real API server with all of the manifests that give rights, and a pod of somebody's."""
    if not ASSETS:
        pytest.skip("KUBEBUILDER_ASSETS names no folder with kube-apiserver, etcd and kubectl")
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "composition").mkdir()
    with run(tmp_path_factory.mktemp("everything")) as server:
        chosen = composition(folder / "composition", COMPONENTS, of=(".", "extender", "scheduler"))
        server.kubectl("apply", "--server-side", "-k", str(chosen))
        server.kubectl("create", "serviceaccount", "default", "--namespace=default")
        server.kubectl("create", "secret", "generic", "password", "--from-literal=a=b")
        spec = {
            "containers": [{"name": "main", "image": "a"}],
            "schedulingGates": [{"name": "numazones.io/admission"}],
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "victim", "labels": {"app": "web"}},
            "spec": spec,
        }
        server.kubectl("create", "-f", "-", stdin=json.dumps(pod))
        wait_until_enforced(server)
        yield server


def wait_until_enforced(server: RealAPIServer) -> None:
    """An API server takes some seconds to compile policies that were applied."""
    takeover = json.dumps({"spec": {"containers": [{"name": "main", "image": "miner"}]}})
    end = time.monotonic() + 120
    for user in (OPERATOR, EXTENDER, SCHEDULER):
        command = ("patch", "pod", "victim", "--namespace=default", "--dry-run=server", "-p", takeover)
        stolen = token(server, user)
        while "the spec of pod victim" not in server.kubectl(*command, token=stolen, check=False):
            assert time.monotonic() < end, f"no policy holds {user} back"
            time.sleep(0.2)


def token(server: RealAPIServer, user: str) -> str:
    namespace, name = user.split(":")[2:]
    return server.kubectl("-n", namespace, "create", "token", name).strip()


def send(server: RealAPIServer, user: str, method: str, subresource: str, body: Any, media: str) -> str:
    """Write a subresource of the victim with a stolen token; return what the API server answers."""
    request = urllib.request.Request(  # noqa: S310 - our own https URL
        f"{server.url}/api/v1/namespaces/default/pods/victim/{subresource}",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {token(server, user)}", "Content-Type": media},
        method=method,
    )
    context = create_default_context(cafile=str(server.certificate_authority))
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as response:  # noqa: S310
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


@pytest.mark.real_apiserver
def test_real_api_server_denies_each_action_in_every_namespace(
    everything: RealAPIServer, tmp_path: Path
) -> None:
    """SubjectAccessReviews, in one request to kubectl; what it answers is counted, so that none is missed."""
    own = "numazones-system", "numazones-operator"
    reviews = [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user,
                "groups": [
                    "system:serviceaccounts",
                    f"system:serviceaccounts:{user.split(':')[2]}",
                    "system:authenticated",
                ],
                "resourceAttributes": {
                    "verb": verb,
                    "group": group,
                    "resource": resource.partition("/")[0],
                    "subresource": resource.partition("/")[2],
                    "namespace": namespace,
                },
            },
        }
        for user, verb, group, resource in REQUESTS
        for namespace in ("kube-system", *own)
    ]
    (tmp_path / "reviews.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": reviews}))
    command = ("create", "-o", 'jsonpath={.status.allowed}{"\\n"}', "-f")
    answers = everything.kubectl(*command, str(tmp_path / "reviews.json")).splitlines()
    assert len(answers) == len(reviews) > 1000
    assert [review for review, answer in zip(reviews, answers, strict=True) if answer != "false"] == []
    for user in FORBIDDEN:
        assert (
            everything.kubectl("auth", "can-i", "list", "pods", "--all-namespaces", f"--as={user}") == "yes\n"
        )


@pytest.mark.real_apiserver
@pytest.mark.parametrize("user", FORBIDDEN)
def test_a_stolen_token_reads_no_secret_and_makes_no_pod(everything: RealAPIServer, user: str) -> None:
    stolen = token(everything, user)
    said = everything.kubectl("get", "secret", "password", "--namespace=default", token=stolen, check=False)
    assert 'cannot get resource "secrets"' in said
    said = everything.kubectl("run", "mine", "--image=x", "--namespace=default", token=stolen, check=False)
    assert 'cannot create resource "pods"' in said
    said = everything.kubectl("create", "token", "default", "--namespace=default", token=stolen, check=False)
    assert 'cannot create resource "serviceaccounts/token"' in said


@pytest.mark.real_apiserver
@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ({"metadata": {"annotations": {"numazones.io/admissible-since": "2026-01-31T08:00:00Z"}}}, ""),
        ({"metadata": {"annotations": {"example.com/owner": "eve"}}}, ANNOTATION),
        ({"spec": {"containers": [{"name": "main", "image": "miner"}]}}, "the spec of pod victim"),
        ({"spec": {"activeDeadlineSeconds": 1}}, "the spec of pod victim"),
        ({"metadata": {"labels": {"app": "payments"}}}, METADATA),
        ({"metadata": {"finalizers": ["example.com/never"]}}, METADATA),
    ],
)
@pytest.mark.parametrize("user", [OPERATOR, EXTENDER, SCHEDULER])
def test_stolen_token_with_patch_rights_cannot_hijack_pods(
    everything: RealAPIServer, user: str, patch: Any, why: str
) -> None:
    said = everything.kubectl(
        "patch", "pod", "victim", "--namespace=default", "--type=strategic", "-p", json.dumps(patch),
        token=token(everything, user), check=False,
    )  # fmt: skip
    assert (why or "pod/victim patched") in said


@pytest.mark.real_apiserver
@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ({"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}, '"kind":"Pod"'),
        (
            {"status": {"phase": "Failed"}},
            "DisruptionTarget and the nominated node in the status of pod victim",
        ),
        ({"metadata": {"labels": {"app": "payments"}}}, METADATA),
    ],
)
def test_schedulers_token_writes_only_necessary_status_fields(
    everything: RealAPIServer, patch: Any, said: str
) -> None:
    # Not by kubectl: it reads the status first, which a scheduler may not.
    answer = send(everything, SCHEDULER, "PATCH", "status", patch, "application/strategic-merge-patch+json")
    assert said in answer


@pytest.mark.real_apiserver
@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({}, "schedulingGates"),  # only the victim's gates are in the way
        ({"labels": {"app": "payments"}}, ANNOTATION),
        ({"annotations": {"example.com/a": "b"}}, ANNOTATION),
    ],
    ids=["bare", "labels", "annotations"],
)
@pytest.mark.parametrize("user", [EXTENDER, SCHEDULER])
def test_a_binding_carries_nothing_into_the_pod(
    everything: RealAPIServer, user: str, metadata: Any, said: str
) -> None:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "victim", **metadata},
        "target": {"kind": "Node", "name": "anywhere"},
    }
    assert said in send(everything, user, "POST", "binding", binding, "application/json")


@pytest.mark.real_apiserver
def test_the_operator_takes_its_gate_away_with_its_own_token(everything: RealAPIServer) -> None:
    patch = {"spec": {"schedulingGates": [{"$patch": "delete", "name": "numazones.io/admission"}]}}
    said = everything.kubectl(
        "patch", "pod", "victim", "--namespace=default", "--type=strategic", "-p", json.dumps(patch),
        token=token(everything, OPERATOR),
    )  # fmt: skip
    assert "pod/victim patched" in said
