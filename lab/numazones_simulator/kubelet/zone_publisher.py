"""Publishes the zones of simulated nodes straight from their kubelets, where exporters would cost too much.

A real exporter is a process of some 40 MiB; a loop of twenty or a thousand nodes does without them. What is
published is what an exporter would publish: the same builder makes the zones, all zones of a node carry one
snapshot id, unchanged zones are not written, and a Lease per node says that the zones are watched over.
"""

import asyncio
import json
import logging
from typing import Any

from numazones.api.meta import NODE_LABEL, Condition
from numazones.api.numazone import READY
from numazones.api.shared_cpus import cpus_exclusive
from numazones.api.zones_from_node import zones_from_node
from numazones_client import APIError, Client
from numazones_client.resources import LEASES, NUMAZONES
from numazones_simulator import clock
from numazones_simulator.control_plane import NAMESPACE
from numazones_simulator.kubelet.agent import Agent
from numazones_simulator.placement_models import simulation_of

FIELD_MANAGER = "numazones-exporter"
_LEASE_SECONDS = 180
_RENEWAL_SECONDS = 60.0
_PAUSE = 0.5

_log = logging.getLogger(__name__)


class SimulatedZonePublisher:
    """Keeps the zones of one simulated node current; run ``run`` as a task.

    ``zones``: False where an exporter publishes them, so that only what others publish is left to do.
    """

    def __init__(self, agent: Agent, client: Client, *, zones: bool = True) -> None:
        self._agent = agent
        self._client = client
        self._with_zones = zones
        self._written: dict[str, str] = {}

    async def run(self) -> None:
        """Publish until cancelled, from the moment the node is registered."""
        await self._agent.registered.wait()
        async with asyncio.TaskGroup() as tasks:
            if self._with_zones:
                tasks.create_task(self._renew_lease())
            tasks.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            self._agent.changed.clear()
            try:
                await self.publish()
            except APIError as error:
                _log.info("zones of %s: %s; trying again", self._agent.name, error)
                self._written.clear()
                await asyncio.sleep(_PAUSE)
            else:
                await self._agent.changed.wait()

    async def publish(self) -> None:
        """Write the zones that differ from what was written last.

        Raises:
            APIError: a request failed.
        """
        await self._publish_others()
        for zone in self._zones() if self._with_zones else ():
            text = json.dumps(zone, sort_keys=True)
            name = zone["metadata"]["name"]
            if self._written.get(name) == text:
                continue
            status = zone.pop("status")
            if name not in self._written:
                await self._client.apply(NUMAZONES, zone, field_manager=FIELD_MANAGER)
            head = {key: zone[key] for key in ("apiVersion", "kind")} | {"metadata": {"name": name}}
            await self._client.apply(
                NUMAZONES, {**head, "status": status}, field_manager=FIELD_MANAGER, subresource="status"
            )
            self._written[name] = text

    async def _publish_others(self) -> None:
        """Write what the agents of another placement model publish of the node, where it has one."""
        spec = self._agent.kubelet.spec
        simulation = simulation_of(spec.model)
        found = () if simulation is None else simulation.published(spec, self._agent.plugin)
        for resource, body, manager in found:
            text = json.dumps(body, sort_keys=True)
            if self._written.get(resource.plural) != text:
                await self._client.apply(resource, body, field_manager=manager)
                self._written[resource.plural] = text

    def _zones(self) -> list[dict[str, Any]]:
        kubelet = self._agent.kubelet
        pods = {pod.uid: pod for pod in kubelet.pods}
        shared = cpus_exclusive(
            kubelet.node.cpus.default,
            kubelet.node.cpus.exclusive_cpus_by_pod(),
            name=lambda uid: f"{pods[uid].namespace}/{pods[uid].name}" if uid in pods else f"uid {uid}",
            created=lambda uid: pods[uid].created if uid in pods else "",
            alike=kubelet.node.machine.alike,
        )
        zones = zones_from_node(
            kubelet.node,
            node_name=self._agent.name,
            pods={pod.uid: (pod.namespace, pod.name) for pod in kubelet.pods},
            version=kubelet.spec.version,
            conditions=(Condition(type=READY, status="True", reason="Complete"), *shared),
        )
        bodies = [zone.to_api() for zone in zones]
        for body in bodies:
            body["metadata"]["ownerReferences"] = [self._owner()]
            for condition in body["status"].get("conditions", ()):
                condition["lastTransitionTime"] = self._agent.registered_at
        return bodies

    def _owner(self) -> dict[str, str]:
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "name": self._agent.name,
            "uid": self._agent.node_uid,
        }

    async def _renew_lease(self) -> None:
        while True:
            body = {
                "apiVersion": LEASES.api_version,
                "kind": "Lease",
                "metadata": {
                    "name": f"numazones-exporter-{self._agent.name}",
                    "namespace": NAMESPACE,
                    "labels": {NODE_LABEL: self._agent.name},
                    "ownerReferences": [self._owner()],
                },
                "spec": {
                    "holderIdentity": self._agent.name,
                    "leaseDurationSeconds": _LEASE_SECONDS,
                    "renewTime": clock.now_micro(),
                },
            }
            pause = _RENEWAL_SECONDS
            try:
                await self._client.apply(LEASES, body, field_manager=FIELD_MANAGER, namespace=NAMESPACE)
            except APIError as error:
                _log.info("lease of %s: %s; trying again", self._agent.name, error)
                pause = _PAUSE
            await asyncio.sleep(pause)
