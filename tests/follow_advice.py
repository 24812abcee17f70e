"""Follows advice as its reader would, by its words, on simulated nodes; kubelets have the last word."""

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from numazones.apimachinery import quantity
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones_simulator.scheduler import choose
from tests.random_clusters import SimulatedNode, installed

Object = dict[str, Any]
Nodes = dict[str, SimulatedNode]
ASK = re.compile(r"request (?P<wanted>.+?)(?: instead of (?P<before>\S+))? in container (?P<container>\S+)$")
MOVE = re.compile(r"move (?P<pod>[^ ,]+)(?:, which holds .+,)? to (?P<target>\S+)$")
BACK = re.compile(
    r"move (?P<pod>[^ ,]+)(?:, which holds .+,)? within \S+ "
    r"\(delete it; its replacement gets a better placement there\)$"
)
BACK_LATER = re.compile(
    r"move (?P<pod>[^ ,]+)(?:, which holds .+,)? within \S+ "
    r"\(delete it; its replacement still fits once the waiting pod is placed\)$"
)
REMOVE = re.compile(r"remove (?P<pod>[^ ,]+).* \(no .+\)$")
SET = re.compile(r"set (?P<setting>topologyManager\w+): (?P<value>\S+) on (?P<node>[^ ,]+)")
LABEL = re.compile(r"kubectl label node (?P<node>\S+) (?P<labels>[^)]+)\)")
SELECTOR = re.compile(r"the pod's node selector (?P<labels>\S+) does not match: relax it")
TAINT = re.compile(r"does not tolerate its taint (?P<taints>.+?): add a toleration")
NAMED_AMOUNT = re.compile(r"(\S+) (\S+)")


def follow(sentence: str, body: Object, where: str, nodes: Nodes) -> tuple[Object, Nodes]:
    """Return the pod and the nodes once somebody has done what a piece of advice says about a node."""
    body, nodes = copy.deepcopy(body), dict(nodes)
    for words, do in _ACTIONS.items():
        found = words.search(sentence)
        if found is not None:
            do(found.groupdict(), body, where, nodes)
            return body, nodes
    assert " would admit it, but " in sentence, sentence
    spec = nodes[where].spec
    label, taint, wider = (words.search(sentence) for words in (LABEL, TAINT, SELECTOR))
    if label is not None:
        labels = dict(pair.split("=") for pair in label["labels"].split())
        nodes[where] = _with(nodes[where], labels={**spec.labels, **labels})
    if wider is not None:
        for pair in wider["labels"].split(","):
            key, _, value = pair.partition("=")
            assert body["spec"]["nodeSelector"].pop(key) == value
    if taint is not None:
        for text in taint["taints"].split(" and "):
            key, effect = text.rsplit(":", 1)
            name, _, value = key.partition("=")
            body["spec"].setdefault("tolerations", []).append(
                {"key": name, "operator": "Equal", "value": value, "effect": effect}
            )
    return body, nodes


def replacement_runs(sentence: str, where: str, before: Nodes, after: Nodes) -> bool:
    """Return whether a pod returns to its node if the advice says that it does after the waiting one."""
    found = BACK_LATER.search(sentence)
    if found is None:
        return True
    return runs(_pod_named(found["pod"], where, before), where, after)


def runs(body: Object, where: str, nodes: Nodes) -> bool:
    """Return whether a scheduler may choose the node, and its kubelet then runs the pod."""
    node = nodes[where]
    seen = ClusterNode.from_api(node.node()).with_pods(map(ClusterPod.from_api, node.pods.values()))
    pod = ClusterPod.from_api(body)
    return choose(pod, [seen]).node == where and node.run(placed(body, where))


def copy_of(node: SimulatedNode) -> SimulatedNode:
    """The node with its pods, on which others may be tried."""
    same = copy.copy(node)
    same.kubelet = copy.copy(node.kubelet)
    same.kubelet._pods = dict(node.kubelet._pods)
    same.pods = dict(node.pods)
    return same


def placed(body: Object, where: str) -> Object:
    """The pod, bound to a node."""
    return {**body, "spec": {**body["spec"], "nodeName": where}}


def _with(node: SimulatedNode, *, drained: bool = False, **changes: Any) -> SimulatedNode:
    """The node with other labels or settings; its pods come again, unless it was drained."""
    changed = SimulatedNode(replace(node.spec, **changes))
    for pod in () if drained else node.pods.values():
        assert changed.run(copy.deepcopy(pod))
    return changed


def _ask(found: Mapping[str, str], body: Object, _where: str, _nodes: Nodes) -> None:
    (container,) = (item for item in body["spec"]["containers"] if item["name"] == found["container"])
    if found["before"] and " " not in found["wanted"] and found["before"] in container["resources"]["limits"]:
        for amounts in (container["resources"]["requests"], container["resources"]["limits"]):
            amounts[found["wanted"]] = amounts.pop(found["before"])
        return
    for amount, name in NAMED_AMOUNT.findall(found["wanted"].replace(" and ", " ")):
        resource = "cpu" if name in {"CPU", "CPUs"} else name
        for amounts in (container["resources"]["requests"], container["resources"]["limits"]):
            assert quantity.parse(amounts[resource]).nanos != quantity.parse(amount).nanos
            amounts[resource] = amount


def _gone(found: Mapping[str, str], where: str, nodes: Nodes) -> Object:
    """Take a pod from a node, which is another value then; return it as its owner makes it anew."""
    pod = _pod_named(found["pod"], where, nodes)
    nodes[where] = copy_of(nodes[where])
    nodes[where].end(pod["metadata"]["uid"])
    return pod


def _pod_named(full_name: str, where: str, nodes: Nodes) -> Object:
    namespace, name = full_name.split("/")
    (pod,) = (
        item
        for item in nodes[where].pods.values()
        if (item["metadata"]["namespace"], item["metadata"]["name"]) == (namespace, name)
    )
    anew = copy.deepcopy(pod)
    anew.pop("status", None)
    return anew


def _back(found: Mapping[str, str], body: Object, where: str, nodes: Nodes) -> None:
    _move({**found, "target": where}, body, where, nodes)


def _move(found: Mapping[str, str], _body: Object, where: str, nodes: Nodes) -> None:
    pod = _gone(found, where, nodes)
    target = found["target"]
    nodes[target] = copy_of(nodes[target])
    assert runs(pod, target, nodes), f"{found['pod']} does not run on {target}"


def _remove(found: Mapping[str, str], _body: Object, where: str, nodes: Nodes) -> None:
    _gone(found, where, nodes)


def _set(found: Mapping[str, str], _body: Object, _where: str, nodes: Nodes) -> None:
    node = nodes[found["node"]]
    settings = {**node.spec.configuration, found["setting"]: found["value"]}
    nodes[found["node"]] = _with(node, drained=True, configuration=settings)


_ACTIONS: dict[re.Pattern[str], Callable[[Mapping[str, str], Object, str, Nodes], None]] = {
    ASK: _ask,
    MOVE: _move,
    BACK: _back,
    BACK_LATER: _remove,
    REMOVE: _remove,
    SET: _set,
}


def objects_of(nodes: Nodes, pods: list[Object]) -> Iterator[Object]:
    """Yield what ``kubectl get`` prints of all that numazones reads of the nodes and the waiting pods."""
    yield from installed(nodes.values())
    for node in nodes.values():
        yield {**node.node(), "kind": "Node"}
        yield from node.zones()
        yield from (published.body for published in node.published())
        for pod in node.pods.values():
            yield {**pod, "kind": "Pod"}
    for pod in pods:
        yield {**pod, "kind": "Pod"}
