"""Tests of what the exporter sends to be recorded: only inputs of placement, only where it is enabled."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from numazones_exporter import recording
from numazones_exporter.options import Options
from numazones_node.sysfs import SysfsReader
from numazones_program import recordings
from tests.recorded_nodes import SAMPLE, unpack

NODE = SAMPLE / "rig-b"


def options(machine: Path, **changes: Any) -> Options:
    settings: dict[str, Any] = {
        "node_name": "rig-b",
        "sysfs": machine / "sys",
        "procfs": machine / "proc",
        "kubelet_dir": NODE,
        "podresources": f"replay:{NODE}",
        "kubelet_config": f"file:{NODE}/configz.json",
        "pods": f"file:{SAMPLE}/pods.json",
        "recordings": True,
        "once": True,
    }
    return Options(**settings | changes)


async def ask(settings: Options, path: str = recordings.PATH) -> tuple[int, bytes]:
    """Status and body of GET."""

    async def otherwise(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=418, text="another answers")

    answer = await recording.recordings(settings, otherwise)(make_mocked_request("GET", path))
    assert isinstance(answer, web.Response)
    assert isinstance(answer.body, bytes)
    return answer.status, answer.body


async def test_archive_holds_machine_state_files_and_their_readings(tmp_path: Path) -> None:
    machine = unpack(NODE, tmp_path)
    status, body = await ask(options(machine))
    assert status == 200
    again = tmp_path / "again"
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        archive.extractall(again, filter="data")
    read = [SysfsReader(place / "sys", place / "proc").read() for place in (machine, again)]
    assert read[0].value == read[1].value
    for name in ("cpu_manager_state", "memory_manager_state", "kubelet_internal_checkpoint"):
        assert (again / "state" / name).read_bytes() == (NODE / name).read_bytes()
    facts = json.loads((again / recordings.FACTS).read_text())
    assert [zone["spec"] for zone in facts["zones"]] == [
        {"nodeName": "rig-b", "numaID": 0},
        {"nodeName": "rig-b", "numaID": 1},
    ]
    assert {name for pod in facts["podresources"] for name in pod["containers"]}
    configured = yaml.safe_load((NODE / "configz.json").read_text())["kubeletconfig"]
    kept = facts["kubeletConfiguration"]
    assert kept.items() <= configured.items()
    assert kept["topologyManagerPolicy"] == "restricted"
    # Addresses, paths and certificates of the node are nobody's business.
    assert not {"clusterDNS", "authentication", "staticPodPath", "address"} & kept.keys()
    assert {"clusterDNS", "authentication"} & configured.keys()


async def test_recordings_are_served_only_with_the_setting_recordings(tmp_path: Path) -> None:
    status, body = await ask(options(tmp_path, recordings=False))
    assert status == 403
    assert body.startswith(b"recordings are switched off; ")


async def test_other_paths_are_answered_as_before(tmp_path: Path) -> None:
    assert await ask(options(tmp_path), "/metrics") == (418, b"another answers")


async def test_a_machine_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    status, body = await ask(options(tmp_path))
    assert status == 500
    assert b"node rig-b cannot be recorded: " in body
    assert b"--sysfs" in body
