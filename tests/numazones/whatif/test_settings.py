"""Settings as people write them: which fields there are, and what a kubelet makes of them."""

import pytest

from numazones.cluster.cluster import ClusterNode
from numazones.kubelet.config import InvalidConfiguration, KubeletConfiguration
from numazones.whatif.machine_type import node_template
from numazones.whatif.node_template import NodeTemplate, UnknownNode, start_nodes
from numazones.whatif.settings import IneffectiveSetting, apply, parse, with_needed_gates
from tests.numazones.kubelet import building

MACHINE = "sockets=2,numa=2,cores=16,threads=2,memory=64Gi"
PACK = "topologyManagerPolicyOptions.prefer-most-allocated-numa-node"
ALPHA = "featureGates.TopologyManagerPolicyAlphaOptions"


def changed(*texts: str) -> KubeletConfiguration:
    return apply(building.configuration(cpu_options={"full-pcpus-only": "true"}, gates={}), parse(texts))


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("topologyManagerPolicy=restricted", "topology_manager_policy", "restricted"),
        ("topologyManagerScope=pod", "topology_manager_scope", "pod"),
        ("cpuManagerPolicy=none", "cpu_manager_policy", "none"),
        ("memoryManagerPolicy=None", "memory_manager_policy", "None"),
        ("reservedSystemCPUs=0,8", "reserved_system_cpus", "0,8"),
        (
            "cpuManagerPolicyOptions.distribute-cpus-across-numa=true",
            "cpu_manager_policy_options",
            (("distribute-cpus-across-numa", "true"), ("full-pcpus-only", "true")),
        ),
        ("cpuManagerPolicyOptions.full-pcpus-only=", "cpu_manager_policy_options", ()),
    ],
)
def test_a_setting_changes_its_field(text: str, field: str, value: object) -> None:
    assert getattr(changed(text), field) == value


def test_reserved_memory_is_set_as_a_whole() -> None:
    config = changed("reservedMemory.1.memory=2Gi")
    assert [(entry.numa, [name for name, _ in entry.limits]) for entry in config.reserved_memory] == [
        (1, ["memory"])
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topologyManagerPolicy", "is not a setting; write KEY=VALUE"),
        ("maxPods=3", "maxPods is not a setting that affects admission; use one of cpuManagerPolicy,"),
        ("topologyManagerPolicyOptions=true", "topologyManagerPolicyOptions is not a setting"),
        ("topologyManagerScop=pod", "affects admission; did you mean topologyManagerScope?"),
        ("featureGates.Foo=true", "featureGates.Foo: this gate has no effect on admission"),
        ("featureGates.PodLevelResources=perhaps", "'perhaps' is neither true nor false"),
        ("reservedMemory.memory=1Gi", "write reservedMemory.0.memory=1Gi"),
        ("reservedMemory.0.memory=much", "reservedMemory.0.memory: "),
    ],
)
def test_what_is_no_setting_is_refused_with_its_name(text: str, said: str) -> None:
    with pytest.raises(IneffectiveSetting) as error:
        parse([text])
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "topologyManagerPolicy=strict",
            'topologyManagerPolicy (--topology-manager-policy) "strict" must be one of',
        ),
        (
            "topologyManagerScope=node",
            'topologyManagerScope (--topology-manager-scope) "node" must be one of',
        ),
        ("topologyManagerPolicyOptions.foo=true", 'unknown Topology Manager Policy option: "foo"'),
        ("cpuManagerPolicyOptions.full-pcpus-only=2", 'bad value for option "full-pcpus-only"'),
        ("cpuManagerPolicy=dynamic", 'unknown policy: "dynamic"'),
        ("reservedSystemCPUs=0-99", "0-99 is not a subset of online-cpus: 0-31"),
        ("reservedSystemCPUs=x", "unable to parse reservedSystemCPUs (--reserved-cpus) x"),
        ("reservedSystemCPUs=", "unable to determine reserved CPU resources for static policy"),
        ("reservedMemory.0.memory=0", "reserved memory may not be zero for NUMA node 0"),
    ],
)
def test_what_the_kubelet_refuses_is_refused_in_its_words(text: str, said: str) -> None:
    with pytest.raises(InvalidConfiguration) as error:
        start_nodes([node_template(MACHINE, name="m").with_settings(parse([text]))])
    assert "the kubelet of m would not start: " in str(error.value)
    assert said in str(error.value)


def test_option_takes_its_gate_along_unless_that_is_set_too() -> None:
    config = node_template(MACHINE, name="m").config
    assert with_needed_gates(config, {PACK: "true"}) == {PACK: "true", ALPHA: "true"}
    assert with_needed_gates(config, {PACK: ""}) == {PACK: ""}
    off = {PACK: "true", ALPHA: "false"}
    assert with_needed_gates(config, off) == off
    with pytest.raises(
        InvalidConfiguration, match=r"but option \"prefer-most-allocated-numa-node\" provided"
    ):
        start_nodes([node_template(MACHINE, name="m").with_settings(off)])


def test_what_is_allocatable_follows_the_reservations() -> None:
    made = node_template(MACHINE, name="m")
    assert made.node.allocatable == {"cpu": 30_000, "memory": 63 << 30}
    more = made.with_settings(parse(["reservedSystemCPUs=0-3", "reservedMemory.0.memory=4Gi"]))
    assert more.node.allocatable == {"cpu": 28_000, "memory": 60 << 30}


def test_a_blueprint_is_the_node_without_its_pods() -> None:
    (empty,) = start_nodes([node_template(MACHINE, name="m")])
    (again,) = start_nodes([NodeTemplate.of(empty)])
    assert again.state is not None
    assert empty.state is not None
    assert (again.allocatable, again.state.state_key) == (empty.allocatable, empty.state.state_key)


def test_a_node_whose_state_is_not_known_has_no_blueprint() -> None:
    with pytest.raises(UnknownNode, match="node worker-1: no NUMAZones have been published"):
        NodeTemplate.of(ClusterNode("worker-1"))
    (node,) = start_nodes([node_template(MACHINE, name="m")])
    assert node.state is not None
    with pytest.raises(UnknownNode, match="only the amounts of its resources are known"):
        NodeTemplate.of(node.with_state(node.state, approximate=True))
