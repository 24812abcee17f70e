"""The demo on recorded nodes: real exporters read them, and publish into an API server on this machine."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from numazones_apiserver import ApiServer, StatusError
from numazones_simulator import exporters, recordings
from numazones_simulator.control_plane import ControlPlane, control_plane, create_namespace
from numazones_simulator.programs import Programs
from numazones_simulator.recordings import Recording
from numazones_simulator.screen import Screen


@asynccontextmanager
async def running(
    recorded: list[Recording], directory: Path, screen: Screen, *, port: int = 0
) -> AsyncIterator[ControlPlane]:
    """Run an API server with the recorded nodes and pods, and an exporter for each node.

    ``directory``: for unpacked files, logs and the kubeconfig; ``port``: 0 takes a free one.
    """
    configurations = {recording.name: _configuration(recording) for recording in recorded}

    async def kubelet(node: str, path: str) -> dict[str, Any]:
        if path.strip("/") != "configz" or node not in configurations:
            raise StatusError(404, "NotFound", f"the recording of node {node!r} has no response to {path!r}")
        return configurations[node]

    async with (
        control_plane(directory, port=port, node_proxy=kubelet) as plane,
        Programs(directory / "logs") as programs,
    ):
        screen.say(f"API server on {plane.server.url}")
        for recording in recorded:
            screen.progress(f"unpacking {recording.name} and starting its exporter")
            await _restore(plane, recording)
            directories = recordings.lay_out(recording, directory / recording.name)
            await programs.start(
                f"exporter-{recording.name}",
                exporters.command(
                    recording.name,
                    directories,
                    server=plane.server.url,
                    podresources=f"replay:{recording.directory}",
                ),
            )
        screen.progress("waiting for the NUMAZones")
        await exporters.wait_for_zones(plane.client, {recording.name for recording in recorded}, programs)
        screen.say(f"Recorded nodes: {', '.join(recording.name for recording in recorded)}")
        yield plane


def _configuration(recording: Recording) -> dict[str, Any]:
    """Return what the recorded kubelet responds to /configz."""
    text = recording.kubelet_configuration.read_text(encoding="utf-8")
    content: dict[str, Any] = (
        json.loads(text) if recording.kubelet_configuration.suffix == ".json" else yaml.safe_load(text)
    )
    return content if "kubeletconfig" in content else {"kubeletconfig": content}


async def _restore(plane: ControlPlane, recording: Recording) -> None:
    """Put the recorded Node and its pods into the API server as they were, uids included."""
    _store(plane.server, "nodes", recording.node)
    for pod in recording.pods:
        await create_namespace(plane.client, pod["metadata"]["namespace"])
        _store(plane.server, "pods", pod)


def _store(server: ApiServer, plural: str, body: Mapping[str, Any]) -> None:
    # Creating objects through the API would give them new uids, which the recorded state files do not know.
    collection = server.store.collection(*server.kind(plural).collection)
    server.store.put(collection, dict(body))
