"""While a cluster is upgraded, programs and manifests of release 0.2.0 meet those of today."""

import asyncio
import io
import os
import re
import subprocess
import sys
import tarfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from checks.clusters import shipped_rights
from checks.clusters.operator.closed_loop import Loop, closed_loop
from checks.clusters.operator.test_faults import has_verdict
from checks.clusters.shipped_rights import guard, manifests
from numazones.api import crd
from numazones.cluster.admission_gate import GATE
from numazones_apiserver.requests import HTTPRequest
from numazones_client.resources import NUMAZONES
from numazones_simulator.addresses import free_address
from tests.places import ROOT
from tests.waiting import eventually

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


ACCOUNTS = {
    "numazones-operator": (shipped_rights.OPERATOR, "n1"),
    "numazones-exporter": (shipped_rights.EXPORTER, "n1"),
}
PARTS = ("exporter", "operator", "components/operator-admission-gate")


def account_of(request: HTTPRequest) -> shipped_rights.Account | None:
    """The account by the name of the program, whose tokens these tests do without."""
    return ACCOUNTS.get(request.headers.get("User-Agent", ""))


def arguments_of(objects: Sequence[dict[str, Any]], kind: str, ports: dict[str, int]) -> list[str]:
    """The arguments in manifests, with free ports in place of theirs, that name no place of a container."""
    body = next(one for one in objects if one["kind"] == kind)
    (container,) = body["spec"]["template"]["spec"]["containers"]
    numbers = {port["containerPort"]: port["name"] for port in container["ports"]}
    found = []
    for argument in container["args"]:
        name, _, value = argument.partition("=")
        if name.endswith("-address") and value.startswith(":"):
            found.append(f"{name}=127.0.0.1:{ports.setdefault(numbers[int(value[1:])], free_port())}")
        elif not value.startswith(("$", "/")) and name not in ("--kubelet-config", "--landlock"):
            found.append(argument)
    return found


def probes_of(objects: Sequence[dict[str, Any]], kind: str) -> list[tuple[str, str]]:
    """The names of the ports and the paths that a kubelet probes."""
    body = next(one for one in objects if one["kind"] == kind)
    (container,) = body["spec"]["template"]["spec"]["containers"]
    probes = (container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe"))
    return [(probe["port"], probe["path"]) for probe in probes]


def free_port() -> int:
    return int(free_address().rpartition(":")[2])


async def is_well(port: int, path: str) -> bool:
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}{path}") as answer,
        ):
            return answer.status == HTTPStatus.OK
    except aiohttp.ClientError:
        return False


@asynccontextmanager
async def upgraded(
    directory: Path, objects: Sequence[dict[str, Any]], *, programs: Path | None
) -> AsyncIterator[tuple[Loop, dict[str, dict[str, int]]]]:
    """Run programs of a release with manifests of another; yield the ports of each, too."""
    ports: dict[str, dict[str, int]] = {"DaemonSet": {}, "Deployment": {}}
    shipped = {kind: arguments_of(objects, kind, ports[kind]) for kind in ports}
    async with closed_loop(directory) as loop:
        started = await loop.start_kubelet(directory)
        loop.start_scheduler()
        await loop.opt_in()
        guard(loop.server, objects, account_of)
        gate = (f"--kubeconfig={loop.kubeconfig}", "--namespace=numazones-system", "--admission-gate")
        exporter = [one for one in started if not one.startswith("--metrics-address")]
        async with (
            program(directory / "exporter.log", *exporter, *shipped["DaemonSet"], release=programs),
            program(
                directory / "operator.log",
                "numazones-operator",
                *shipped["Deployment"],
                *gate,
                release=programs,
            ),
        ):
            yield loop, ports


async def gates_as_promised(loop: Loop) -> None:
    """Gated pods are released to the node that has room for them, and only those."""
    gated: Any = {"schedulingGates": [{"name": GATE}]}
    await loop.create_pod("fits", cpu=24, **gated)
    await loop.create_pod("wide", cpu=31, **gated)
    await eventually(partial(loop.runs, "fits"), what="the pod that fits is released and runs")
    await eventually(partial(has_verdict, loop, "wide", "Inadmissible"))
    await eventually(partial(shows, loop, (6, 30)), what="zones show the pod")


async def test_todays_programs_work_under_manifests_of_the_older_release(
    tmp_path: Path, release: Path
) -> None:
    objects = manifests(release, *PARTS)
    async with upgraded(tmp_path, objects, programs=None) as (loop, ports):
        await gates_as_promised(loop)
        for kind, found in ports.items():
            for port, path in probes_of(objects, kind):
                await eventually(partial(is_well, found[port], path), what=f"{kind} answers {path}")


async def test_programs_of_the_older_release_work_under_todays_policies(
    tmp_path: Path, release: Path
) -> None:
    """Roles and policies are in force at once; pods of the older templates are replaced later."""
    older = [body for body in manifests(release, *PARTS) if body["kind"] in ("DaemonSet", "Deployment")]
    todays = [body for body in manifests(ROOT, *PARTS) if body["kind"] not in ("DaemonSet", "Deployment")]
    async with upgraded(tmp_path, [*todays, *older], programs=release) as (loop, _ports):
        await gates_as_promised(loop)


def test_the_upgrade_leaves_no_admission_policy_behind(release: Path) -> None:
    of_the_release, todays = (
        {
            body["metadata"]["name"]
            for body in manifests(root, *PARTS)
            if body["kind"] == "ValidatingAdmissionPolicy"
        }
        for root in (release, ROOT)
    )
    assert of_the_release <= todays
    guide = (ROOT / "docs/guides/upgrade.md").read_text()
    assert "## From 0.2.0 to 0.3.0\n" in guide
    deleted = re.search(r"kubectl delete validatingadmissionpolicy,.*\\\n *(.*)", guide)
    assert deleted
    assert not set(deleted[1].split()) & todays


def test_network_policies_admit_scrapes_of_both_releases(release: Path) -> None:
    for root in (release, ROOT):
        ingress = {
            port["port"]
            for body in manifests(root, *PARTS)
            if body["kind"] == "NetworkPolicy"
            for rule in body["spec"]["ingress"]
            for port in rule["ports"]
        }
        assert ingress == {"metrics"}
        for other in (release, ROOT):
            for body in manifests(other, *PARTS):
                if body["kind"] in ("DaemonSet", "Deployment"):
                    (container,) = body["spec"]["template"]["spec"]["containers"]
                    assert "image" not in container or ingress <= {one["name"] for one in container["ports"]}


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
