"""Objects of resource.k8s.io/v1 as tests write them."""

from typing import Any

NODE = "worker-1"
GPU = "gpu.example"


def device(name: str, numa: int | None = None, **fields: Any) -> dict[str, Any]:
    """A device; ``numa``: the value of the standard attribute."""
    attributes = {} if numa is None else {"resource.kubernetes.io/numaNode": {"int": numa}}
    return {"name": name, "attributes": {**attributes, **fields.pop("attributes", {})}, **fields}


def resource_slice(
    *devices: dict[str, Any],
    name: str = "slice-1",
    driver: str = GPU,
    pool: str = NODE,
    generation: int = 1,
    count: int = 1,
    node: str = NODE,
    **spec: Any,
) -> dict[str, Any]:
    """A ResourceSlice of one node."""
    where = {"nodeName": node} if node else {}
    numbers = {"generation": generation, "resourceSliceCount": count}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {"driver": driver, "pool": {"name": pool, **numbers}, **where, "devices": [*devices], **spec},
    }


def result(name: str, *, driver: str = GPU, pool: str = NODE, **fields: Any) -> dict[str, Any]:
    """A device in the status of a claim."""
    return {"request": "one", "driver": driver, "pool": pool, "device": name, **fields}


def claim(
    *results: dict[str, Any], name: str = "claim", pods: tuple[str, ...] = (), **devices: Any
) -> dict[str, Any]:
    """A ResourceClaim; ``devices``: what its spec says of them."""
    request = {"name": "one", "exactly": {"deviceClassName": GPU, "allocationMode": "ExactCount", "count": 1}}
    allocation = {"allocation": {"devices": {"results": [*results]}}} if results else {}
    reserved = [{"resource": "pods", "name": uid, "uid": uid} for uid in pods]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"devices": {"requests": [request], **devices}},
        "status": {**allocation, **({"reservedFor": reserved} if reserved else {})},
    }


def device_class(name: str, *expressions: str, resource: str = "") -> dict[str, Any]:
    """A DeviceClass."""
    mapped = {"extendedResourceName": resource} if resource else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": text}} for text in expressions], **mapped},
    }
