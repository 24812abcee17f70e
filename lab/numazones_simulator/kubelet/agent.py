"""Connects one simulated kubelet to the API server and to its files: pods, statuses, Node and Lease.

What the API server and the node's files see is what a real kubelet shows: the Node with its conditions, the
Lease in kube-node-lease (KEP-589), pod statuses by the status subresource, and, with a directory, the node's
sysfs, procfs, state files and podresources socket, so that the real exporter runs unchanged against it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numazones.errors import NumazonesError
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones_client import AlreadyExists, APIError, Client, NotFound
from numazones_client.resources import LEASES, NODES, PODS
from numazones_simulator import clock, machine_tree
from numazones_simulator.background import background
from numazones_simulator.kubelet import pod_status
from numazones_simulator.kubelet.kubelet import NoDecision, SimulatedKubelet
from numazones_simulator.kubelet.podresources import PodResourcesServer
from numazones_simulator.kubelet.state_files import KubeletFiles
from numazones_simulator.machine_load import MachineLoad
from numazones_simulator.mirror import Body
from numazones_simulator.node_spec import NodeSpec, node_object
from numazones_simulator.placement_models import simulation_of

FIELD_MANAGER = "kubelet"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
LEASE_NAMESPACE = "kube-node-lease"

_LEASE_SECONDS = 40
_RENEWAL_SECONDS = 10.0
_PAUSE = 0.5
_RETRY = 10.0
_ENDED = ("Failed", "Succeeded")

_log = logging.getLogger(__name__)


class NoStateFiles(NumazonesError):
    """A kubelet is to start again, but its node has no directory; the message names the node."""


class Agent:
    """Runs one kubelet.

    ``number``: of the node in its cluster; gives its pods their addresses. ``directory``: for the node's
    files; None: it has none.
    """

    def __init__(
        self, kubelet: SimulatedKubelet, client: Client, *, number: int = 0, directory: Path | None = None
    ) -> None:
        self.kubelet = kubelet
        self.directory = directory
        self._client = client
        self._number = number
        self._pods_seen = 0
        self._settled: set[str] = set()
        """UIDs of pods that are not decided on again, though they do not run: a kubelet decides once.

        What it has decided reaches the API server late (seconds, on a busy kubelet 1.36), and other news
        of the pod may come in between.
        """
        self._news: deque[tuple[str, Body | None]] = deque()
        """What happened to pods (by uid) and was not looked after yet; None: deleted."""
        self._told = asyncio.Event()
        self._up = asyncio.Event()
        """Cleared while the kubelet does not run."""
        self._up.set()
        self._running: dict[str, Body] = {}
        """UID → pod that runs, as it was when it was admitted."""
        self._files = KubeletFiles(directory / "kubelet") if directory else None
        simulation = simulation_of(kubelet.spec.model)
        self.plugin = None if simulation is None else simulation.plugin(kubelet.spec)
        """Decides on containers after the kubelet has admitted their pod."""
        self._uncreated: dict[str, tuple[Body, Mapping[str, str], Body]] = {}
        """UID → pod of which the plugin rejected containers, its messages for these, and the pod's status."""
        self.node_uid = ""
        """metadata.uid of the Node, once it is registered."""
        self.registered_at = ""
        self.registered = asyncio.Event()
        self.changed = asyncio.Event()
        """Set whenever what pods hold has changed; cleared by who publishes it."""

    @property
    def name(self) -> str:
        """Name of the node."""
        return self.kubelet.spec.name

    def tell(self, uid: str, pod: Body | None) -> None:
        """Hand over the latest state of a pod of this node; None once it is deleted."""
        self._news.append((uid, pod))
        self._told.set()

    async def run(self) -> None:
        """Register the node and look after its pods until cancelled."""
        if self.directory is not None:
            await asyncio.to_thread(machine_tree.write, self.kubelet.spec.machine, self.directory)
            self._show()
            socket = self.directory / "kubelet" / "pod-resources" / "kubelet.sock"
            load = MachineLoad(self.kubelet.spec.machine, self.directory)
            async with PodResourcesServer(socket, self._holdings), background(load.run(self._holdings)):
                await self._run()
        else:
            await self._run()

    async def restart(self, spec: NodeSpec | None = None) -> None:
        """Stop the kubelet, and start it again from its state files; the node needs a directory.

        ``spec``: the node as it is from now on; None: as before.

        Raises:
            RefusesToStart, InvalidConfiguration: it stays down until another attempt.
        """
        if self.directory is None or self._files is None:
            raise NoStateFiles(f"node {self.name} has no files to start from; set a directory")
        self._up.clear()
        kubelet, verdicts = SimulatedKubelet.start(
            spec or self.kubelet.spec, self._files.read(), self._running.values()
        )
        if kubelet.spec.machine != self.kubelet.spec.machine:
            await asyncio.to_thread(machine_tree.write, kubelet.spec.machine, self.directory)
        self.kubelet = kubelet
        self._show()
        await self._persist(self.register)
        for uid, verdict in verdicts.items():
            if verdict.rejection is not None:
                self._settled.add(uid)
                await self._persist(self._write_status, self._running.pop(uid), pod_status.stopped())
        self._up.set()

    def _holdings(self) -> tuple[Node, list[Pod]]:
        return self.kubelet.node, self.kubelet.pods

    async def _run(self) -> None:
        await self._persist(self.register)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._renew_lease())
            tasks.create_task(self._look_after_pods())
            if self.plugin is not None:
                tasks.create_task(self._create_again())

    async def register(self) -> None:
        """Create the Node, or bring an existing one up to date."""
        now = clock.now()
        body = node_object(self.kubelet.spec, now=now)
        try:
            node = await self._client.create(NODES, body)
        except AlreadyExists:
            node = await self._client.patch(
                NODES, self.name, {"status": body["status"]}, subresource="status"
            )
        self.node_uid, self.registered_at = node["metadata"]["uid"], now
        self.registered.set()

    async def _renew_lease(self) -> None:
        while True:
            await self._up.wait()
            body = {
                "apiVersion": LEASES.api_version,
                "kind": "Lease",
                "metadata": {"name": self.name, "namespace": LEASE_NAMESPACE},
                "spec": {
                    "holderIdentity": self.name,
                    "leaseDurationSeconds": _LEASE_SECONDS,
                    "renewTime": clock.now_micro(),
                },
            }
            try:
                await self._client.apply(LEASES, body, field_manager=FIELD_MANAGER, namespace=LEASE_NAMESPACE)
            except APIError as error:
                _log.warning("%s: the node's lease was not renewed: %s", self.name, error)
            await asyncio.sleep(_RENEWAL_SECONDS)

    async def _look_after_pods(self) -> None:
        """Look after pods one by one, as kubelets do; those that are there at the start by creation."""
        await self._told.wait()
        self._news = deque(sorted(self._news, key=_creation_time))
        while True:
            while self._news:
                await self._up.wait()
                await self._persist(self._look_after, *self._news.popleft())
            self._told.clear()
            await self._told.wait()

    async def _look_after(self, uid: str, pod: Body | None) -> None:
        """Do what one pod needs now: remove it, end it, run it or reject it."""
        if pod is None:
            self._settled.discard(uid)
            self._remove(uid)
        elif pod["metadata"].get("deletionTimestamp"):
            self._remove(uid)
            metadata = pod["metadata"]
            await self._client.delete(
                PODS, metadata["name"], namespace=metadata["namespace"], uid=uid, grace_seconds=0
            )
        elif (pod.get("status") or {}).get("phase") in _ENDED:
            self._settled.add(uid)
            self._remove(uid)
        elif not self.kubelet.runs(uid) and uid not in self._settled:
            await self._admit(pod)

    def _remove(self, uid: str) -> None:
        self._uncreated.pop(uid, None)
        if self.plugin is not None:
            self.plugin.remove(uid)
        self._running.pop(uid, None)
        if self.kubelet.remove(uid):
            self._show()

    async def _admit(self, pod: Body) -> None:
        try:
            verdict = self.kubelet.admit(pod)
        except NoDecision as error:
            self._settled.add(pod["metadata"]["uid"])
            _log.warning("%s: %s; the pod stays Pending", self.name, error)
            return
        try:
            errors = {} if verdict.rejection is not None else self._create(pod)
        except NumazonesError as error:
            _log.warning("%s: the plugin reaches no decision: %s; the pod stays Pending", self.name, error)
            return
        self._show()
        for victim in verdict.preempted:
            self._settled.add(victim.uid)
            self._running.pop(victim.uid, None)
            names = {"metadata": {"name": victim.name, "namespace": victim.namespace, "uid": victim.uid}}
            await self._persist(self._write_status, names, pod_status.preempted())
        if verdict.rejection is not None:
            self._settled.add(pod["metadata"]["uid"])
            status = pod_status.rejected(
                pod,
                reason=verdict.rejection.reason,
                message=verdict.rejection.message,
                qos_class=verdict.qos_class,
                now=clock.now(),
            )
        else:
            self._running[pod["metadata"]["uid"]] = pod
            status = self._status_of_started(pod, errors, verdict.qos_class)
        await self._persist(self._write_status, pod, status)
        if errors:  # not before it is told: the status after the next attempt must come later
            self._uncreated[pod["metadata"]["uid"]] = (pod, errors, status)

    def _create(self, pod: Body) -> Mapping[str, str]:
        """Create a pod's containers; return container → what the runtime said where it did not."""
        if self.plugin is None:
            return {}
        return self.plugin.create(pod)

    def _status_of_started(self, pod: Body, errors: Mapping[str, str], qos_class: str) -> dict[str, Any]:
        about = {
            "qos_class": qos_class,
            "host_ip": self.kubelet.spec.address,
            "pod_ip": self._next_pod_ip(),
            "now": clock.now(),
        }
        if errors:
            return pod_status.not_created(pod, errors=errors, **about)
        return pod_status.running(pod, **about)

    async def _create_again(self) -> None:
        """Try waiting containers again, as kubelets do every ten seconds or so, and report what is new."""
        while True:
            await asyncio.sleep(_RETRY)
            for uid, (pod, told, before) in list(self._uncreated.items()):
                if uid not in self._uncreated:
                    continue  # it has ended while another one's status was written
                errors = self._create(pod)
                if errors == told:
                    continue
                status = pod_status.tried_again(pod, before, errors=errors, now=clock.now())
                if errors:
                    self._uncreated[uid] = (pod, errors, status)
                else:
                    del self._uncreated[uid]
                self._show()
                await self._persist(self._write_status, pod, status)

    async def _write_status(self, pod: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        await self._client.patch(
            PODS,
            metadata["name"],
            {"metadata": {"uid": metadata["uid"]}, "status": status},
            namespace=metadata["namespace"],
            subresource="status",
            media_type=STRATEGIC_PATCH,
            params={"fieldManager": FIELD_MANAGER},
        )

    def _next_pod_ip(self) -> str:
        self._pods_seen += 1
        third, fourth = divmod(self._pods_seen, 254)
        return f"10.{100 + self._number % 100}.{third % 256}.{fourth + 1}"

    def _show(self) -> None:
        """Write to files, and tell listeners, what pods hold now."""
        if self._files is not None:
            self._files.write(self.kubelet.recorded)
        self.changed.set()

    async def _persist(self, write: Any, *arguments: Any) -> None:
        """Send a request to the API server again and again until it answers."""
        while True:
            try:
                await write(*arguments)
            except NotFound:
                return  # the pod is gone already; the watch tells
            except APIError as error:
                _log.info("%s: %s; trying again", self.name, error)
                await asyncio.sleep(_PAUSE)
            else:
                return


def _creation_time(news: tuple[str, Body | None]) -> str:
    _, pod = news
    return "" if pod is None else pod["metadata"].get("creationTimestamp") or ""
