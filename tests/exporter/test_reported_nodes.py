"""Nodes of public bug reports, as their files describe them."""

import tarfile
from pathlib import Path

from numazones.api.numazone import NUMAZone
from numazones_exporter import zones
from numazones_exporter.options import Options
from numazones_exporter.sources.reading import Sources, observe


async def zones_of(case: Path, directory: Path, version: str) -> list[NUMAZone]:
    with tarfile.open(case / "node.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    kubelet = directory / "node/kubelet"
    sources = Sources(
        Options(
            node_name="node-1",
            sysfs=directory / "node/sys",
            procfs=directory / "node/proc",
            kubelet_dir=kubelet,
            podresources=f"replay:{kubelet}",
            kubelet_config=f"file:{kubelet}/config.yaml",
            kubelet_version=version,
            pods=f"file:{directory}/node/pods.json",
            once=True,
        )
    )
    try:
        snapshot = zones.snapshot_of(await observe(sources))
    finally:
        await sources.close()
    assert snapshot is not None
    return zones.build(snapshot)


def conditions(zone: NUMAZone) -> dict[str, tuple[str, str, str]]:
    assert zone.status is not None
    return {one.type: (one.status, one.reason, one.message) for one in zone.status.conditions}


async def test_added_cpus_name_the_cure_that_works(shared: Path, tmp_path: Path) -> None:
    (zone,) = await zones_of(shared / "cases/cpus-added-to-a-running-vm", tmp_path, "v1.35.2")
    status, _, message = conditions(zone)["Consistent"]
    assert status == "False"
    assert message.startswith(
        'a restart of the kubelet would fail: current set of available CPUs "0-7" doesn\'t match with CPUs '
        'in state "0-3"; drain the node, stop its kubelet, remove /var/lib/kubelet/cpu_manager_state and '
        "start it again"
    )


async def test_a_node_under_workload_partitioning_is_ready(shared: Path, tmp_path: Path) -> None:
    (zone,) = await zones_of(shared / "cases/openshift-workload-partitioning", tmp_path, "v1.34.9")
    assert conditions(zone) == {
        "Ready": ("True", "Complete", ""),
        "Consistent": ("True", "SourcesAgree", ""),
    }
    assert zone.status is not None
    assert zone.status.cpus is not None
    assert (zone.status.cpus.reserved, zone.status.cpus.shared) == ("0,8", "1-7,9-15")
