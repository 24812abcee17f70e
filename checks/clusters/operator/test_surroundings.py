"""The operator when names do not resolve, its disk is full, or its namespace is deleted."""

import asyncio
import os
import resource
import socket
import sys
from asyncio.subprocess import Process
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from checks.clusters.operator.closed_loop import OPTIONS, Loop, closed_loop
from checks.clusters.operator.test_faults import foresees_a_waiting_pod, has_verdict, lacks_verdict
from checks.clusters.operator.test_recovery import assert_state_equals_a_fresh_list, storm
from numazones_client.resources import LEASES, NAMESPACES, NUMAZONES
from numazones_simulator import node_kinds
from numazones_simulator.control_plane import create_namespace
from tests.waiting import eventually

NAME = "api.numazones.example"


class Names:
    """Resolves one name more than the machine does, unless DNS is gone."""

    FAILURE = "Temporary failure in name resolution"

    def __init__(self) -> None:
        self.gone = False
        self._resolve = socket.getaddrinfo

    def __call__(self, host: Any, *arguments: Any, **options: Any) -> Any:
        if host == NAME and self.gone:
            raise socket.gaierror(socket.EAI_AGAIN, self.FAILURE)
        return self._resolve("127.0.0.1" if host == NAME else host, *arguments, **options)


async def test_dns_outage_only_delays_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names)
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes(node_kinds.mixed(2))
        named = loop.server.url.replace("127.0.0.1", NAME)
        operator = await loop.start_operator(server=named)
        await storm(loop, pods=5, prefix="before")
        await assert_state_equals_a_fresh_list(loop, operator)
        names.gone = True
        await loop.server.stop()  # with the connections, which need no name any more
        # Addresses are remembered for ten seconds, and kopf's connections remember them for themselves.
        await eventually(lambda: any(names.FAILURE in one.problem for one in operator.reflectors))
        await loop.server.start()
        await storm(loop, pods=20, prefix="after")
        assert not any(name.startswith("after") for name in await loop.predictions())
        assert not operator.failed
        names.gone = False
        await assert_state_equals_a_fresh_list(loop, operator)


async def test_operator_stands_by_while_its_namespace_is_deleted(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("n1", "10.0.0.1")])
        operator = await loop.start_operator(
            namespace="ours",
            leads=False,
            leader_elect_lease_duration=3.0,
            leader_elect_renew_deadline=2.0,
        )
        assert not operator.leadership.leading
        await create_namespace(loop.client, "ours")
        await eventually(lambda: operator.leadership.leading)
        await loop.create_pod("waits", cpu=4)
        await eventually(lambda: has_verdict(loop, "waits", "Admissible"))

        await loop.client.delete(NAMESPACES, "ours")
        await eventually(lambda: not operator.leadership.leading)
        assert not operator.leadership.certain
        assert await loop.verdict("waits") == "Admissible"
        assert not operator.failed

        await create_namespace(loop.client, "ours")
        await eventually(lambda: operator.leadership.leading)
        assert len(await loop.client.list(LEASES, namespace="ours")) == 1
        await loop.create_pod("later", cpu=4)
        await eventually(lambda: has_verdict(loop, "later", "Admissible"))


async def test_nodes_are_unknown_without_the_namespace_of_exporter_leases(
    tmp_path: Path,
) -> None:
    async with closed_loop(tmp_path) as loop:
        operator = await foresees_a_waiting_pod(loop, node_kinds.mixed(2))
        await loop.client.delete(NAMESPACES, OPTIONS.exporter_namespace)
        await eventually(lambda: lacks_verdict(loop, "waits", "Admissible"))
        assert not operator.failed


def full_disk() -> None:
    """Let no file grow: each write to one fails, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


async def holds(loop: Loop, cpus: int) -> bool:
    """Return whether zones show that pods hold so many CPUs."""
    amounts = [
        int(amount["assigned"])
        for zone in await loop.client.list(NUMAZONES)
        for amount in (zone.get("status") or {}).get("resources", ())
        if amount["name"] == "cpu"
    ]
    return sum(amounts) == cpus


async def started_on_a_full_disk(program: str, *arguments: str) -> Process:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        return await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name(program)),
            *arguments,
            stdout=full,
            stderr=full,
            preexec_fn=full_disk,
        )
    finally:
        os.close(full)


async def test_on_a_full_disk_exporter_and_operator_go_on(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        command = await loop.start_kubelet(tmp_path)
        exporter = await started_on_a_full_disk(*command, "--log-level=debug")
        operator = await started_on_a_full_disk(
            "numazones-operator",
            f"--kubeconfig={loop.kubeconfig}",
            "--namespace=numazones-system",
            "--metrics-address=127.0.0.1:0",
            "--log-level=debug",
        )
        try:
            for name in ("first", "second"):
                await loop.create_pod(name, cpu=4)
                await eventually(partial(has_verdict, loop, name, "Admissible"))
            await loop.bind("second", "n1")
            await eventually(partial(holds, loop, 4))
        finally:
            for program in (operator, exporter):
                assert program.returncode is None
                program.terminate()
                assert await program.wait() == 0
