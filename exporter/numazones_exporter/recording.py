"""The archive that ``kubectl numazones record`` fetches: what a bug report needs from this node.

Nothing but what placement is decided from: the files of sysfs that the exporter reads, the kubelet's state
files, its answers, and the zones that were made of them in the same moment. Of the kubelet's
configuration, what placement depends on.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from aiohttp import web

from numazones import cpuset
from numazones.api.snapshot import KnownDevice
from numazones.errors import NumazonesError
from numazones_exporter import zones
from numazones_exporter.file_opener import ReadFile, read_file
from numazones_exporter.observation import (
    ContainerResources,
    Observation,
)
from numazones_exporter.options import Options
from numazones_exporter.sources.paths import STATE_FILES
from numazones_exporter.sources.reading import Sources, observe
from numazones_node import sysfs as sysfs_tree
from numazones_program.probes import HTTPHandler
from numazones_program.recordings import FACTS, PATH, SWITCHED_OFF, archive_of

_PAUSES = (0.1, 0.2, 0.4, 0.8)
"""Seconds between looks, as long as the kubelet writes its state files meanwhile."""
_SETTINGS = frozenset(
    {
        "apiVersion",
        "kind",
        "cpuCFSQuota",
        "cpuManagerPolicy",
        "cpuManagerPolicyOptions",
        "cpuManagerReconcilePeriod",
        "enforceNodeAllocatable",
        "evictionHard",
        "featureGates",
        "kubeReserved",
        "maxPods",
        "memoryManagerPolicy",
        "mergeDefaultEvictionSettings",
        "reservedMemory",
        "reservedSystemCPUs",
        "systemReserved",
        "topologyManagerPolicy",
        "topologyManagerPolicyOptions",
        "topologyManagerScope",
    }
)
"""What placement depends on; addresses, paths and certificates stay on the node."""


class CannotRecord(NumazonesError):
    """The node cannot be recorded; the message says what is missing."""


async def record(options: Options, read: ReadFile = read_file) -> bytes:
    """Read the node and return it as a tar.gz archive; ``read`` reads the kubelet's files.

    Raises:
        CannotRecord: the hardware cannot be read.
        numazones_exporter.zones.IndescribableNode: as for the zones.
    """
    sources = Sources(options, read=read)
    try:
        files = _state_files(options.kubelet_dir, read)
        observation = await observe(sources)
        for pause in _PAUSES:
            after = _state_files(options.kubelet_dir, read)
            if after == files:
                break
            await asyncio.sleep(pause)
            files, observation = after, await observe(sources)
        configuration = await _configuration(sources)
    finally:
        await sources.close()
    facts = _facts(options, observation, configuration)
    members = {f"sys/{name}": content for name, content in _sysfs_files(options.sysfs)}
    meminfo = _bytes(options.procfs / "meminfo")
    if meminfo is not None:
        members["proc/meminfo"] = meminfo
    if sources.sysfs.is_s390():  # the rest of the file may hold serial numbers
        members["proc/cpuinfo"] = b"vendor_id: IBM/S390\n"
    members[FACTS] = json.dumps(facts, indent=1).encode()
    return archive_of(members | files)


async def _configuration(sources: Sources) -> Mapping[str, Any] | None:
    """Return the kubelet's own configuration; if it cannot be read, the observation's problems say so."""
    try:
        async with asyncio.timeout(sources.options.source_timeout):
            document = await sources.kubelet_config.read()
    except (NumazonesError, OSError, TimeoutError):
        return None
    found: Mapping[str, Any] = document.get("kubeletconfig", document)
    return {name: value for name, value in found.items() if name in _SETTINGS}


def _facts(
    options: Options, observation: Observation, configuration: Mapping[str, Any] | None
) -> dict[str, Any]:
    snapshot = zones.snapshot_of(observation)
    if snapshot is None:
        problems = "; ".join(problem.message for problem in observation.problems)
        raise CannotRecord(f"node {options.node_name} cannot be recorded: {problems}")
    answer = observation.podresources
    return {
        "nodeName": options.node_name,
        "kubeletVersion": observation.kubelet_version or "",
        "kubeletConfiguration": configuration,
        "podresources": None
        if answer is None
        else [
            {
                "namespace": pod.namespace,
                "name": pod.name,
                "containers": {one.name: _container_document(one) for one in pod.containers},
            }
            for pod in answer.pods
        ],
        "devices": _device_plugin_documents(snapshot.devices),
        "zones": [zone.to_api() for zone in zones.build(snapshot)],
        "problems": [
            {"source": problem.source, "reason": problem.reason, "message": problem.message}
            for problem in zones.problems_of(observation)
        ],
    }


def _container_document(container: ContainerResources) -> dict[str, Any]:
    """One container's share, in the form of a recording's ``podresources_list``."""
    found: dict[str, Any] = {}
    if container.cpus:
        found["cpu_ids"] = list(cpuset.ids(container.cpus))
    if container.blocks:
        found["memory"] = [
            {"type": block.type, "size": block.size, "numa": list(cpuset.ids(block.affinity))}
            for block in container.blocks
        ]
    if container.devices:
        found["devices"] = [{"resource": one.resource, "id": one.id} for one in container.devices]
    return found


def _device_plugin_documents(devices: Iterable[KnownDevice]) -> dict[str, Any]:
    """The devices in the form of a recording's ``device_plugins.json``."""
    found: dict[str, Any] = {}
    for one in devices:
        plugin = found.setdefault(one.resource.replace("/", "-"), {"resource": one.resource, "devices": []})
        health = "Healthy" if one.healthy else "Unhealthy"
        plugin["devices"].append({"id": one.id, "numa": list(cpuset.ids(one.numa)), "health": health})
    return found


def _state_files(directory: Path, read: ReadFile) -> dict[str, bytes]:
    """Return the files that exist, by their names in a recording."""
    found: dict[str, bytes] = {}
    for name in STATE_FILES:
        content = _bytes(directory / name, read)
        if content is not None:
            found.setdefault(f"state/{Path(name).name}", content)
    return found


def _sysfs_files(sysfs: Path) -> Iterator[tuple[str, bytes]]:
    """The files that the exporter reads; an entry whose name alone counts ends with a slash."""
    for pattern in sysfs_tree.FILES:
        for path in sorted(sysfs.glob(pattern)):
            content = _bytes(path)
            if content is not None:
                yield str(path.relative_to(sysfs)), content
    for path in sorted(sysfs.glob(sysfs_tree.MEMBERS)):
        yield f"{path.relative_to(sysfs)}/", b""


def _bytes(path: Path, read: ReadFile = read_file) -> bytes | None:
    try:
        return None if path.is_fifo() else read(path)
    except OSError:
        return None


def recordings(options: Options, otherwise: HTTPHandler, read: ReadFile = read_file) -> HTTPHandler:
    """Answer GET /recording beside what another answers; one recording at a time."""
    busy = asyncio.Lock()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path != PATH:
            return await otherwise(request)
        if not options.recordings:
            text = f"{SWITCHED_OFF}; set --recordings=true, or apply the component exporter-recordings"
            return web.Response(status=HTTPStatus.FORBIDDEN, text=text)
        if busy.locked():
            return web.Response(
                status=HTTPStatus.SERVICE_UNAVAILABLE, text="another recording is in progress; try again"
            )
        async with busy:
            try:
                body = await asyncio.to_thread(asyncio.run, record(options, read))
            except NumazonesError as error:
                return web.Response(status=HTTPStatus.INTERNAL_SERVER_ERROR, text=str(error))
        return web.Response(body=body, content_type="application/gzip")

    return answer
