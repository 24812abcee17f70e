"""Recorded nodes for the exporter's tests, each unpacked once."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.recorded_nodes import MOMENTS, SAMPLE, SHARED, Recorded, unpack

NODES = ("rig-a", "rig-b", "rig-c", "rig-d")


@pytest.fixture(scope="session")
def machines() -> Iterator[dict[Path, Path]]:
    """Recording → where its machine was unpacked; filled as recordings are used."""
    unpacked: dict[Path, Path] = {}
    yield unpacked
    for folder in unpacked.values():
        shutil.rmtree(folder)  # thousands of files each


def _recorded(
    cluster: Path, name: str, moment: str, machines: dict[Path, Path], factory: pytest.TempPathFactory
) -> Recorded:
    directory = cluster / name
    if directory not in machines:
        machines[directory] = unpack(directory, factory.mktemp(name))
    return Recorded(name, cluster, moment, machines[directory])


@pytest.fixture(scope="session")
def sample(machines: dict[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The project's own recorded node, at the end of its recording."""
    return _recorded(SAMPLE, "rig-b", "", machines, tmp_path_factory)


@pytest.fixture(
    scope="session",
    params=[
        *(("sample", "rig-b", moment) for moment in MOMENTS),
        *(("shared", name, moment) for name in NODES for moment in MOMENTS),
    ],
    ids=lambda param: "-".join(filter(None, param)),
)
def recorded(
    request: pytest.FixtureRequest, machines: dict[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Recorded:
    """Each recorded node at each moment; the shared ones where they are."""
    origin, name, moment = request.param
    cluster = SAMPLE if origin == "sample" else request.getfixturevalue("shared") / SHARED
    return _recorded(cluster, name, moment, machines, tmp_path_factory)
