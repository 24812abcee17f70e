"""Starts a real operator, waits until it has listed the cluster, and reads its answers."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from numazones.errors import NumazonesError
from numazones_client import Client
from numazones_client.resources import PODS
from numazones_simulator.addresses import free_address
from numazones_simulator.control_plane import NAMESPACE
from numazones_simulator.programs import Programs

NAME = "numazones-operator"
ALONE = "--no-leader-elect"
"""There is one replica, which need not wait for a Lease."""

_POLL = 0.1
_OK = 200
_NODES = re.compile(r"^numazones_(nodes|stale_nodes)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


class NoAnswer(NumazonesError):
    """An operator does not answer as it should; the message names the address."""


class NotReady(NumazonesError):
    """An operator did not list the cluster in time; the message says what it lacks."""


async def start(
    kubeconfig: Path, programs: Programs, *, name: str = "operator", further: Sequence[str] = ()
) -> str:
    """Start the operator of a simulated cluster; return where it will answer, ``http://127.0.0.1:PORT``.

    Raises:
        ProgramFailed: it is not installed.
    """
    metrics = free_address()
    command = [
        "numazones-operator",
        f"--kubeconfig={kubeconfig}",
        f"--namespace={NAMESPACE}",
        f"--metrics-address={metrics}",
        "--log-format=text",
        ALONE,
        # A whole cluster on one machine may take its time to write zones: its nodes are not stale for that.
        "--settle=1m",
        *further,
    ]
    await programs.start(name, command)
    return f"http://{metrics}"


async def show_pod(client: Client, arguments: Sequence[str], *, node: str) -> None:
    """Make the pod that a cluster would show of a running operator, for those who look for it there.

    Args:
        client: of the cluster.
        arguments: the further ones of the operator's process, which runs outside of the cluster.
        node: whose kubelet says that the pod runs; it asks for nothing.
    """
    container = {"name": "operator", "image": NAME, "args": [ALONE, *arguments]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/name": NAME}},
        "spec": {"nodeName": node, "containers": [container], "tolerations": [{"operator": "Exists"}]},
    }
    await client.create(PODS, pod, namespace=NAMESPACE)


async def ask(url: str) -> str:
    """Return what an operator answers, such as its metrics.

    Raises:
        NoAnswer: nobody is there, or the status is not 200.
    """
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            text = await answer.text()
    except TimeoutError:
        raise NoAnswer(f"{url} does not respond") from None
    except aiohttp.ClientError as error:
        raise NoAnswer(f"{url}: {error}") from error
    if answer.status != _OK:
        raise NoAnswer(f"{url} returned status {answer.status}: {text.strip()}")
    return text


async def wait_until_ready(address: str, nodes: int, programs: Programs, *, patience: float = 300.0) -> None:
    """Wait until an operator has listed everything and knows the state of every node.

    Of pods that are bound before that, it predicts nothing.

    ``address``: of its metrics, such as ``http://127.0.0.1:9407``.

    Raises:
        NotReady: it does not, after ``patience``.
        ProgramFailed: it ended.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + patience
    while lacking := await _missing_part(address, nodes):
        if clock() >= until:
            raise NotReady(
                f"the operator is not ready after {patience:g} s: {lacking}; its log is in "
                f"{programs.log_directory}"
            )
        await asyncio.sleep(_POLL)
        programs.check()


async def _missing_part(address: str, nodes: int) -> str:
    """Return what an operator still lacks; empty once it is ready."""
    try:
        await ask(f"{address}/readyz")
        metrics = await ask(f"{address}/metrics")
    except NoAnswer as error:
        return str(error)
    counted = {"nodes": 0, "stale_nodes": 0}
    for which, value in _NODES.findall(metrics):
        counted[which] += int(float(value))
    known = counted["nodes"] - counted["stale_nodes"]
    return "" if known == nodes else f"it knows the state of {known} of {nodes} nodes"
