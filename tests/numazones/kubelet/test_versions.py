"""What differs between releases of the kubelet."""

import pytest

from numazones.kubelet.config import InvalidConfiguration
from numazones.kubelet.startup import Kubelet
from numazones.kubelet.versions import UnsupportedVersion, release

from .building import configuration, machine


@pytest.mark.parametrize(
    ("version", "minor"),
    [
        ("1.31", 31),
        ("v1.36.2", 36),
        ("v1.33.0-rc.1", 33),
        ("1.34.1+k3s1", 34),
        ("v1.99.0", 36),
        (" 1.35 ", 35),
    ],
)
def test_versions_are_read_and_newer_ones_taken_for_the_newest(version: str, minor: int) -> None:
    assert release(version).minor == minor
    assert str(release(version)) == f"1.{minor}"


@pytest.mark.parametrize("version", ["", "latest", "2.0", "1", "v1.x", "1.30.4"])
def test_other_versions_are_rejected(version: str) -> None:
    with pytest.raises(UnsupportedVersion):
        release(version)


@pytest.mark.parametrize(
    ("version", "option", "rejection"),
    [
        ("1.31", "strict-cpu-reservation", "unknown CPU Manager Policy option"),
        ("1.32", "strict-cpu-reservation", "Alpha-level Options not enabled"),
        ("1.33", "strict-cpu-reservation", None),
        ("1.31", "prefer-align-cpus-by-uncorecache", "unknown CPU Manager Policy option"),
        ("1.33", "prefer-align-cpus-by-uncorecache", "Alpha-level Options not enabled"),
        ("1.34", "prefer-align-cpus-by-uncorecache", None),
        ("1.32", "distribute-cpus-across-numa", "Alpha-level Options not enabled"),
        ("1.33", "distribute-cpus-across-numa", None),
        ("1.36", "align-by-socket", "Alpha-level Options not enabled"),
        ("1.36", "full-pcpus-only", None),
    ],
)
def test_options_mature_over_releases(version: str, option: str, rejection: str | None) -> None:
    config = configuration(
        "restricted",
        cpu_options={option: "true"},
        version=version,
        gates={"CPUManagerPolicyAlphaOptions": False},
    )
    if rejection is None:
        assert Kubelet.start(config, machine(), {}).cpus.static
    else:
        with pytest.raises(InvalidConfiguration, match=rejection):
            Kubelet.start(config, machine(), {})


def test_device_hints_are_narrowed_since_1_36() -> None:
    assert release("1.36").device_hints_over_hosting_nodes
    assert not release("1.35").device_hints_over_hosting_nodes
