"""Whatever comes in from outside, nothing but the library's own errors comes out."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numazones import cpuset
from numazones.apimachinery import quantity
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet import go
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.pod import Pod
from numazones.kubelet.startup import KubeletManagers
from tests.laws import examples
from tests.numazones.kubelet.building import machine

WORDS = st.sampled_from(
    ["1", "1Gi", "static", "Static", "restricted", "0-3", "true", "x", "500m", "5%", "Always"]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | WORDS
FIELDS = """
    metadata spec status containers initContainers resources requests limits cpu memory name uid annotations
    qosClass restartPolicy extendedResourceClaimStatus requestMappings cpuManagerPolicy
    cpuManagerPolicyOptions memoryManagerPolicy reservedMemory numaNode evictionHard memory.available
    kubeReserved systemReserved featureGates topologyManagerPolicy topologyManagerScope
    topologyManagerPolicyOptions reservedSystemCPUs max-allowable-numa-nodes
    namespace labels ownerReferences nodeName taints volumes phase allocatable conditions nodeInfo affinity
    nodeAffinity nodeSelector tolerations persistentVolumeClaim containerStatuses state waiting ports priority
"""
KEYS = st.sampled_from(FIELDS.split())
DOCUMENTS = st.dictionaries(
    KEYS,
    st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
        max_leaves=12,
    ),
    max_size=6,
)


@pytest.mark.parametrize("read", [Pod.from_api, Pod.from_manifest])
@settings(max_examples=examples(300))
@given(document=DOCUMENTS)
def test_any_document_is_a_pod_or_a_library_error(
    read: Callable[[dict[str, Any]], Pod], document: dict[str, Any]
) -> None:
    with suppress(NumazonesError):
        read(document)


OBJECTS = st.builds(
    lambda document, metadata, spec, status: {
        **document, "metadata": {"name": "any", **metadata}, "spec": spec, "status": status,
    },
    DOCUMENTS, DOCUMENTS, DOCUMENTS, DOCUMENTS,
)  # fmt: skip


@pytest.mark.parametrize("read", [ClusterNode.from_api, ClusterPod.from_api])
@settings(max_examples=examples(300))
@given(document=DOCUMENTS | OBJECTS | LEAVES)
def test_any_document_is_a_cluster_object_or_a_library_error(
    read: Callable[[Any], object], document: object
) -> None:
    with suppress(NumazonesError):
        read(document)


@settings(max_examples=examples(300))
@given(DOCUMENTS)
def test_any_document_is_a_configuration_or_a_library_error(document: dict[str, Any]) -> None:
    with suppress(NumazonesError):
        KubeletManagers.start(KubeletConfiguration.from_api(document), machine(), {})


@given(
    st.text() | st.integers() | st.floats() | st.from_regex(r"[0-9.eE+-]{1,8}[KMGTPEi]{0,2}", fullmatch=True)
)
def test_any_text_is_a_quantity_or_invalid(text: str | float) -> None:
    with suppress(quantity.InvalidQuantity):
        quantity.parse(text)


@given(st.text(alphabet="0123456789-, x"))
def test_any_text_is_a_cpu_list_or_invalid(text: str) -> None:
    with suppress(cpuset.InvalidCPUSet):
        cpuset.parse(text)


@pytest.mark.parametrize("digits", [5000, 50000])
def test_endless_numbers_are_rejected_at_once(digits: int) -> None:
    for parse in (quantity.parse, cpuset.parse):
        with pytest.raises(NumazonesError) as rejected:
            parse("9" * digits)
        assert len(str(rejected.value)) < 300  # quotes the beginning
    with pytest.raises(ValueError, match="value out of range"):
        go.parse_int("9" * digits)
