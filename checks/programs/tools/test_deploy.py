"""make deploy, with stubs of the tools it calls."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.places import ROOT

SYSTEM = (
    "bash",
    "sed",
    "git",
    "date",
    "mkdir",
    "mktemp",
    "rm",
    "cat",
    "sort",
    "grep",
    "sleep",
    "dirname",
    "xargs",
    "touch",
)
KUBECTL = r"""#!/bin/bash
echo "kubectl $*" >> "$CALLS"
case "$*" in
  "config current-context") [ -n "$CONTEXT" ] && echo "$CONTEXT" ;;
  "get --raw /readyz"*) [ -z "$UNREACHABLE" ] || { echo "connection refused" >&2; exit 1; } ;;
  "config view"*) echo "$PROVIDER" ;;
  "auth can-i"*) [ -z "$DENIED" ] || { echo no; exit 1; } ;;
  "get nodes"*architecture*) echo "${NODES-amd64}" ;;
  "get nodes"*) echo "node-1 $READY" ;;
  "get numazones -o jsonpath={range .items[*]}{.spec.nodeName}"*) echo "$ZONES" ;;
  *cpuManagerPolicy*) echo "$POLICY" ;;
  "get numazones") echo "NAME node-1-numa-0" ;;
  "get -n numazones-system daemonset/numazones-exporter "*) echo "1 1" ;;
  "wait --for=delete"*) [ -z "$STAYS" ] || exit 1 ;;
  "rollout status"*) [ -z "$NOT_READY" ] || exit 1 ;;
  *containerStatuses*) echo "$WAITING" ;;
  *status.phase*) echo "$PHASE" ;;
  "get events"*) echo "FailedCreate: forbidden" ;;
  "logs"*) echo "cannot read /sys" ;;
  "get -k crds -o name") echo crd/numazones.numazones.io ;;
  "api-resources"*) echo mutatingadmissionpolicies ;;
  "get pods -A"*) echo "$GATED" ;;
  "apply --server-side -k .cache"*) cat "${@: -1}/kustomization.yaml" >> "$CALLS" ;;
esac
"""
TOOL = r"""#!/bin/bash
echo "${0##*/} $*" >> "$CALLS"
case "$1" in
  info) exit "${BROKEN:-0}" ;;
  push) [ -z "$REFUSED" ] || { echo denied >&2; exit 1; } ;;
  build) [ -z "$INTERRUPTED" ] || { trap "exit 1" INT; kill -INT 0; } ;;
esac
"""


class Deploy:
    """Runs tools/deploy with stubs alone on its PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "bin"
        self.folder.mkdir()
        self.calls = folder / "calls"
        for name in SYSTEM:
            found = next(path for place in ("/usr/bin", "/bin") if (path := Path(place, name)).exists())
            (self.folder / name).symlink_to(found)
        self.stub("kubectl", KUBECTL)

    def stub(self, *names: str) -> None:
        text = names[-1] if names[-1].startswith("#!") else TOOL
        for name in names:
            if not name.startswith("#!"):
                (self.folder / name).write_text(text)
                (self.folder / name).chmod(0o755)

    def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        known = {
            "CONTEXT": "kind-dev",
            "ZONES": "node-1",
            "POLICY": "static",
            "PHASE": "Running",
            "READY": "True",
            "TIMEOUT": "0",
            "INTERVAL": "0",
        }
        done = subprocess.run(
            [str(ROOT / "tools" / "deploy"), *arguments],
            env={
                "PATH": str(self.folder),
                "CALLS": str(self.calls),
                "HOME": os.environ["HOME"],
                **known,
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
        return done.returncode, done.stdout + done.stderr

    def called(self) -> list[str]:
        return self.calls.read_text().splitlines()


@pytest.fixture
def deploy(tmp_path: Path) -> Deploy:
    return Deploy(tmp_path)


@pytest.mark.parametrize(
    ("context", "provider", "tool", "call"),
    [
        ("kind-dev", "", "docker", "kind load image-archive {} --name dev"),
        ("k3d-dev", "", "podman", "k3d image import {} --cluster dev"),
        ("minikube", "", "buildah", "minikube image load {} --profile minikube"),
        ("dev", "minikube.sigs.k8s.io", "docker", "minikube image load {} --profile dev"),
    ],
)
def test_local_cluster_gets_images_and_manifests_that_name_them(
    deploy: Deploy, context: str, provider: str, tool: str, call: str
) -> None:
    deploy.stub(tool, call.split(maxsplit=1)[0])
    code, text = deploy.run(CONTEXT=context, PROVIDER=provider)
    assert code == 0, text
    start, end = call.split("{}")
    loads = [line for line in deploy.called() if line.startswith(start) and line.endswith(end)]
    assert len(loads) == 2
    builds = [line.split() for line in deploy.called() if line.startswith(f"{tool} build ")]
    images = [line[line.index("--tag") + 1] for line in builds]
    assert [line[line.index("--target") + 1] for line in builds] == ["exporter", "operator"]
    for image in images:
        name, _, tag = image.rpartition(":")
        assert name.startswith("docker.io/library/numazones-")
        assert any(f"newName: {name}, newTag: {tag}" in line for line in deploy.called())
    assert not any(" push docker.io" in line and "docker-archive" not in line for line in deploy.called())
    assert "NAME node-1-numa-0" in text
    assert "static CPU Manager" not in text


def test_registry_gets_images_built_on_another_base(deploy: Deploy) -> None:
    deploy.stub("podman")
    code, text = deploy.run(CONTEXT="prod", REGISTRY="ghcr.io/me/", BASE="mirror/python:3")
    assert code == 0, text
    pushed = [line for line in deploy.called() if line.startswith("podman push ghcr.io/me/numazones-")]
    assert len(pushed) == 2
    assert any("--build-arg BASE=mirror/python:3" in line for line in deploy.called())


def test_deploy_changes_no_file_of_the_checkout(deploy: Deploy) -> None:
    def status() -> str:
        return subprocess.check_output(["git", "status", "--porcelain"], cwd=ROOT, text=True)

    before = status()
    deploy.stub("docker", "kind")
    assert deploy.run()[0] == 0
    assert status() == before


def test_broken_container_tool_is_passed_over(deploy: Deploy) -> None:
    deploy.stub("docker", TOOL.replace('"${BROKEN:-0}"', "1"))
    deploy.stub("podman", "kind")
    assert deploy.run()[0] == 0
    assert any(line.startswith("podman build") for line in deploy.called())


@pytest.mark.parametrize(
    ("tools", "environment", "parts"),
    [
        # A cluster is no use before there is a container tool.
        (
            "kind",
            {"CONTEXT": ""},
            ["No container tool found: docker, podman or buildah", "apt-get install podman", "make demo"],
        ),
        ("kind docker", {"BROKEN": "1"}, ["No container tool works. Installed: docker"]),
        ("docker", {"CONTEXT": ""}, ["no current context", "kubectl config use-context"]),
        (
            "docker",
            {"UNREACHABLE": "1"},
            ["Cannot reach the cluster of context kind-dev", "connection refused"],
        ),
        (
            "docker kind",
            {"DENIED": "1"},
            ["may not create CustomResourceDefinitions", "cluster administrator"],
        ),
        ("docker kind", {"NOT_READY": "1"}, ["The operator is not ready after 0 s", "cannot read /sys"]),
        ("docker kind", {"NODES": ""}, ["context kind-dev has no nodes"]),
        ("docker", {}, ["kind is not installed", "REGISTRY="]),
        ("docker", {"CONTEXT": "prod"}, ["Context prod is not kind, minikube or k3d", "REGISTRY="]),
        (
            "docker",
            {"REGISTRY": "ghcr.io/me", "REFUSED": "1"},
            ["could not push ghcr.io/me", "docker login ghcr.io"],
        ),
        ("docker kind", {"ZONES": ""}, ["No NUMAZones after 0 s", "cannot read /sys"]),
        (
            "docker kind",
            {"ZONES": "", "WAITING": "ImagePullBackOff numazones-exporter:1"},
            ["No NUMAZones after 0 s. The nodes cannot pull an image: ImagePullBackOff numazones-exporter:1"],
        ),
        (
            "docker kind",
            {"ZONES": "", "PHASE": "Pending", "READY": "Unknown"},
            ["No node is Ready", "describe nodes"],
        ),
        (
            "docker kind",
            {"ZONES": "", "PHASE": ""},
            ["FailedCreate: forbidden", "No NUMAZones after 0 s. No pod"],
        ),
    ],
)
def test_failure_names_its_cause_and_cure(
    deploy: Deploy, tools: str, environment: dict[str, str], parts: list[str]
) -> None:
    deploy.stub(*tools.split())
    code, text = deploy.run(**environment)
    assert code == 1
    assert [part for part in parts if part not in text] == [], text


DELETE = "kubectl delete --ignore-not-found"
CHANGES = re.compile(r"\S+ (?:build|save|push|load|apply|delete|patch|label)\b")


def test_programs_are_awaited_in_the_namespaces_of_their_manifests(deploy: Deploy) -> None:
    deploy.stub("docker", "kind")
    assert deploy.run()[0] == 0
    for manifest in ("exporter/daemonset", "operator/deployment"):
        body = yaml.safe_load((ROOT / f"manifests/{manifest}.yaml").read_text())
        workload = f"{body['kind'].lower()}/{body['metadata']['name']}"
        assert any(f" -n {body['metadata']['namespace']} {workload} " in line for line in deploy.called())


@pytest.mark.parametrize("arguments", [(), ("--undeploy",)])
def test_dry_run_prints_every_change_and_makes_none(deploy: Deploy, arguments: tuple[str, ...]) -> None:
    deploy.stub("docker", "kind")
    code, text = deploy.run(*arguments, DRY="1", GATED="team web-1 0")
    assert code == 0, text
    assert not any(map(CHANGES.match, deploy.called()))
    deploy.calls.unlink()
    assert deploy.run(*arguments, GATED="team web-1 0")[0] == 0
    assert _changes(_printed(text)) == _changes(deploy.called())


WAITS = (
    "kubectl get -k crds -o name | xargs kubectl wait --for=condition=Established",
    "kubectl get numazones  # until ",
    "kubectl rollout status -n numazones-operator deployment/numazones-operator",
)


@pytest.mark.parametrize(
    ("tools", "environment", "notes", "commands"),
    [
        ("docker kind", {}, [], ["docker build", "kind load image-archive"]),
        (
            "docker",
            {"BROKEN": "1", "CONTEXT": ""},
            ["No container tool works. Installed: docker", "no current context", "kind is not installed"],
            ["docker build", "kind load image-archive"],
        ),
        (
            "docker",
            {"CONTAINER_TOOL": "podman", "REGISTRY": "ghcr.io/me", "UNREACHABLE": "1"},
            ["No container tool found: podman", "Cannot reach the cluster of context kind-dev"],
            ["podman build", "podman push ghcr.io/me/"],
        ),
        (
            "docker",
            {"CONTEXT": "prod", "DENIED": "1", "NODES": ""},
            ["may not create", "has no nodes", "Context prod is not kind, minikube or k3d"],
            ["docker build", "docker push registry.example/"],
        ),
    ],
)
def test_dry_run_prints_the_plan_and_notes_what_is_missing(
    deploy: Deploy, tools: str, environment: dict[str, str], notes: list[str], commands: list[str]
) -> None:
    deploy.stub(*tools.split())
    code, text = deploy.run(DRY="1", **environment)
    assert code == 0, text
    found = [line for line in text.splitlines() if line.startswith("note: ")]
    assert len(found) == len(notes)
    assert all(note in line for note, line in zip(notes, found, strict=True)), found
    printed = _printed(text)
    for start in (*commands, *WAITS):
        assert any(line.startswith(start) for line in printed), (start, text)


def test_dry_run_leaves_the_kustomization_that_it_prints(deploy: Deploy) -> None:
    _, text = deploy.run(DRY="1")
    (folder,) = (line.split()[-1] for line in _printed(text) if " -k .cache/" in line)
    assert (ROOT / folder / "kustomization.yaml").is_file()


def _printed(text: str) -> list[str]:
    return re.findall(r"^  \$ (.*)", text, re.MULTILINE)


def _changes(commands: list[str]) -> list[str]:
    return [found[0] for line in commands if (found := CHANGES.match(line))]


def test_interrupted_deploy_ends_with_one_word(deploy: Deploy) -> None:
    deploy.stub("docker", "kind")
    code, text = deploy.run(INTERRUPTED="1")
    assert code == 130
    assert text.splitlines()[-1] == "Interrupted. Nothing was applied."


def test_cluster_without_static_cpu_manager_learns_what_to_set(deploy: Deploy) -> None:
    deploy.stub("docker", "kind")
    code, text = deploy.run(POLICY="none")
    assert code == 0
    assert "No kubelet uses the static CPU Manager policy" in text
    assert "cpuManagerPolicy: static" in text


def test_undeploy_reports_pods_that_do_not_end(deploy: Deploy) -> None:
    code, text = deploy.run("--undeploy", STAYS="1")
    assert (code, "pods are still terminating" in text) == (1, True), text
    # Nothing waits for them before everything is deleted.
    calls = deploy.called()
    assert calls.index(f"{DELETE} -k crds") < next(i for i, line in enumerate(calls) if " wait " in line)
    assert [line for line in calls if " -k manifests/" in line and not line.endswith("--wait=false")] == [
        f"{DELETE} -k manifests/gate-injection",
        f"{DELETE} -k manifests/roles",
    ]


def test_undeploy_opens_the_gate_before_it_deletes_programs(deploy: Deploy) -> None:
    code, text = deploy.run("--undeploy", GATED="team web-1 0")
    assert code == 0, text
    order = [
        f"{DELETE} -k manifests/gate-injection",
        "kubectl patch pod web-1 -n team",
        f"{DELETE} rebalancepolicies --all",
        f"{DELETE} -k manifests/operator",
        f"{DELETE} -k manifests/exporter",
        f"{DELETE} -k crds",
    ]
    calls = deploy.called()
    places = [next(i for i, line in enumerate(calls) if line.startswith(start)) for start in order]
    assert places == sorted(places)
