"""Tests of how soon the node is read again while pods terminate."""

from numazones_exporter.observation import NodePod, Observation, PodResources, PodResourcesAnswer
from numazones_exporter.terminating_pods import FIRST_PAUSE, MAX_PAUSE, TerminatingPods


def observation_of(*pods: NodePod, listed: tuple[str, ...] = ()) -> Observation:
    answer = PodResourcesAnswer(tuple(PodResources("ns", name, ()) for name in listed), 0, (), ())
    return Observation("node", pods=pods, podresources=answer)


def pod(name: str, *, phase: str = "Running", deleting: bool = True) -> NodePod:
    return NodePod("ns", name, f"uid-{name}", phase, "Guaranteed", deleting=deleting)


def test_without_terminating_pods_the_node_is_not_read_early() -> None:
    terminating = TerminatingPods()
    for observation in (
        Observation("node"),
        observation_of(pod("a", deleting=False), listed=("a",)),
        observation_of(pod("a"), pod("b", deleting=False), listed=("b",)),  # the kubelet has let it go
        observation_of(pod("a", phase="Succeeded"), listed=("a",)),
        Observation("node", pods=(pod("a"),)),  # podresources cannot be read: it would not tell
    ):
        assert terminating.pause_after(observation) is None


def test_restarted_kubelet_is_read_again_until_it_lists_its_pods() -> None:
    terminating = TerminatingPods()
    unheard = observation_of(pod("a", deleting=False))
    pauses = [terminating.pause_after(unheard) for _ in range(9)]
    assert (pauses[0], pauses[-1]) == (FIRST_PAUSE, MAX_PAUSE)
    assert terminating.pause_after(observation_of(pod("a", deleting=False), listed=("a",))) is None


def test_pauses_grow_to_a_maximum_until_another_pod_terminates() -> None:
    terminating = TerminatingPods()
    first = observation_of(pod("a"), listed=("a",))
    pauses = [terminating.pause_after(first) for _ in range(9)]
    assert pauses[0] == FIRST_PAUSE
    assert pauses == sorted(pauses, key=lambda pause: pause or 0.0)
    assert pauses[-1] == MAX_PAUSE
    both = observation_of(pod("a"), pod("b"), listed=("a", "b"))
    assert terminating.pause_after(both) == FIRST_PAUSE
    assert terminating.pause_after(observation_of(pod("a"), pod("b"), listed=("a",))) != FIRST_PAUSE
    assert terminating.pause_after(observation_of(pod("a"), pod("b"))) is None
    assert terminating.pause_after(first) == FIRST_PAUSE
