"""Whatever people write into annotations is read, passed over, or named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.apimachinery.documents import read_yaml
from numazones.errors import UnmodelledFeature
from numazones_topology_aware import go_yaml
from numazones_topology_aware.admission import admit
from numazones_topology_aware.explanation import explain
from numazones_topology_aware.node import Node
from numazones_topology_aware.sandbox import PodDevice
from tests.models.topology_aware.machines import configuration, guaranteed, hardware

KEYS = [
    "prefer-isolated-cpus",
    "require-isolated-cpus",
    "prefer-shared-cpus",
    "prefer-reserved-cpus",
    "prefer-cpu-priority",
    "hide-hyperthreads",
    "memory-type",
    "cold-start",
    "cpu.preserve",
    "memory.preserve",
    "unlimited-burstable",
    "pick-resources-by-hints",
    "topologyhints",
    "allow.topologyhints",
    "deny.topologyhints",
    "strict.topologyhints",
    "scheduling-class",
    "cpu-class",
    "irq-affinity",
]
SCOPED = [f"{key}.resource-policy.nri.io{scope}" for key in KEYS for scope in ("", "/pod", "/container.c")]
OF_PODS = [
    "resource-policy.nri.io/affinity",
    "resource-policy.nri.io/anti-affinity",
    "noderesource.dev/resources",
]
VALUES = [
    "true",
    "y",
    "none",
    "high",
    "pmem,hbm",
    "duration: 60s",
    "duration: [",
    "type: glob\npaths: ['[', '*']",
    "[1, 2]",
    "{a: {b: c}}",
    "a: [b, c]",
    "a: [{match: {key: name, operator: In, values: [1, y, 2.5]}, weight: 3}]",
    "&a [*a]",
]
ANNOTATIONS = st.dictionaries(
    st.sampled_from(SCOPED) | st.sampled_from(OF_PODS),
    st.sampled_from(VALUES) | st.text(max_size=30),
    max_size=6,
)


@given(ANNOTATIONS)
def test_any_annotations_give_an_admission_or_an_unknown(annotations: dict[str, str]) -> None:
    node = Node.fresh(hardware(isolated="6-7", far=(8 << 30,)), configuration())
    node = admit(node, guaranteed("b", "500m")).node
    try:
        admission = admit(
            node, guaranteed("a", "1500m", annotations=annotations), {"c": [PodDevice("acme.io/nic", (2,))]}
        )
    except UnmodelledFeature:
        return
    assert explain(admission).lines()
    assert admission.admitted is bool(admission.containers)


def test_a_pod_with_nested_merges_is_rejected_and_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []

    def counted(text: str, *arguments: object, **named: bool) -> object:
        reads.append(text)
        return read_yaml(text, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(go_yaml, "read_yaml", counted)
    levels = (f"g{n}: &g{n} {{<<: [{','.join([f'*g{n - 1}'] * 9)}]}}\n" for n in range(1, 10))
    pod = guaranteed("a", "1", annotations={"cold-start": "g0: &g0 {k: v}\n" + "".join(levels)})
    node = Node.fresh(hardware(), configuration())
    for _ in range(3):
        admission = admit(node, pod)
        assert not admission.admitted
        assert "the cold-start annotation can't be read" in admission.message
    assert len(reads) == 1
