"""Reading a KubeletConfiguration, and what a kubelet rejects in it before it looks at the machine."""

import pytest

from numazones.apimachinery import quantity
from numazones.kubelet.config import InvalidConfiguration, KubeletConfiguration
from numazones.kubelet.kept_memory import HARD_EVICTION, KeptMemory
from numazones.kubelet.machine import InvalidMachine, Machine
from numazones.kubelet.startup import KubeletManagers
from numazones.kubelet.versions import UnsupportedVersion
from tests.numazones.kubelet.building import configuration, machine


def test_defaults_are_the_kubelets() -> None:
    config = KubeletConfiguration.from_api({})
    assert config == KubeletConfiguration(kept_memory=KeptMemory.read({HARD_EVICTION: "100Mi"}))
    assert (config.cpu_manager_policy, config.memory_manager_policy) == ("none", "None")
    assert (config.topology_manager_policy, config.topology_manager_scope) == ("none", "container")
    assert config.gate("PodLevelResources")
    assert not config.gate("CPUManagerPolicyAlphaOptions")


def test_all_fields_are_read() -> None:
    config = KubeletConfiguration.from_api(
        {
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": {"full-pcpus-only": "true", "align-by-socket": "1"},
            "kubeReserved": {"cpu": "1500m", "memory": "1Gi"},
            "systemReserved": {"cpu": "500m", "memory": "512Mi"},
            "evictionHard": {"memory.available": "500Mi"},
            "reservedSystemCPUs": "0-1",
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": 1, "limits": {"memory": "2036Mi"}}],
            "topologyManagerPolicy": "restricted",
            "topologyManagerScope": "pod",
            "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "16"},
            "featureGates": {"TopologyManagerPolicyAlphaOptions": True},
        },
        version="v1.35.1",
    )
    assert config.release.minor == 35
    assert config.cpu_manager_policy_options == (("align-by-socket", "1"), ("full-pcpus-only", "true"))
    assert config.reserved_cpu == quantity.parse("2")
    assert config.reserved_system_cpus == "0-1"
    assert config.kept_memory is not None
    assert config.kept_memory.of(0) == quantity.parse("2036Mi")
    assert config.reserved_memory[0].numa == 1
    assert config.topology_manager_policy_options == (("max-allowable-numa-nodes", "16"),)
    assert config.gate("TopologyManagerPolicyAlphaOptions")


@pytest.mark.parametrize(
    ("fields", "total"),
    [
        ({}, "100Mi"),
        ({"evictionHard": {}}, "0"),
        ({"evictionHard": {"nodefs.available": "10%"}}, "0"),
        ({"evictionHard": {"nodefs.available": "10%"}, "mergeDefaultEvictionSettings": True}, "100Mi"),
        ({"evictionHard": {"memory.available": "5%"}}, "858993472"),
        ({"evictionHard": {"memory.available": "7.5%"}, "kubeReserved": {"memory": "1"}}, "1288490241"),
        ({"evictionHard": {"memory.available": "100%"}}, "0"),
        ({"kubeReserved": {"memory": "1Gi"}, "evictionHard": {"memory.available": "24Mi"}}, "1048Mi"),
    ],
)
def test_memory_reserved_in_total_includes_the_hard_eviction_threshold(
    fields: dict[str, object], total: str
) -> None:
    kept = KubeletConfiguration.from_api(fields).kept_memory
    assert kept is not None
    assert kept.of(16 << 30) == quantity.parse(total)


@pytest.mark.parametrize(
    ("fields", "found", "field", "wanted"),
    [
        ({"cpuManagerPolicyOptions": {"full-pcpus-only": True}}, "bool", "cpuManagerPolicyOptions", "string"),
        (
            {"topologyManagerPolicyOptions": {"max-allowable-numa-nodes": 16}},
            "number",
            "topologyManagerPolicyOptions",
            "string",
        ),
        ({"reservedSystemCPUs": 0}, "number", "reservedSystemCPUs", "string"),
        ({"kubeReserved": {"cpu": 1}}, "number", "kubeReserved", "string"),
        ({"systemReserved": {"memory": 1.5}}, "number", "systemReserved", "string"),
        ({"evictionHard": {"memory.available": 100}}, "number", "evictionHard", "string"),
        ({"cpuManagerPolicy": False}, "bool", "cpuManagerPolicy", "string"),
        ({"featureGates": {"PodLevelResources": "false"}}, "string", "featureGates", "bool"),
    ],
)
def test_undecodable_values_are_rejected_in_the_kubelets_words(
    fields: dict[str, object], found: str, field: str, wanted: str
) -> None:
    with pytest.raises(InvalidConfiguration) as rejected:
        KubeletConfiguration.from_api(fields)
    assert str(rejected.value) == (
        f"json: cannot unmarshal {found} into Go struct field KubeletConfiguration.{field} of type {wanted}"
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"topologyManagerPolicy": "preferred"},
            (
                "invalid configuration: topologyManagerPolicy (--topology-manager-policy) "
                '"preferred" must be one of: ["none" "best-effort" "restricted" "single-numa-node"]'
            ),
        ),
        (
            {"topologyManagerScope": "node"},
            (
                "invalid configuration: topologyManagerScope (--topology-manager-scope) "
                '"node" must be one of: "container", or "pod"'
            ),
        ),
        (
            {"reservedSystemCPUs": "0-"},
            (
                "invalid configuration: unable to parse reservedSystemCPUs (--reserved-cpus) 0-, "
                'error: strconv.Atoi: parsing "": invalid syntax'
            ),
        ),
        (
            {"reservedSystemCPUs": "3-1"},
            (
                "invalid configuration: unable to parse reservedSystemCPUs (--reserved-cpus) 3-1, "
                'error: invalid range "3-1" (3 > 1)'
            ),
        ),
        (
            {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "0"}}]},
            'invalid configuration: reserved memory may not be zero for NUMA node 0 and resource "memory"',
        ),
        (
            {"reservedMemory": [{"numaNode": 0, "limits": {"cpu": "1"}}]},
            (
                'invalid configuration: the limit type "cpu" for NUMA node 0 is not supported, '
                "only [memory hugepages-<HugePageSize>] is accepted"
            ),
        ),
        (
            {"reservedMemory": [{"limits": {"memory": "1Gi"}}, {"numaNode": 0, "limits": {"memory": "1Gi"}}]},
            (
                "invalid configuration: the reserved memory has a duplicate value "
                'for NUMA node 0 and resource "memory"'
            ),
        ),
        (  # null is what a field has that is left out
            {
                "reservedMemory": [
                    {"numaNode": None, "limits": {"memory": "1Gi"}},
                    {"numaNode": 0, "limits": {"memory": "1Gi"}},
                ]
            },
            (
                "invalid configuration: the reserved memory has a duplicate value "
                'for NUMA node 0 and resource "memory"'
            ),
        ),
        (
            {"topologyManagerScope": "node", "reservedSystemCPUs": "x"},
            (
                "[invalid configuration: topologyManagerScope (--topology-manager-scope) "
                '"node" must be one of: "container", or "pod", '
                "invalid configuration: unable to parse reservedSystemCPUs (--reserved-cpus) x, "
                'error: strconv.Atoi: parsing "x": invalid syntax]'
            ),
        ),
    ],
)
def test_rejections_are_in_the_kubelets_words(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfiguration) as rejected:
        KubeletConfiguration.from_api(fields).check()
    assert str(rejected.value) == message


def test_configuration_is_checked_before_machine_and_managers() -> None:
    def rejection(**fields: object) -> str:
        with pytest.raises(InvalidConfiguration) as rejected:
            KubeletManagers.start(configuration(**fields), machine(), {})  # type: ignore[arg-type]
        return str(rejected.value)

    broken: dict[str, object] = {
        "memory": "static", "cpus": "dynamic", "options": {"x": "1"}, "reserved": "99", "scope": "node",
    }  # fmt: skip
    seen = []
    for field in ("scope", "reserved", "options", "cpus", "memory"):
        seen.append(rejection(**{"policy": "restricted", **broken}))
        del broken[field]
    assert [message.split(":")[0] for message in seen] == [
        "invalid configuration",
        "reserved-cpus",
        "unknown Topology Manager Policy option",
        "unknown policy",
        "unknown policy",
    ]
    assert seen[1] == "reserved-cpus: 99 is not a subset of online-cpus: 0-15"
    assert seen[3:] == ['unknown policy: "dynamic"', 'unknown policy: "static"']


def test_a_machine_without_cpus_is_no_node() -> None:
    with pytest.raises(InvalidMachine, match="at least one CPU"):
        KubeletManagers.start(configuration(), Machine((), machine().numa_nodes), {})


def test_fields_of_the_wrong_shape_are_named() -> None:
    with pytest.raises(
        InvalidConfiguration, match="featureGates of the kubelet configuration must be a mapping"
    ):
        KubeletConfiguration.from_api({"featureGates": ["x"]})


def test_versions_that_are_not_modelled_are_rejected() -> None:
    with pytest.raises(UnsupportedVersion, match=r"older than 1\.31"):
        KubeletConfiguration.from_api({}, version="v1.30.9")
