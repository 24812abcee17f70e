"""Predictions that turn out wrong for no reason that anybody knows, and the ConfigMap that keeps them."""

from typing import Any

from checks.clusters.operator.closed_loop import OPTIONS, Loop
from numazones_client.resources import CONFIG_MAPS
from numazones_operator.verification.misses import NAME, Misses
from tests.operator.offline_pipeline import OfflinePipeline, pod

NAMESPACE = OPTIONS.namespace


async def config_map(loop: Loop) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": NAMESPACE}}
    await loop.client.create(CONFIG_MAPS, body, namespace=NAMESPACE)


async def kept_misses(loop: Loop) -> dict[str, str]:
    body = await loop.client.get(CONFIG_MAPS, NAME, namespace=NAMESPACE)
    return dict(body.get("binaryData") or {})


class WrongPredictions:
    """A pipeline of which the kubelet rejects what it should admit, and the other way round."""

    def __init__(self, loop: Loop) -> None:
        self.setting = OfflinePipeline()
        self.setting.add_node()
        self.setting.pipeline.synced = True
        self.misses = Misses(loop.client, namespace=NAMESPACE, wall=self.setting.clock)
        self.setting.pipeline.misses = self.misses

    def err(self, name: str, **status: Any) -> None:
        """Let a pod be bound, and its kubelet say what nobody can explain; half a minute goes by."""
        self.setting.beat()
        self.setting.state.pods.put(pod(name))
        self.setting.state.pods.put(pod(name, **status))
        self.setting.clock.now += 31.0
        self.setting.pipeline.explain_misses()
