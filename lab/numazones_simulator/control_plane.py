"""The API server of a simulated cluster with all that numazones expects to find in it.

That is what `kubectl apply -k manifests` would have put there: the CustomResourceDefinitions (generated from
the models, so that they are those of this very version) and the namespace of the project's own objects.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from numazones.api import crd
from numazones_apiserver import ApiServer
from numazones_apiserver.server import NodeProxy
from numazones_client import AlreadyExists, Client, ClusterConfig, Resource
from numazones_client.resources import DEFINITIONS, NAMESPACES

NAMESPACE = "numazones-system"
PATIENCE_SECONDS = 600.0
"""Of the client, whose server runs in the same process: an answer that takes long only says how busy the
machine is, and giving up would end a run of hours."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running API server and the ways to it."""

    server: ApiServer
    client: Client
    kubeconfig: Path


@asynccontextmanager
async def control_plane(
    directory: Path, *, port: int = 0, node_proxy: NodeProxy | None = None
) -> AsyncIterator[ControlPlane]:
    """Serve the API on loopback while the context is open.

    ``directory``: for the kubeconfig; ``port``: 0 takes a free one; ``node_proxy`` answers for the nodes'
    kubelets.
    """
    async with ApiServer(port=port, node_proxy=node_proxy) as server:
        kubeconfig = server.kubeconfig(directory / "kubeconfig")
        config = ClusterConfig(server=server.url)
        # By HTTP, as everybody around it: in process its events would come a turn of the loop before the
        # operator's.
        async with Client(config, user_agent="numazones-simulator", timeout=PATIENCE_SECONDS) as client:
            await install(client)
            yield ControlPlane(server, client, kubeconfig)


async def install(client: Client) -> None:
    """Create the resource definitions and the namespace; what is there already stays."""
    for kind in crd.KINDS:
        await _create(client, DEFINITIONS, crd.crd(kind))
    await create_namespace(client, NAMESPACE)


async def create_namespace(client: Client, name: str) -> None:
    """Create a namespace, unless it is there."""
    await _create(client, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def _create(client: Client, resource: Resource, body: dict[str, object]) -> None:
    try:
        await client.create(resource, body)
    except AlreadyExists:
        return
