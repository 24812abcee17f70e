"""A real API server with the project's definitions and rights."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from numazones_client import Client, ClusterConfig, from_kubeconfig
from numazones_client.resources import ADMISSION_PREDICTIONS, NUMAZONES
from tests.manifests.kustomizations import composition
from tests.real_apiserver import RealAPIServer
from tests.waiting import eventually


@asynccontextmanager
async def cluster_on(server: RealAPIServer, tmp_path: Path) -> AsyncIterator[tuple[Client, ClusterConfig]]:
    """A real API server with our manifests: the administrator's client, the operator's configuration."""
    composed = composition(tmp_path, ["components/operator-admission-gate"])
    server.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(composed))
    token = server.kubectl("-n", "numazones-operator", "create", "token", "numazones-operator").strip()
    config = await from_kubeconfig(server.kubeconfig_for(token, tmp_path / "operator.kubeconfig"))
    administrator = await from_kubeconfig(server.kubeconfig)
    async with Client(administrator, user_agent="administrator") as client:
        await eventually(lambda: _is_ready(client))
        yield client, config


async def _is_ready(client: Client) -> bool:
    try:
        await client.list(NUMAZONES)
        await client.list(ADMISSION_PREDICTIONS)
    except Exception:  # noqa: BLE001 - definitions are not established yet
        return False
    return True
