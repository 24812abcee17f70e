"""Runs many simulated kubelets on one connection: one watch of all pods, handed out by node."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from numazones.errors import NumazonesError
from numazones_apiserver import StatusError
from numazones_client import Client
from numazones_client.resources import PODS
from numazones_simulator.kubelet.agent import Agent
from numazones_simulator.kubelet.kubelet import SimulatedKubelet
from numazones_simulator.mirror import Body, mirror
from numazones_simulator.node_spec import NodeSpec

_MAX_SOCKET_PATH = 107  # sockaddr_un on Linux, without the closing zero


class SocketPathTooLong(NumazonesError):
    """A unix socket's path is too long; the message names the path."""


class Fleet:
    """Kubelets of one cluster; run ``run`` as a task.

    ``directory``: below it each node gets a directory of its name; None: nodes have no files.

    Raises:
        InvalidConfiguration: a kubelet would not start with its configuration on its machine.
        SocketPathTooLong: the directory's path leaves no room for the podresources socket.
    """

    def __init__(self, client: Client, specs: Iterable[NodeSpec], *, directory: Path | None = None) -> None:
        self._pods = mirror(client, PODS, self._pod_changed)
        self.agents: dict[str, Agent] = {}
        for number, spec in enumerate(specs):
            place = None if directory is None else directory / spec.name
            _check(place)
            self.agents[spec.name] = Agent(SimulatedKubelet(spec), client, number=number, directory=place)

    async def run(self) -> None:
        """Run all kubelets until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for agent in self.agents.values():
                tasks.create_task(agent.run())
            tasks.create_task(self._pods.reflector.run())

    def _pod_changed(self, before: Body | None, after: Body | None) -> None:
        pod = after or before
        agent = self.agents.get(pod["spec"].get("nodeName") or "") if pod else None
        if pod and agent is not None:
            agent.tell(pod["metadata"]["uid"], after)

    async def answer(self, node: str, path: str) -> dict[str, Any]:
        """Answer a request to a node's kubelet through the API server: for its configuration.

        Raises:
            StatusError: no kubelet of that name, or it does not serve the path.
        """
        agent = self.agents.get(node)
        if agent is None or path.strip("/") != "configz":
            raise StatusError(404, "NotFound", f"no simulated kubelet serves {path!r} for node {node!r}")
        return {"kubeletconfig": dict(agent.kubelet.spec.configuration)}


def _check(directory: Path | None) -> None:
    if directory is None:
        return
    path = directory / "kubelet" / "pod-resources" / "kubelet.sock"
    if len(str(path)) > _MAX_SOCKET_PATH:
        raise SocketPathTooLong(
            f"{path} is longer than the {_MAX_SOCKET_PATH} characters a socket's path may have; "
            "use a directory with a shorter path"
        )
