"""Fetches a node: objects from the API server, and through it the exporter's pod for the rest."""

from collections.abc import Iterable, Mapping
from typing import Any

from kubectl_numazones.printing import screen
from kubectl_numazones.reading.cluster import NotThere
from kubectl_numazones.reading.source import Source, connect
from kubectl_numazones.reading.tree_archive import BadArchive, members
from kubectl_numazones.record.recorded_node import Body, NodeRecording, event_of, node_of, pod_of
from numazones.apimachinery.documents import OBJECT, read_json
from numazones.errors import NumazonesError
from numazones_client import Client, Forbidden, NotFound
from numazones_client.errors import APIError
from numazones_client.resources import EVENTS, NODES, PODS
from numazones_program.recordings import FACTS, PATH, SWITCHED_OFF

_EXPORTERS = "app.kubernetes.io/name=numazones-exporter"
_PORT_NAME, _PORT = "metrics", 9406
_NOT_FOUND, _FORBIDDEN = 404, 403
_COMPONENT = "component exporter-recordings, with Helm exporter.recordings=true"


class CannotFetch(NumazonesError):
    """The node cannot be recorded; the message says what is in the way, and the cure."""


async def fetch(name: str, source: Source) -> NodeRecording:
    """Fetch what is recorded of a node.

    Raises:
        NotThere: there is no such node.
        CannotFetch: there is no exporter that answers, or the user may not ask it.
        NumazonesError: the API server cannot be asked.
    """
    async with await connect(source) as client:
        try:
            node = await client.get(NODES, name)
        except NotFound as error:
            names = sorted(item["metadata"]["name"] for item in await client.list(NODES))
            raise NotThere(
                f"there is no node {name}; existing nodes: {', '.join(names) or 'none'}"
            ) from error
        try:
            exporters = await client.list(PODS, label_selector=_EXPORTERS)
        except Forbidden as error:
            raise CannotFetch(f"the exporter's pod cannot be found: {error}") from error
        archive = await _archive(client, _exporter_pod_on(name, exporters))
        pods = await client.list(PODS, field_selector=f"spec.nodeName={name}")
        events = await _events(client, name, pods)
    return _recorded_node(name, node, pods, events, archive)


def _exporter_pod_on(name: str, exporters: Iterable[Body]) -> Body:
    """The exporter's pod on a node."""
    here = [pod for pod in exporters if (pod.get("spec") or {}).get("nodeName") == name]
    running = [pod for pod in here if (pod.get("status") or {}).get("phase") == "Running"]
    if running:
        return running[0]
    if here:
        said = (here[0].get("status") or {}).get("phase") or "Pending"
        where = _where(here[0])
        raise CannotFetch(
            f"the exporter's pod {where} on node {name} is {said}, not Running; kubectl describe pod {where}"
        )
    raise CannotFetch(
        f"no pod with the label {_EXPORTERS} is running on node {name}, so its files cannot be read; "
        "install the exporter (manifests/exporter), or find out why its DaemonSet skips the node"
    )


def _where(pod: Body) -> str:
    return f"-n {pod['metadata'].get('namespace')} {pod['metadata']['name']}"


async def _archive(client: Client, pod: Body) -> bytes:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    path = PODS.path(f"{name}:{_port_of(pod)}", namespace=namespace, subresource=f"proxy{PATH}")
    try:
        return await client.get_raw(path)
    except APIError as error:
        raise _explain(error, namespace, name) from error


def _explain(error: APIError, namespace: str, name: str) -> NumazonesError:
    if SWITCHED_OFF in error.message:
        return CannotFetch(
            f"the exporter {namespace}/{name} does not serve recordings; switch them on: {_COMPONENT}"
        )
    if error.code == _FORBIDDEN:
        return CannotFetch(
            f"you may not get pods/proxy in namespace {namespace}, which is needed to reach the "
            f"exporter; run kubectl create rolebinding -n {namespace} --role=numazones-recorder "
            "--user=YOU recorders"
        )
    if error.code == _NOT_FOUND:
        return CannotFetch(
            f"the exporter {namespace}/{name} does not support recordings: it is older than this program, "
            f"{error.message}; upgrade it, with {_COMPONENT}"
        )
    return error


def _port_of(pod: Body) -> int:
    for container in pod["spec"].get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == _PORT_NAME:
                return int(port["containerPort"])
    return _PORT


async def _events(client: Client, name: str, pods: Iterable[Body]) -> list[Body]:
    """Return kubelets' events about the node and its pods; they explain, and nothing depends on them."""
    about = {name, *(pod["metadata"].get("uid") for pod in pods)}
    found: list[Body] = []
    try:
        async for page in client.pages(EVENTS, field_selector="source=kubelet"):
            found += [item for item in page.items if (item.get("involvedObject") or {}).get("uid") in about]
    except NumazonesError as error:
        screen.warn(f"events are left out: {error}")
    return [event_of(item, number) for number, item in enumerate(found, 1)]


def _recorded_node(
    name: str, node: Body, pods: Iterable[Body], events: Iterable[Body], archive: bytes
) -> NodeRecording:
    content = _members(archive)
    try:
        facts: Mapping[str, Any] = read_json(content.pop(FACTS), OBJECT)
        told = facts["podresources"]
        return NodeRecording(
            name=name,
            node=node_of(node),
            pods=tuple(pod_of(pod) for pod in pods),
            events=tuple(events),
            zones=tuple(facts["zones"]),
            configuration=facts["kubeletConfiguration"],
            devices=facts["devices"],
            podresources=None if told is None else tuple(told),
            problems=tuple(facts["problems"]),
            tree={path: body for path, body in content.items() if path.startswith(("sys/", "proc/"))},
            state={
                path.removeprefix("state/"): body
                for path, body in content.items()
                if path.startswith("state/")
            },
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CannotFetch(
            f"the exporter on node {name} did not send a recording ({error!r}); check that the exporter and "
            "kubectl numazones have the same version"
        ) from error


def _members(archive: bytes) -> dict[str, bytes]:
    try:
        return {f"{one.path}{'/' * one.is_directory}": one.content for one in members(archive)}
    except BadArchive as error:
        raise CannotFetch(f"the exporter's response is not a recording: {error}; try again") from error
