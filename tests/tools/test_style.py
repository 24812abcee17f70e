"""The check of style: sentences that it stops, and allowances that only fall."""

import pytest

from tools.style import Slip, allowances, excess, lower, slips


@pytest.mark.parametrize(
    "text",
    [
        "the fullest offer is 4, on NUMA node 0 of worker-1",
        "the ReplicaSet makes the next one",
        "keeps pods from nodes that would reject them",
        "some minutes, most of them for Python packages",
        "no such pod in namespace default waits or was rejected",
        "Insufficient cpu: 32 asked, 3 free on node-3, the nearest of 6 nodes",
        "its replacement fits there, too, but after this pod",
        "remove X (no plan does that: pod does not have any ownerRefs)",
        "the scheduler passes over 6 nodes, all there are",
        "To have it carried out, or not:",
        "this is no plan of the operator",
        "no operator leads; see its pods and log; it releases gated pods",
        "a dump has no users, and not every API server tells",
        "empty.json is cut off or no JSON; dump it again",
        "'cpu=3X' is not a resource with a whole amount",
        "delete it or upgrade its writer",
        "10 pods: on no number of such machines",
        "then the nodes that would not take one, by what they say",
        "of an object that is there again the last one counts",
        "while a pod of 8 waited that the 2 were missing for",
        "def test_one_that_numa_placement_does_not_concern_goes_at_once_whatever_it_claims() -> None:",
        "not a recursion as deep as there are pods",
        '    """Whether the memory of pods is where their CPUs are."""',
        "Nobody knows.",
    ],
)
def test_a_sentence_that_reads_as_translated_is_a_slip(text: str) -> None:
    assert list(slips(f"{text}\n"))


def test_plain_sentences_have_no_slips() -> None:
    text = '''
def test_pod_without_numa_requirements_is_released_immediately() -> None:
    """Return whether the kubelet rejects the pod. No node has 32 CPUs free. Closest: node-1 (28 free)."""
'''
    assert list(slips(text)) == []


def test_file_with_excess_slips_is_named_with_each() -> None:
    now = {"new.md": [Slip(3, "anew", "again")], "old.md": [Slip(1, "in vain", "without effect")]}
    assert excess(now, {"old.md": 1}) == [
        "new.md: 1 slips, 0 allowed; rewrite what you added:",
        "  new.md:3: 'anew': again",
    ]


def test_allowances_only_fall() -> None:
    now = {"a.md": [Slip(1, "anew", "again")] * 3, "b.md": [Slip(1, "anew", "again")]}
    assert lower(now, {"a.md": 2, "b.md": 4, "gone.md": 1}) == {"a.md": 2, "b.md": 1}
    assert all(count > 0 for count in allowances().values())
