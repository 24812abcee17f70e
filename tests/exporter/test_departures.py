"""How soon the node is read again while pods leave it."""

from numazones_exporter.departures import FIRST_PAUSE, LONGEST_PAUSE, Departures
from numazones_exporter.observation import NodePod, Observation, PodResources, PodResourcesAnswer


def seen(*pods: NodePod, listed: tuple[str, ...] = ()) -> Observation:
    answer = PodResourcesAnswer(tuple(PodResources("ns", name, ()) for name in listed), 0, (), ())
    return Observation("node", pods=pods, podresources=answer)


def pod(name: str, *, phase: str = "Running", deleting: bool = True) -> NodePod:
    return NodePod("ns", name, f"uid-{name}", phase, "Guaranteed", deleting=deleting)


def test_nobody_hurries_while_no_pod_leaves() -> None:
    departures = Departures()
    for observation in (
        Observation("node"),
        seen(pod("a", deleting=False), listed=("a",)),
        seen(pod("a"), pod("b", deleting=False), listed=("b",)),  # the kubelet has let it go
        seen(pod("a", phase="Succeeded"), listed=("a",)),
        Observation("node", pods=(pod("a"),)),  # podresources cannot be read: it would not tell
    ):
        assert departures.look_again(observation) is None


def test_a_restarted_kubelet_is_asked_again_until_it_has_heard_of_its_pods() -> None:
    departures = Departures()
    unheard = seen(pod("a", deleting=False))
    pauses = [departures.look_again(unheard) for _ in range(9)]
    assert (pauses[0], pauses[-1]) == (FIRST_PAUSE, LONGEST_PAUSE)
    assert departures.look_again(seen(pod("a", deleting=False), listed=("a",))) is None


def test_the_pauses_grow_to_a_bound_and_begin_anew_with_every_pod_that_sets_out() -> None:
    departures = Departures()
    first = seen(pod("a"), listed=("a",))
    pauses = [departures.look_again(first) for _ in range(9)]
    assert pauses[0] == FIRST_PAUSE
    assert pauses == sorted(pauses, key=lambda pause: pause or 0.0)
    assert pauses[-1] == LONGEST_PAUSE
    both = seen(pod("a"), pod("b"), listed=("a", "b"))
    assert departures.look_again(both) == FIRST_PAUSE
    assert departures.look_again(seen(pod("a"), pod("b"), listed=("a",))) != FIRST_PAUSE
    assert departures.look_again(seen(pod("a"), pod("b"))) is None
    assert departures.look_again(first) == FIRST_PAUSE
