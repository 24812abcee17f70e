"""What clusters have installed where others than kubelets place pods: definitions, and a configuration.

The definitions say no more than is needed to serve the objects; those of the projects themselves say more.
"""

from collections.abc import Iterable
from typing import Any

from numazones.placement import Model
from numazones_client import AlreadyExists, Client, Resource
from numazones_client.resources import (
    DEFINITIONS,
    KOORDINATOR_DEVICES,
    NODE_RESOURCE_TOPOLOGIES,
    TOPOLOGY_AWARE_POLICIES,
)
from numazones_simulator.control_plane import create_namespace
from numazones_simulator.kubelet.node_spec import NodeSpec
from numazones_simulator.kubelet.nri import CONFIGURATION

PLUGIN_NAMESPACE = "kube-system"

_KINDS = (
    (NODE_RESOURCE_TOPOLOGIES, "NodeResourceTopology"),
    (KOORDINATOR_DEVICES, "Device"),
    (TOPOLOGY_AWARE_POLICIES, "TopologyAwarePolicy"),
)


async def install(client: Client, specs: Iterable[NodeSpec]) -> None:
    """Create what these nodes need; what is there already stays."""
    models = {spec.model for spec in specs} - {Model.KUBELET}
    for resource, kind in _KINDS if models else ():
        await _create(client, DEFINITIONS, definition(resource, kind))
    if Model.TOPOLOGY_AWARE in models:
        await create_namespace(client, PLUGIN_NAMESPACE)
        policy = {
            "apiVersion": TOPOLOGY_AWARE_POLICIES.api_version,
            "kind": "TopologyAwarePolicy",
            "metadata": {"name": "default", "namespace": PLUGIN_NAMESPACE},
            "spec": dict(CONFIGURATION),
        }
        await _create(client, TOPOLOGY_AWARE_POLICIES, policy, namespace=PLUGIN_NAMESPACE)


def definition(resource: Resource, kind: str) -> dict[str, Any]:
    """A CustomResourceDefinition that lets anything in."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    annotations = {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"}
    return {
        "apiVersion": DEFINITIONS.api_version,
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": resource.full_name,
            **({"annotations": annotations} if resource.group.endswith(".k8s.io") else {}),
        },
        "spec": {
            "group": resource.group,
            "names": {"kind": kind, "plural": resource.plural, "singular": kind.lower()},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


async def _create(client: Client, resource: Resource, body: dict[str, Any], *, namespace: str = "") -> None:
    try:
        await client.create(resource, body, namespace=namespace)
    except AlreadyExists:
        return
