"""Real clients take the embedded server for a cluster: kubectl, kopf, the `kubernetes` package."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import kopf
import kubernetes.aio.client
import kubernetes.aio.config
import kubernetes.aio.dynamic
import kubernetes.aio.watch
import pytest
import yaml

# The package's own types are partial, so it is taken untyped here.
kubernetes_client: Any = kubernetes.aio.client
kubernetes_config: Any = kubernetes.aio.config
kubernetes_dynamic: Any = kubernetes.aio.dynamic
kubernetes_watch: Any = kubernetes.aio.watch

KUBECTL = os.environ.get("KUBECTL") or shutil.which("kubectl") or ""
needs_kubectl = pytest.mark.skipif(not KUBECTL, reason="no kubectl: set KUBECTL or put it on the PATH")

MERGE = "application/merge-patch+json"
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {"name": "c", "image": "registry.example/c:1", "ports": [{"containerPort": 80}]}
                ]
            },
        },
    },
}


class Kubectl:
    """kubectl against the embedded server."""

    def __init__(self, folder: Path, kubeconfig: Path, namespace: str) -> None:
        self.folder, self.kubeconfig, self.namespace = folder, kubeconfig, namespace

    async def __call__(self, *arguments: str, code: int = 0) -> str:
        environment = {**os.environ, "HOME": str(self.folder), "KUBECONFIG": str(self.kubeconfig)}
        process = await asyncio.create_subprocess_exec(
            KUBECTL,
            "--namespace",
            self.namespace,
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
        )
        async with asyncio.timeout(120):
            output = (await process.communicate())[0].decode()
        assert process.returncode == code, (
            f"kubectl {' '.join(arguments)} answered {process.returncode}: {output}"
        )
        return output

    @asynccontextmanager
    async def running(self, *arguments: str) -> AsyncIterator[asyncio.StreamReader]:
        """Run a command that does not end by itself; yields what it prints."""
        process = await asyncio.create_subprocess_exec(
            KUBECTL,
            f"--kubeconfig={self.kubeconfig}",
            f"--namespace={self.namespace}",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()
            await process.communicate()

    def file(self, *documents: Any) -> str:
        path = self.folder / "file.yaml"
        path.write_text(yaml.safe_dump_all(documents))
        return str(path)


@pytest.fixture
def kubectl(embedded: Any, tmp_path: Path) -> Kubectl:
    return Kubectl(tmp_path, embedded.server.kubeconfig(tmp_path / "kubeconfig"), embedded.namespace)


@needs_kubectl
async def test_kubectl_gets_tables(kubectl: Kubectl, embedded: Any, widget: Any) -> None:
    await embedded.post(embedded.widgets, widget("a"))
    lines = (await kubectl("get", "wdg", "-o", "wide")).splitlines()
    assert lines[0].split() == ["NAME", "SIZE", "COLOR", "READY", "AGE"]
    assert lines[1].split()[:3] == ["a", "3", "red"]
    assert "COLOR" not in (await kubectl("get", "widgets"))
    assert (await kubectl("get", "contract", "-o", "name")).strip() == "widget.contract.example.com/a"
    assert (await kubectl("get", "wdg", "a", "-o", "jsonpath={.spec.size}")) == "3"
    assert "No resources found" in await kubectl("get", "pods")
    assert 'widgets.contract.example.com "none" not found' in await kubectl("get", "wdg", "none", code=1)


@needs_kubectl
async def test_kubectl_applies_on_the_client_side(kubectl: Kubectl) -> None:
    assert "deployment.apps/web created" in await kubectl("apply", "-f", kubectl.file(DEPLOYMENT))
    changed = yaml.safe_load(yaml.safe_dump(DEPLOYMENT))
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/c:2"
    changed["spec"]["template"]["spec"]["containers"].append({"name": "d", "image": "registry.example/d:1"})
    difference = await kubectl("diff", "-f", kubectl.file(changed), code=1)
    assert "+      - image: registry.example/d:1" in difference
    assert "deployment.apps/web configured" in await kubectl("apply", "-f", kubectl.file(changed))
    assert "deployment.apps/web configured" in await kubectl("apply", "-f", kubectl.file(DEPLOYMENT))
    images = await kubectl(
        "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[*].image}"
    )
    assert images == "registry.example/c:1"


@needs_kubectl
@pytest.mark.parametrize("side", [(), ("--server-side",)], ids=["client", "server"])
async def test_kubectl_applies_a_list_whose_items_the_server_validates(
    kubectl: Kubectl, side: tuple[str, ...]
) -> None:
    items = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} for name in ("one", "two")]
    file = kubectl.file({"apiVersion": "v1", "kind": "List", "items": items})
    done = await kubectl("apply", *side, "-f", file)
    assert [line.split()[0] for line in done.splitlines()] == ["configmap/one", "configmap/two"]
    wrong = kubectl.file({"apiVersion": "v1", "kind": "List", "items": [{**items[0], "dta": {}}]})
    assert "dta" in await kubectl("apply", *side, "-f", wrong, code=1)


@needs_kubectl
async def test_kubectl_applies_on_the_server_side(kubectl: Kubectl, widget: Any) -> None:
    file = kubectl.file(widget("a", short="abc"))
    assert "serverside-applied" in await kubectl("apply", "--server-side", "-f", file)
    await kubectl("patch", "wdg", "a", "--type=merge", "-p", '{"spec":{"short":"xyz"}}')
    rejected = await kubectl("apply", "--server-side", "-f", file, code=1)
    assert 'conflict with "kubectl-patch" using contract.example.com/v1: .spec.short' in rejected
    assert "serverside-applied" in await kubectl("apply", "--server-side", "--force-conflicts", "-f", file)


@needs_kubectl
async def test_kubectl_validates_before_it_writes(kubectl: Kubectl, widget: Any) -> None:
    output = await kubectl("apply", "-f", kubectl.file(widget("a", extra=1)), code=1)
    assert 'unknown field "spec.extra"' in output


@needs_kubectl
async def test_kubectl_replaces_labels_patches_scales_waits_for_and_deletes_objects(kubectl: Kubectl) -> None:
    file = kubectl.file(DEPLOYMENT)
    await kubectl("create", "-f", file)
    assert "replaced" in await kubectl("replace", "-f", file)
    assert "labeled" in await kubectl("label", "deployment", "web", "tier=front")
    assert "annotated" in await kubectl("annotate", "deployment", "web", "a=b")
    assert "web" in await kubectl("get", "deployments", "-l", "tier in (front)", "--no-headers")
    assert "scaled" in await kubectl("scale", "deployment", "web", "--replicas=5")
    test = (
        '[{"op":"test","path":"/spec/replicas","value":5},{"op":"replace","path":"/spec/replicas","value":4}]'
    )
    assert "patched" in await kubectl("patch", "deployment", "web", "--type=json", "-p", test)
    waiting = asyncio.create_task(
        kubectl("wait", "deployment/web", "--for=condition=Available", "--timeout=120s")
    )
    await asyncio.sleep(0.5)
    condition = '{"status":{"conditions":[{"type":"Available","status":"True"}]}}'
    await kubectl("patch", "deployment", "web", "--subresource=status", "--type=merge", "-p", condition)
    assert "condition met" in await waiting
    assert 'deployment.apps "web" deleted' in await kubectl("delete", "deployment", "web", "--wait")


@needs_kubectl
async def test_kubectl_explains_kinds_and_describes_objects(
    kubectl: Kubectl, embedded: Any, widget: Any, pod: Any
) -> None:
    explained = await kubectl("explain", "widget.spec.size")
    assert "How big." in explained
    assert "FIELD: size <integer>" in explained
    assert "containerPort" in await kubectl("explain", "pod.spec.containers.ports")
    await embedded.post(embedded.widgets, widget("a"))
    assert "Size:   3" in await kubectl("describe", "wdg", "a")
    created = (await embedded.post(embedded.core("pods"), pod("p", nodeName="n1"))).body
    involved = {
        "kind": "Pod",
        "name": "p",
        "namespace": embedded.namespace,
        "uid": created["metadata"]["uid"],
    }
    event = {
        "metadata": {"name": "e"},
        "involvedObject": involved,
        "reason": "TopologyAffinityError",
        "message": "no",
    }
    await embedded.post(embedded.core("events"), event)
    assert "TopologyAffinityError" in await kubectl("describe", "pod", "p")
    await embedded.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    assert "Non-terminated Pods:          (1 in total)" in await kubectl("describe", "node", "n1")


@needs_kubectl
async def test_kubectl_lists_what_is_served(kubectl: Kubectl) -> None:
    resources = await kubectl("api-resources", "--no-headers")
    assert "wdg" in resources
    assert "contract.example.com/v1" in await kubectl("api-versions")
    assert "Server Version: v1." in await kubectl("version")


@needs_kubectl
async def test_kubectl_creates_objects_whose_body_is_protobuf(kubectl: Kubectl) -> None:
    await kubectl("create", "configmap", "m", "--from-literal=a=b")
    assert await kubectl("get", "configmap", "m", "-o", "jsonpath={.data.a}") == "b"
    await kubectl("create", "secret", "generic", "s", "--from-literal=a=b")
    assert await kubectl("get", "secret", "s", "-o", "jsonpath={.data.a}") == "Yg=="
    await kubectl("create", "deployment", "d", "--image=registry.example/d:1", "--replicas=0", "--port=80")
    shown = "jsonpath={.spec.replicas} {.spec.strategy.type} {.spec.template.spec.containers[0].ports[0]}"
    assert (
        await kubectl("get", "deployment", "d", "-o", shown)
        == '0 RollingUpdate {"containerPort":80,"protocol":"TCP"}'
    )
    await kubectl("create", "pdb", "b", "--selector=app=d", "--min-available=50%")
    assert await kubectl("get", "pdb", "b", "-o", "jsonpath={.spec}") == (
        '{"minAvailable":"50%","selector":{"matchLabels":{"app":"d"}}}'
    )
    await kubectl("create", "role", "r", "--verb=get", "--resource=pods")
    await kubectl("create", "rolebinding", "rb", "--role=r", "--serviceaccount=default:x")
    assert "default/x" in await kubectl("get", "rolebinding", "-o", "wide")
    await kubectl("create", "namespace", "fresh")
    assert "Active" in await kubectl("get", "namespace", "fresh")


@needs_kubectl
async def test_kubectl_drains_a_node_as_far_as_the_budget_allows(
    kubectl: Kubectl, embedded: Any, pod: Any
) -> None:
    await embedded.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    path = embedded.core("pods")
    for name in ("free", "guarded"):
        body = pod(name, nodeName="n1", terminationGracePeriodSeconds=0)
        body["metadata"]["labels"] = {"app": name}
        await embedded.post(path, body)
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await embedded.merge(f"{path}/{name}/status", {"status": ready})
    await kubectl("create", "pdb", "b", "--selector=app=guarded", "--min-available=1")
    told = [
        "node/n1 cordoned",
        "pod/free evicted",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    ]
    output = ""
    async with kubectl.running("drain", "n1", "--force") as lines, asyncio.timeout(120):
        while not all(one in output for one in told):
            line = await lines.readline()
            assert line, output
            output += line.decode()
    assert (await kubectl("get", "pods", "-o", "name")).split() == ["pod/guarded"]
    assert "uncordoned" in await kubectl("uncordon", "n1")


@needs_kubectl
async def test_kubectl_watches_changes(kubectl: Kubectl, embedded: Any, widget: Any) -> None:
    await embedded.post(embedded.widgets, widget("early"))
    async with kubectl.running("get", "wdg", "--watch", "--no-headers") as lines, asyncio.timeout(120):
        assert (await lines.readline()).split()[:2] == [b"early", b"3"]
        await embedded.post(embedded.widgets, widget("late"))
        assert (await lines.readline()).split()[:2] == [b"late", b"3"]


# --- kopf ------------------------------------------------------------------------------------


@pytest.fixture
def login(embedded: Any) -> Any:
    def connect(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=embedded.server.url)

    return connect


async def test_kopf_handles_and_patches_custom_resources(embedded: Any, widget: Any, login: Any) -> None:
    """An operator with a handler, a finalizer and a status; it survives a lost watch."""
    registry = kopf.OperatorRegistry()
    seen: list[tuple[str, str]] = []

    @kopf.on.create("contract.example.com", "v1", "widgets", registry=registry)
    async def created(name: str, patch: kopf.Patch, **_: Any) -> None:
        seen.append(("created", name))
        patch.status["phase"] = "Seen"

    @kopf.on.delete("contract.example.com", "v1", "widgets", registry=registry)
    async def deleted(name: str, **_: Any) -> None:
        seen.append(("deleted", name))

    kopf.on.login(registry=registry)(login)
    settings = kopf.OperatorSettings()
    settings.watching.reconnect_backoff = 0.05
    settings.persistence.finalizer = "contract.example.com/kopf"
    stop = asyncio.Event()
    operator = asyncio.create_task(
        kopf.operator(
            registry=registry,
            settings=settings,
            namespaces=[embedded.namespace],
            standalone=True,
            stop_flag=stop,
        )
    )
    try:
        await embedded.post(embedded.widgets, widget("a"))
        await _eventually(lambda: ("created", "a") in seen)
        assert (await _status(embedded, "a"))["phase"] == "Seen"
        embedded.server.faults.drop_watches(compacted=True)
        await embedded.post(embedded.widgets, widget("b"))
        await _eventually(lambda: ("created", "b") in seen)
        embedded.server.faults.drop_watches()
        await embedded.delete(f"{embedded.widgets}/a")
        await _eventually(lambda: ("deleted", "a") in seen)
        stored = embedded.server.store.collection("contract.example.com", "widgets").objects
        await _eventually(lambda: (embedded.namespace, "a") not in stored)
    finally:
        stop.set()
        await asyncio.wait_for(operator, 120)


async def _status(api: Any, name: str) -> Any:
    async with asyncio.timeout(120):
        while True:
            body = (await api.get(f"{api.widgets}/{name}")).body
            if body.get("status"):
                return body["status"]
            await asyncio.sleep(0.05)


async def _eventually(condition: Any) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in kopf
            await asyncio.sleep(0.02)


# --- the kubernetes package ------------------------------------------------------------------


async def test_the_python_client_reads_writes_watches_and_applies(
    embedded: Any, pod: Any, widget: Any, tmp_path: Path
) -> None:
    configuration = kubernetes_client.Configuration()
    path = embedded.server.kubeconfig(tmp_path / "kubeconfig")
    await kubernetes_config.load_kube_config(config_file=str(path), client_configuration=configuration)
    async with kubernetes_client.ApiClient(configuration) as api:
        core = kubernetes_client.CoreV1Api(api)
        created = await core.create_namespaced_pod(embedded.namespace, pod("p", nodeName="n1"))
        assert created.metadata.uid
        listed = await core.list_namespaced_pod(embedded.namespace, field_selector="spec.nodeName=n1")
        assert [one.metadata.name for one in listed.items] == ["p"]
        custom = kubernetes_client.CustomObjectsApi(api)
        place = ("contract.example.com", "v1", embedded.namespace, "widgets")
        await custom.create_namespaced_custom_object(*place, widget("a"))
        applied = await custom.patch_namespaced_custom_object(
            *place,
            "a",
            widget("a"),
            field_manager="python",
            force=True,
            _content_type="application/apply-patch+yaml",
        )
        assert applied["metadata"]["managedFields"][0]["operation"] == "Apply"
        watcher = kubernetes_watch.Watch()
        async with asyncio.timeout(120):
            async for event in watcher.stream(
                custom.list_namespaced_custom_object, *place, timeout_seconds=120
            ):
                assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
                watcher.stop()
                break
        with pytest.raises(kubernetes_client.ApiException) as rejected:
            await custom.get_namespaced_custom_object(*place, "none")
        assert rejected.value.status == 404
        version = await kubernetes_client.VersionApi(api).get_code()
        assert version.major == "1"


async def test_the_dynamic_client_discovers_custom_resources(embedded: Any, widget: Any) -> None:
    configuration = kubernetes_client.Configuration()
    configuration.host = embedded.server.url
    async with kubernetes_client.ApiClient(configuration) as api:
        dynamic = await kubernetes_dynamic.DynamicClient(api)
        widgets = await dynamic.resources.get(api_version="contract.example.com/v1", kind="Widget")
        made = await widgets.create(body=widget("a"), namespace=embedded.namespace)
        assert made.spec.color == "red"
