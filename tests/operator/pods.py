"""Pods as they stand in manifests."""

from typing import Any


def pod_body(
    name: str,
    *,
    namespace: str = "default",
    cpu: int | str = 2,
    memory: str = "1Gi",
    limits: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod of one Guaranteed container."""
    amounts = {"cpu": str(cpu), "memory": memory, **(limits or {})}
    container = {
        "name": "main",
        "image": "registry.example/app",
        "resources": {"requests": amounts, "limits": amounts},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"containers": [container], **spec},
    }
