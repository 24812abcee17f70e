"""The same recording under other names: the same name always becomes the same pseudonym.

Renamed are nodes, namespaces, pods, containers, owners, images, resource claims, keys of labels that are not
Kubernetes' own, and all values of labels, selectors and taints. Annotations go, and so do messages; what
kubelets say when they reject a pod stays. UIDs, times, resources, devices and amounts stay.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from kubectl_numazones.record.recorded_node import Body, NodeRecording
from numazones.errors import NumazonesError
from numazones.kubelet import checkpoints
from numazones.kubelet.rejection import STATUS_PREFIX

_PLAIN_LABELS = frozenset(
    {"kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch"}
)
_OWN_DOMAINS = ("kubernetes.io", "k8s.io", "numazones.io")
_KEPT_ANNOTATIONS = "kubernetes.io/config."
"""How a kubelet knows a static pod; the values are UIDs and words of its own."""
_BUILT_IN = frozenset({"default-scheduler", "system-node-critical", "system-cluster-critical"})


class Pseudonyms:
    """Pseudonyms by kind of name, numbered in the order in which they are met."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, str]] = {}

    def of(self, kind: str, name: str) -> str:
        """Return the pseudonym of a name; nothing for none."""
        known = self._known.setdefault(kind, {})
        return known.setdefault(name, f"{kind}-{len(known) + 1}") if name else ""

    def value(self, text: str) -> str:
        """Return the pseudonym of a label's value: a node's name stays one name."""
        if text in self._known.get("node", {}):
            return self.of("node", text)
        return self.of("value", text)

    def key(self, text: str) -> str:
        """Return the pseudonym of a label's key; Kubernetes' own stay, and ours."""
        domain, slash, _ = text.partition("/")
        if slash and domain.endswith(_OWN_DOMAINS):
            return text
        return self.of("key", text)

    def labels(self, labels: Mapping[str, Any]) -> Body:
        """Rename keys and values of labels or a selector."""
        return {
            self.key(key): value if key in _PLAIN_LABELS else self.value(str(value))
            for key, value in labels.items()
        }


def with_pseudonyms(found: NodeRecording) -> tuple[NodeRecording, list[str]]:
    """Return the recording under pseudonyms, and the state files that had to be left out."""
    names = Pseudonyms()
    node = names.of("node", found.name)
    left_out: list[str] = []
    state: dict[str, bytes] = {}
    for file, content in found.state.items():
        try:
            state[file] = _state_file(file, content, names)
        except NumazonesError as error:
            left_out.append(str(error))
    changed = replace(
        found,
        name=node,
        node=_object(found.node, names),
        pods=tuple(_object(pod, names) for pod in found.pods),
        events=tuple(_event(event, names) for event in found.events),
        zones=tuple(_zone(zone, names) for zone in found.zones),
        podresources=None
        if found.podresources is None
        else tuple(
            {
                "namespace": names.of("namespace", pod["namespace"]),
                "name": names.of("pod", pod["name"]),
                "containers": {names.of("container", one): held for one, held in pod["containers"].items()},
            }
            for pod in found.podresources
        ),
        problems=tuple({**problem, "message": ""} for problem in found.problems),
        state=state,
    )
    return changed, left_out


def _object(body: Body, names: Pseudonyms) -> Body:
    """A Node or Pod."""
    kind = str(body["kind"]).lower()
    spec, status = dict(body["spec"]), dict(body["status"])
    if "taints" in spec:
        spec["taints"] = [_rename_key(taint, names) for taint in spec["taints"]]
    if kind == "pod":
        _rename_pod(spec, status, names)
    return {**body, "metadata": _metadata(body["metadata"], kind, names), "spec": spec, "status": status}


def _metadata(metadata: Body, kind: str, names: Pseudonyms) -> Body:
    changed = {**metadata, "name": names.of(kind, metadata["name"])}
    if metadata.get("namespace"):
        changed["namespace"] = names.of("namespace", metadata["namespace"])
    if "labels" in metadata:
        changed["labels"] = names.labels(metadata["labels"])
    if "annotations" in metadata:
        kept = metadata["annotations"].items()
        changed["annotations"] = {key: value for key, value in kept if key.startswith(_KEPT_ANNOTATIONS)}
    if "ownerReferences" in metadata:
        changed["ownerReferences"] = [
            {**owner, "name": names.of("node" if owner.get("kind") == "Node" else "owner", owner["name"])}
            for owner in metadata["ownerReferences"]
        ]
    return changed


def _rename_pod(spec: Body, status: Body, names: Pseudonyms) -> None:
    for field, change in _POD_FIELDS.items():
        if spec.get(field):
            spec[field] = change(spec[field], names)
    for field in ("initContainerStatuses", "containerStatuses"):
        if field in status:
            status[field] = _containers(status[field], names)
    status.update(_message(status))


def _built_in_or(kind: str) -> Callable[[Any, Pseudonyms], Any]:
    return lambda name, names: name if name in _BUILT_IN else names.of(kind, name)


def _renamer_by_name(kind: str) -> Callable[[Any, Pseudonyms], Any]:
    return lambda items, names: [{"name": _gate(item["name"], kind, names)} for item in items]


def _gate(name: str, kind: str, names: Pseudonyms) -> str:
    return name if name.startswith("numazones.io/") else names.of(kind, name)


def _message(body: Mapping[str, Any]) -> Body:
    """Return a rejection message, which holds resources and amounts; other messages are dropped."""
    message = str(body.get("message") or "")
    return {"message": message if message.startswith(STATUS_PREFIX) else ""}


def _containers(items: Iterable[Body], names: Pseudonyms) -> list[Body]:
    return [_container(item, names) for item in items]


def _container(item: Body, names: Pseudonyms) -> Body:
    changed = {**item, "name": names.of("container", item["name"])}
    if item.get("image"):
        changed["image"] = names.of("image", item["image"])
    resources = item.get("resources") or {}
    if resources.get("claims"):
        claims = [{"name": names.of("claim", claim["name"])} for claim in resources["claims"]]
        changed["resources"] = {**resources, "claims": claims}
    return changed


def _rename_key(item: Body, names: Pseudonyms) -> Body:
    """A taint or toleration."""
    changed = dict(item)
    if item.get("key"):
        changed["key"] = names.key(item["key"])
    if item.get("value"):
        changed["value"] = names.value(item["value"])
    return changed


def _affinity(value: Any, names: Pseudonyms) -> Any:
    if isinstance(value, list):
        return [_affinity(item, names) for item in value]
    if not isinstance(value, Mapping):
        return value
    if "key" in value and "operator" in value:
        values = {"values": [names.value(str(one)) for one in value["values"]]} if "values" in value else {}
        key = value["key"] if value["key"] == "metadata.name" else names.key(value["key"])
        return {**value, "key": key, **values}
    return {name: _affinity(item, names) for name, item in value.items()}


_POD_FIELDS: Mapping[str, Callable[[Any, Pseudonyms], Any]] = {
    "nodeName": lambda name, names: names.of("node", name),
    "nodeSelector": lambda labels, names: names.labels(labels),
    "affinity": _affinity,
    "tolerations": lambda items, names: [_rename_key(item, names) for item in items],
    "schedulerName": _built_in_or("scheduler"),
    "priorityClassName": _built_in_or("priority"),
    "schedulingGates": _renamer_by_name("gate"),
    "resourceClaims": _renamer_by_name("claim"),
    "initContainers": _containers,
    "containers": _containers,
}


def _event(event: Body, names: Pseudonyms) -> Body:
    about = event["involvedObject"]
    kind = {"Node": "node", "Pod": "pod"}.get(str(about.get("kind")), "owner")
    namespace = event["metadata"]["namespace"]
    changed = {**about, "name": names.of(kind, about.get("name", ""))}
    if about.get("namespace"):
        changed["namespace"] = names.of("namespace", about["namespace"])
    metadata = {**event["metadata"], "namespace": names.of("namespace", namespace)}
    return {**event, "metadata": metadata, "involvedObject": changed, **_message(event)}


def _zone(zone: Body, names: Pseudonyms) -> Body:
    node = names.of("node", zone["spec"]["nodeName"])
    metadata = _metadata(zone["metadata"], "zone", names)
    metadata["name"] = f"{node}-numa-{zone['spec']['numaID']}"
    status = dict(zone["status"])
    # A checksum of the pods' names, by which they could be guessed.
    status.pop("podsFingerprint", None)
    status["conditions"] = [{**item, "message": ""} for item in status.get("conditions") or ()]
    if "assignments" in status:
        status["assignments"] = [_assignment(item, names) for item in status["assignments"]]
    if "devices" in status:
        status["devices"] = [
            item | {"assignedTo": _assignment(item["assignedTo"], names)} if item.get("assignedTo") else item
            for item in status["devices"]
        ]
    return {**zone, "metadata": metadata, "spec": {**zone["spec"], "nodeName": node}, "status": status}


def _assignment(item: Body, names: Pseudonyms) -> Body:
    kinds: Iterable[str] = ("namespace", "pod", "container")
    return item | {kind: names.of(kind, item[kind]) for kind in kinds if item.get(kind)}


def _state_file(file: str, content: bytes, names: Pseudonyms) -> bytes:
    """A state file with other names of containers, and a checksum to match; pods are UIDs there."""
    if file == checkpoints.CPU_MANAGER_STATE:
        cpus = checkpoints.parse_cpu_manager_state(content)
        entries = {uid: _by_pseudonym(held, names) for uid, held in cpus.entries.items()}
        return checkpoints.dump_cpu_manager_state(replace(cpus, entries=entries))
    if file == checkpoints.MEMORY_MANAGER_STATE:
        memory = checkpoints.parse_memory_manager_state(content)
        blocks = {uid: _by_pseudonym(held, names) for uid, held in memory.entries.items()}
        return checkpoints.dump_memory_manager_state(replace(memory, entries=blocks))
    devices = checkpoints.parse_device_manager_state(content)
    held = tuple(
        # What the plugin answered are environments, mounts and paths.
        replace(entry, container=names.of("container", entry.container), response=b"")
        for entry in devices.entries
    )
    return checkpoints.dump_device_manager_state(replace(devices, entries=held))


def _by_pseudonym(held: Mapping[str, Any], names: Pseudonyms) -> dict[str, Any]:
    return {names.of("container", container): share for container, share in held.items()}
