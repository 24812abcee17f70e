"""While a cluster is upgraded, programs of release 0.2.0 run beside those of today."""

import asyncio
import io
import os
import subprocess
import sys
import tarfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from checks.clusters.operator.test_faults import has_verdict
from numazones.api import crd
from numazones_client.resources import NUMAZONES
from tests.operator.closed_loop import Loop, closed_loop, eventually
from tests.places import ROOT

RELEASE_0_2_0 = "2405505"
PACKAGES = {"numazones-exporter": "numazones_exporter", "numazones-operator": "numazones_operator"}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of release 0.2.0, from the history of this checkout."""
    archive = subprocess.run(
        ["git", "archive", RELEASE_0_2_0], cwd=ROOT, capture_output=True, check=False
    ).stdout
    if not archive:
        pytest.skip("the checkout has no history back to release 0.2.0: git fetch --unshallow")
    directory = tmp_path_factory.mktemp("release-0.2.0")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(directory, filter="data")
    return directory


@asynccontextmanager
async def program(
    log: Path, name: str, *arguments: str, release: Path | None = None
) -> AsyncIterator[Process]:
    """Run a program of a release, or of today, until the end; it must not have ended before."""
    command: Sequence[str] = [str(Path(sys.executable).with_name(name))]
    environment = dict(os.environ)
    if release is not None:
        command = [sys.executable, "-c", f"from {PACKAGES[name]}.main import main; main()"]
        folders = [release, *(release / part for part in ("client", "program", "exporter", "operator"))]
        environment["PYTHONPATH"] = os.pathsep.join(map(str, folders))
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *command, *arguments, stdout=file, stderr=file, cwd=log.parent, env=environment
        )
    try:
        yield process
        assert process.returncode is None, f"{name} has ended, see {log}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def cluster(
    directory: Path, *, exporter: Path | None = None, operator: Path | None = None
) -> AsyncIterator[Loop]:
    """Run one node with the exporter and the operator of some release."""
    async with closed_loop(directory) as loop:
        arguments = await loop.start_kubelet(directory)
        options = (
            f"--kubeconfig={loop.kubeconfig}",
            "--namespace=numazones-system",
            "--metrics-address=127.0.0.1:0",
        )
        async with (
            program(directory / "exporter.log", *arguments, release=exporter),
            program(directory / "operator.log", "numazones-operator", *options, release=operator),
        ):
            yield loop


async def shows(loop: Loop, free: Sequence[int]) -> bool:
    """Return whether zones that are Ready show so many free CPUs."""
    found = []
    for zone in await loop.client.list(NUMAZONES):
        status = zone.get("status") or {}
        ready = {one["type"]: one["status"] for one in status.get("conditions", ())}.get("Ready")
        found += [int(one["available"]) for one in status.get("resources", ()) if one["name"] == "cpu"]
        if ready != "True":
            return False
    return found == list(free)


async def foresees_what_the_kubelet_does(loop: Loop) -> None:
    """Fill one of two zones, and see predictions of what fits beside and what does not."""
    await loop.create_pod("first", cpu=24)
    await eventually(partial(has_verdict, loop, "first", "Admissible"))
    await loop.create_pod("wide", cpu=31)
    await eventually(partial(has_verdict, loop, "wide", "Inadmissible"))
    await loop.bind("first", "n1")
    await eventually(partial(shows, loop, (6, 30)), what="zones show the pod")
    await loop.create_pod("second", cpu=28)
    await eventually(partial(has_verdict, loop, "second", "Admissible"))
    await loop.bind("second", "n1")
    await eventually(partial(shows, loop, (6, 2)), what="zones show both pods")
    await loop.create_pod("third", cpu=8)
    await eventually(partial(has_verdict, loop, "third", "Inadmissible"))


async def test_todays_operator_foresees_what_zones_of_an_older_exporter_mean(
    tmp_path: Path, release: Path
) -> None:
    async with cluster(tmp_path, exporter=release) as loop:
        await foresees_what_the_kubelet_does(loop)


async def test_an_older_operator_foresees_what_zones_of_todays_exporter_mean(
    tmp_path: Path, release: Path
) -> None:
    async with cluster(tmp_path, operator=release) as loop:
        await foresees_what_the_kubelet_does(loop)


def test_no_field_of_the_older_definitions_is_gone(release: Path) -> None:
    """An API server rejects what is applied with a field that the definition does not declare."""
    older = {
        definition["metadata"]["name"]: definition
        for path in (release / "crds").glob("*.yaml")
        for definition in yaml.safe_load_all(path.read_text())
        if definition and definition["kind"] == "CustomResourceDefinition"
    }
    todays = {definition["metadata"]["name"]: definition for definition in map(crd.crd, crd.KINDS)}
    assert older.keys() <= todays.keys()
    for name, definition in older.items():
        assert fields(schema_of(definition)) - fields(schema_of(todays[name])) == set()


def schema_of(definition: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def fields(schema: dict[str, Any], path: str = "") -> set[str]:
    found: set[str] = set()
    for name, inner in schema.get("properties", {}).items():
        found |= {f"{path}.{name}"} | fields(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found |= fields(schema[key], f"{path}[]")
    return found
