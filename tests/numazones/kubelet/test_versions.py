"""Differences between releases of the kubelet."""

from typing import Any

import pytest

from numazones import cpuset
from numazones.kubelet.admission import admit
from numazones.kubelet.config import InvalidConfiguration
from numazones.kubelet.demand import PodLevel
from numazones.kubelet.pod import Pod
from numazones.kubelet.startup import KubeletManagers
from numazones.kubelet.versions import UnsupportedVersion, release
from tests.numazones.kubelet.building import configuration, container, machine, node, pod


@pytest.mark.parametrize(
    ("version", "minor"),
    [
        ("1.31", 31),
        ("v1.36.2", 36),
        ("v1.33.0-rc.1", 33),
        ("1.34.1+k3s1", 34),
        ("v1.99.0", 38),
        (" 1.35 ", 35),
    ],
)
def test_versions_are_read_and_newer_ones_taken_for_the_newest(version: str, minor: int) -> None:
    assert release(version).minor == minor
    assert str(release(version)) == f"1.{minor}"
    assert release(version).unread == ("1.99" if "1.99" in version else "")


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
        assert KubeletManagers.start(config, machine(), {}).cpus.static
    else:
        with pytest.raises(InvalidConfiguration, match=rejection):
            KubeletManagers.start(config, machine(), {})


def test_device_hints_are_narrowed_since_1_36() -> None:
    assert release("1.36").device_hints_over_hosting_nodes
    assert not release("1.35").device_hints_over_hosting_nodes


@pytest.mark.parametrize(
    ("version", "narrowed"),
    [
        ("v1.35.6+1a2b3c4", True),
        ("v1.35.7-12+1a2b3c4d5e6f7a8b-dirty", True),
        ("v1.35.5+1a2b3c4", False),
        ("v1.34.9+1a2b3c4", False),
        ("v1.35.6", False),
        ("v1.35.6+k3s1", False),
        ("v1.35.6-eks-1a2b3c4", False),
    ],
)
def test_openshift_builds_carry_narrowed_device_hints_since_1_35_6(version: str, narrowed: bool) -> None:  # noqa: FBT001
    assert release(version).device_hints_over_hosting_nodes == narrowed
    assert release(release(version).version) == release(version)


@pytest.mark.parametrize(
    ("version", "gates", "level"),
    [
        ("1.31", {"PodLevelResources": True}, PodLevel.DROPPED),  # not known there, so without effect
        ("1.32", {}, PodLevel.DROPPED),
        ("1.33", {"PodLevelResources": True}, PodLevel.QOS_ONLY),
        ("1.34", {}, PodLevel.LEFT_ALONE),
        ("1.35", {"PodLevelResources": False}, PodLevel.DROPPED),
        ("1.35", {"PodLevelResourceManagers": True}, PodLevel.LEFT_ALONE),
        ("1.36", {}, PodLevel.LEFT_ALONE),
        ("1.36", {"PodLevelResources": False}, PodLevel.LEFT_ALONE_UNSEEN),
        ("1.36", {"PodLevelResourceManagers": True}, PodLevel.MANAGED),
    ],
)
def test_pod_level_resources_came_in_stages(version: str, gates: dict[str, bool], level: PodLevel) -> None:
    assert configuration(version=version, gates=gates).pod_level is level


@pytest.mark.parametrize(
    ("version", "gates", "skips"),
    [
        ("1.34", {"DRAExtendedResource": True}, False),
        ("1.35", {}, False),
        ("1.35", {"DRAExtendedResource": True}, True),
        ("1.36", {}, True),
        ("1.36", {"DRAExtendedResource": False}, False),
    ],
)
def test_devices_that_are_claimed_are_left_out_since_1_35(
    version: str,
    gates: dict[str, bool],
    skips: bool,  # noqa: FBT001
) -> None:
    config = configuration(version=version, gates=gates)
    assert KubeletManagers.start(config, machine(), {}).devices.skips_claimed == skips


ALPHA = {"TopologyManagerPolicyAlphaOptions": False, "CPUManagerPolicyAlphaOptions": False}


@pytest.mark.parametrize(
    ("version", "changes", "rejection"),
    [
        (
            "1.32",
            {"options": {"prefer-most-allocated-numa-node": "true"}, "gates": ALPHA},
            'Topology Manager Policy Alpha-level Options not enabled, but option "prefer-most',
        ),
        (
            "1.33",
            {"options": {"prefer-most-allocated-numa-node": "true"}, "gates": ALPHA},
            'topology manager policy alpha-level options not enabled, but option "prefer-most',
        ),
        ("1.31", {"memory": "BestEffort"}, 'unknown policy: "BestEffort"'),
        ("1.32", {"memory": "BestEffort"}, 'policy "BestEffort" is not available for platform "linux"'),
        (
            "1.36",
            {"gates": {"PodLevelResources": False}},
            r"^InPlacePodLevel.* enabled, but depends on features that are disabled: \[PodLevelResources\]$",
        ),
        (
            "1.36",
            {"gates": {"PodLevelResources": False, "PodLevelResourceManagers": True}},
            r"^\[InPlacePodLevel.*: \[PodLevelResources\], PodLevelResourceManagers is enabled, but .*\]\]$",
        ),
        (
            "1.35",
            {"gates": {"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": True}},
            "InPlacePodLevelResourcesVerticalScaling is enabled, but depends on",
        ),
        (
            "1.32",
            {"cpu_options": {"full-pcpus-only": "true"}, "gates": {"CPUManagerPolicyOptions": False}},
            r"CPU Manager policy options map\[full-pcpus-only:true\] require feature gates",
        ),
        (
            "1.31",
            {"options": {"max-allowable-numa-nodes": "8"}, "gates": {"TopologyManagerPolicyOptions": False}},
            r"topology manager policy options map\[max-allowable-numa-nodes:8\] require feature gates",
        ),
    ],
)
def test_kubelet_that_cannot_start_gives_its_releases_message(
    version: str, changes: dict[str, Any], rejection: str
) -> None:
    with pytest.raises(InvalidConfiguration, match=rejection):
        KubeletManagers.start(configuration("best-effort", version=version, **changes), machine(), {})


@pytest.mark.parametrize("version", ["1.34", "1.35"])
def test_dependent_feature_gates_are_checked_only_when_enabled(version: str) -> None:
    KubeletManagers.start(configuration(version=version, gates={"PodLevelResources": False}), machine(), {})


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("1.31", "SMT Alignment Error: requested 8 cpus not multiple cpus per core = 2"),
        ("1.32", "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 0"),
    ],
)
def test_1_31_does_not_tell_that_no_core_is_left(version: str, message: str) -> None:
    start = node(
        machine(1), policy="none", memory="None", cpu_options={"full-pcpus-only": "true"}, version=version
    )
    full = admit(start, pod("a", container("c", 6))).node
    assert admit(full, pod("b", container("c", 8))).message.startswith(message)


@pytest.mark.parametrize(
    ("version", "message"), [("1.31", ""), ("1.32", "hint violates NUMA node allocation")]
)
def test_1_31_lets_groups_of_numa_nodes_contradict_each_other(version: str, message: str) -> None:
    """A newer API server calls the pod Guaranteed by its pod-level resources, which are dropped here."""
    held = admit(node(policy="best-effort", version=version), pod("a", container("c", 1, "1Gi"))).node
    wide = Pod.from_api(
        {
            "metadata": {"uid": "b"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "10"}}}]},
            "status": {"qosClass": "Guaranteed"},
        }
    )
    admission = admit(held, wide)
    assert (admission.admitted, message in admission.message) == (not message, True)


@pytest.mark.parametrize(("version", "cpu"), [("1.32", "6"), ("1.33", "1")])
def test_an_odd_rest_comes_from_one_cache_since_1_33(version: str, cpu: str) -> None:
    """CPU 6 is left of a core in the emptier cache, CPU 1 is half of a core in the fuller one."""
    start = node(
        machine(1, cores=4, cores_per_uncore_cache=2),
        reserved="0,2,4",
        policy="none",
        memory="None",
        cpu_options={"prefer-align-cpus-by-uncorecache": "true"},
        version=version,
    )
    assert cpuset.format(admit(start, pod("a")).containers["c"].cpus) == cpu
