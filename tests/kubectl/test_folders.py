"""Folders that other tools wrote are read as dumps."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from kubectl_numazones.reading.bad_dump import BadDump
from tests.kubectl.small_cluster import cluster

Run = Callable[..., Result]

_CORE = {"Node": "nodes", "Pod": "pods"}


def of_kind(kind: str, namespace: str = "") -> list[dict[str, Any]]:
    return [
        item
        for item in cluster()
        if item["kind"] == kind and item["metadata"].get("namespace", "") == namespace
    ]


def write(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{yaml.safe_dump(document)}" if path.suffix == ".yaml" else json.dumps(document))


def typed_list(kind: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    bare = [{key: part for key, part in item.items() if key not in {"kind", "apiVersion"}} for item in items]
    return {"apiVersion": "v1", "kind": f"{kind}List", "items": bare}


def must_gather(folder: Path, *, pods_listed: bool = True) -> Path:
    image = folder / "registry-example-must-gather-sha256-1a2b"
    wide = image / "cluster-scoped-resources"
    for kind, path in (("Node", "core/nodes"), ("NUMAZone", "numazones.io/numazones")):
        for item in of_kind(kind):
            write(wide / path / f"{item['metadata']['name']}.yaml", item)
    team = image / "namespaces/team"
    if pods_listed:
        write(team / "core/pods.yaml", typed_list("Pod", of_kind("Pod", "team")))
    for pod in of_kind("Pod", "team"):
        write(team / "pods" / pod["metadata"]["name"] / f"{pod['metadata']['name']}.yaml", pod)
    write(team / "team.yaml", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    write(wide / "operators.example/things/broken.yaml", "cut off")
    (folder / "timestamp").write_text("2026-11-27")
    (folder / "event-filter.html").write_text("<html>")
    return folder


def cluster_info(folder: Path) -> Path:
    write(folder / "nodes.json", typed_list("Node", of_kind("Node")))
    write(folder / "team/pods.json", typed_list("Pod", of_kind("Pod", "team")))
    write(folder / "team/events.json", typed_list("Event", []))
    (folder / "team/one").mkdir()
    (folder / "team/one/logs.txt").write_text("==== START logs")
    return folder


@pytest.mark.parametrize("pods_listed", [True, False])
def test_a_must_gather_answers_like_a_dump(run: Run, dump: Path, tmp_path: Path, pods_listed: bool) -> None:  # noqa: FBT001
    folder = must_gather(tmp_path / "must-gather.local.1", pods_listed=pods_listed)
    for path in (folder, folder / "registry-example-must-gather-sha256-1a2b"):
        for command in (("top",), ("why", "team/waiting"), ("fit", "cpu=4,memory=1Gi")):
            assert run(*command, "-f", path).output == run(*command, "-f", dump).output != ""


def test_what_cluster_info_dumped_is_read_with_zones_beside_it(run: Run, dump: Path, tmp_path: Path) -> None:
    folder = cluster_info(tmp_path / "cluster-info")
    assert "the dump has no NUMAZones of worker-1" in run("fit", "cpu=4,memory=1Gi", "-f", folder).output
    write(folder / "numazones.json", {"apiVersion": "v1", "kind": "List", "items": of_kind("NUMAZone")})
    for command in (("top",), ("why", "team/waiting"), ("fit", "cpu=4,memory=1Gi")):
        assert run(*command, "-f", folder).output == run(*command, "-f", dump).output != ""


def test_a_must_gather_without_objects_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "cluster-scoped-resources").mkdir()
    result = run("top", "-f", tmp_path)
    assert isinstance(result.exception, BadDump)
    assert "files that commands read" in str(result.exception)
