"""This node's pods, kept current by a watch instead of being listed in every cycle.

A list per node and minute is most of what such exporters cost the API server in large clusters; a watch
with the field selector ``spec.nodeName`` costs next to nothing and tells at once when a pod has ended.
Only what matters of a pod is kept, and only a change in that wakes the exporter: kubelets update the
status of pods far more often than a phase changes. While the watch is broken, reading lists as before.
"""

import asyncio
import json
import logging
import random
from collections.abc import Mapping
from typing import Any

from numazones.errors import NumazonesError
from numazones_client import Client, Event, Gone, Page
from numazones_client.decoding import BOOKMARK, DELETED, ERROR
from numazones_client.resources import PODS
from numazones_exporter.observation import NodePod
from numazones_exporter.sources.node_pods import PodsReader, pods_of
from numazones_exporter.triggers import PODS as PODS_CHANGED
from numazones_exporter.triggers import Wakeups

_PAGE = 20
"""Pods per page of a list; a page is in memory as a whole, and real pods have several KiB."""
_SHORTEST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0

_log = logging.getLogger(__name__)


class _Decoder:
    """Keeps of a pod what the exporter needs."""

    def __init__(self, node_name: str) -> None:
        self._node_name = node_name

    def page(self, body: bytes) -> Page[NodePod]:
        document = json.loads(body)
        metadata = document.get("metadata") or {}
        items = list(pods_of(document.get("items") or (), self._node_name))
        return Page(items, metadata.get("resourceVersion") or "", metadata.get("continue") or "")

    def event(self, line: bytes) -> Event[NodePod]:
        document = json.loads(line)
        kind: str = document["type"]
        body: Mapping[str, Any] = document["object"]
        if kind == ERROR:
            return Event(kind, None, "", body)
        version = (body.get("metadata") or {}).get("resourceVersion") or ""
        pods = () if kind == BOOKMARK else pods_of((body,), self._node_name)
        return Event(kind, pods[0] if pods else None, version)


class WatchedPods:
    """A ``PodsReader`` that answers from what a watch has gathered."""

    def __init__(self, client: Client, node_name: str, wakeups: Wakeups, *, otherwise: PodsReader) -> None:
        """``otherwise`` is asked while the watch does not work."""
        self._client = client
        self._selector = f"spec.nodeName={node_name}"
        self._decoder = _Decoder(node_name)
        self._wakeups = wakeups
        self._otherwise = otherwise
        self._pods: dict[tuple[str, str], NodePod] = {}
        self._version = ""
        self._live = False

    async def read(self) -> tuple[NodePod, ...]:
        """Return the pods by namespace and name; raises what the other reader raises, never hides a gap."""
        if not self._live:
            return await self._otherwise.read()
        return tuple(self._pods[key] for key in sorted(self._pods))

    async def run(self) -> None:
        """Watch until cancelled; pauses grow while the API server cannot be watched.

        A server that ends every watch at once is asked once a second at most.
        """
        clock = asyncio.get_running_loop().time
        pause = 0.0
        while True:
            started = clock()
            try:
                if not self._version:
                    await self._list()
                self._live = True
                await self._follow()
                pause = 0.0
            except Gone:
                self._version = ""
                await asyncio.sleep(max(0.0, _SHORTEST_PAUSE - (clock() - started)))
            except NumazonesError as error:
                self._live = False
                self._version = ""
                pause = min(max(_SHORTEST_PAUSE, 2 * pause), _LONGEST_PAUSE)
                _log.warning(
                    "the watch of this node's pods broke and starts again in %.0f s: %s", pause, error
                )
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            else:
                await asyncio.sleep(max(0.0, _SHORTEST_PAUSE - (clock() - started)))

    async def _list(self) -> None:
        pods: dict[tuple[str, str], NodePod] = {}
        version = ""
        async for page in self._client.pages(
            PODS, decoder=self._decoder, field_selector=self._selector, limit=_PAGE
        ):
            pods.update(((pod.namespace, pod.name), pod) for pod in page.items)
            version = page.resource_version
        if pods != self._pods:
            self._pods = pods
            self._wakeups.wake(PODS_CHANGED)
        self._version = version

    async def _follow(self) -> None:
        """Take events until the server ends the watch, as it does every few minutes."""
        async for event in self._client.watch(
            PODS, resource_version=self._version, decoder=self._decoder, field_selector=self._selector
        ):
            self._version = event.resource_version or self._version
            if event.object is not None:
                self._take(event.type, event.object)

    def _take(self, kind: str, pod: NodePod) -> None:
        key = (pod.namespace, pod.name)
        before = self._pods.get(key)
        if kind == DELETED:
            self._pods.pop(key, None)
        else:
            self._pods[key] = pod
        if self._pods.get(key) != before:
            self._wakeups.wake(PODS_CHANGED)
