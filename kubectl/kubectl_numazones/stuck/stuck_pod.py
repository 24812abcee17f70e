"""Explain why a pod is stuck: the answer, how its owner's replicas fared, and what would help."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubectl_numazones.printing import answers
from kubectl_numazones.reading.cluster import ClusterView
from kubectl_numazones.reading.files import Object
from kubectl_numazones.stuck.outlooks import Outlooks
from numazones.advice.changes import Advice
from numazones.advice.helpful_changes import plan_made
from numazones.alignment import pod_alignment as alignment
from numazones.cluster.cluster import ClusterPod
from numazones.cluster.rejected_pods import is_rejected
from numazones.cluster.waiting import Wait, latest_messages, scheduler_says
from numazones.kubelet.rejection import STATUS_PREFIX
from numazones.placement import Unknown
from numazones.prediction.forecast import ADMISSIBLE, INADMISSIBLE, Prediction, deciding
from numazones.wording import pluralize

if TYPE_CHECKING:
    from numazones.advice.misalignment import Misalignment

_LOOP = (
    "Its controller replaces each rejected pod, so this repeats until one fits; the scheduling gate "
    "numazones.io/admission prevents such loops."
)
_NOT_TRIED_AGAIN = "a rejected pod is not retried: delete and recreate it"


def is_running(pod: ClusterPod) -> bool:
    """Return whether a kubelet has admitted the pod, so that there is nothing to explain."""
    return bool(pod.node) and not pod.terminal


def most_telling(pods: list[ClusterPod]) -> ClusterPod:
    """The pod to explain of an owner's: one that waits, else one that was rejected, else any."""
    return min(
        pods,
        key=lambda pod: (bool(pod.node), not (pod.reason or pod.create_error), pod.created, pod.name),
    )


def to_explain(pods: list[ClusterPod], seen: ClusterView) -> ClusterPod:
    """The most telling pod of an owner's; if all run, the one that is aligned worst."""
    telling = most_telling(pods)
    if not is_running(telling) or len(pods) == 1:
        return telling
    nodes = seen.situation.cluster.nodes
    lying = {
        pod.uid: found.badness
        for name in {pod.node for pod in pods} & nodes.keys()
        for pod, found in alignment.of_node(nodes[name]) or ()
    }
    return max(filter(is_running, pods), key=lambda pod: (lying.get(pod.uid, ()), pod is telling))


@dataclass(frozen=True, slots=True)
class Background:
    """Facts about a pod besides the answers of nodes."""

    waits: tuple[Wait, ...] = ()
    """What it waits for, whatever the nodes say."""
    scheduler: str = ""
    """The scheduler's last word on it."""
    held: tuple[str, ...] = ()
    """Whom room is held for on nodes that would admit it otherwise."""
    then: tuple[str, ...] = ()
    """Of a pod that was rejected: what was missing at that moment, and what would have helped."""

    @classmethod
    def of(
        cls, pod: ClusterPod, prediction: Prediction, outlooks: Outlooks, said: Iterable[Object] = ()
    ) -> "Background":
        """Gather it; ``said``: events and AdmissionPredictions about the pod."""
        if is_running(pod):
            there = pod.node in outlooks.seen.situation.cluster.nodes
            return cls() if there else cls(waits=(_without_node(pod),))
        said = list(said)
        events = [item for item in said if item["kind"] == "Event"]
        found = outlooks.waits(pod, prediction, events)
        held = outlooks.held(pod, prediction)
        return cls(found, scheduler_says(pod, latest_messages(events)), held, tuple(_then(pod, said)))


def _without_node(pod: ClusterPod) -> Wait:
    """Return the wait of a pod whose node has no Node object: its fate there is unknown."""
    owned = "; its owner creates a replacement" if pod.controller is not None else ""
    return Wait(
        "NodeMissing",
        f"bound to {pod.node}, which has no Node object: the node was removed, or is missing from the dump; "
        f"Kubernetes deletes such a pod about a minute after its node{owned}",
    )


def _then(pod: ClusterPod, said: Iterable[Object]) -> Iterator[str]:
    """Yield what the operator wrote of the moment at which the pod was rejected."""
    for item in said:
        outcome = (item.get("status") or {}).get("outcome") or {}
        if item["kind"] == "AdmissionPrediction" and outcome.get("actual") == "Rejected" and pod.reason:
            if outcome.get("explanation"):
                yield f"When it arrived: {outcome['explanation'][-1]}"
            for line in (outcome.get("advice") or ())[:1]:
                yield f"What would have helped then: {line}"


def explanation_lines(
    pods: list[ClusterPod],
    pod: ClusterPod,
    prediction: Prediction,
    outlooks: Outlooks,
    background: Background | None = None,
) -> Iterator[str]:
    """Yield everything that is to be said before node by node: ``pod`` is the most telling of ``pods``."""
    seen = outlooks.seen
    background = background or Background.of(pod, prediction, outlooks)
    first, *more = _headline(pod, prediction, background, seen)
    yield f"{pod.full_name}: {first}"
    yield from more
    if background.waits and not is_running(pod):
        yield from (f"Also: {wait.sentence}" for wait in background.waits[1:])
        yield f"Nodes: {prediction.sentence}"
    elif background.scheduler:
        yield f"The scheduler says: {background.scheduler}"
    yield from background.held
    yield from _lines_about_replicas(pods)
    if not is_running(pod) and prediction.hopeless:
        yield prediction.hopeless
    found = misalignment(pod, seen)
    yield from () if found is None else found.why
    helpful = [
        *(item.line for item in helpful_changes(pod, prediction, outlooks)),
        *(() if found is None else found.help),
    ]
    made = [] if is_running(pod) or prediction.verdict == ADMISSIBLE else seen.recommendations(pods)
    if helpful or made:
        yield ""
        yield "What would help:"
    for line in helpful:
        yield f"  - {line}"
    for recommendation in made:
        yield f"  - {plan_made(recommendation)}"
    if not is_running(pod) and prediction.verdict != ADMISSIBLE:
        deciders = sorted(_deciders_without_advice(pod, prediction, seen))
        if deciders:
            yield ""
            yield (
                f"numazones cannot yet compute what would help on nodes where {' or '.join(deciders)} "
                "decides."
            )


def _deciders_without_advice(pod: ClusterPod, prediction: Prediction, seen: ClusterView) -> set[str]:
    """Return who decides on the example nodes of rejections, where no change can be proven."""
    nodes = seen.situation.cluster.nodes
    examples = (nodes[reason.node] for reason in prediction.reasons if reason.node and reason.model)
    placements = (deciding(pod.constraints, node) for node in examples)
    return {one.model.decider for one in placements if not isinstance(one, Unknown) and one.kubelet is None}


def exit_code(pod: ClusterPod, verdict: str, background: Background) -> int:
    """Return 0 if the pod runs, or waits for nothing but to be bound; else 1, or 2 if that is unknown."""
    if background.waits:
        return answers.EXIT_CODES[INADMISSIBLE]
    return answers.EXIT_CODES[ADMISSIBLE if is_running(pod) else verdict]


def helpful_changes(pod: ClusterPod, prediction: Prediction, outlooks: Outlooks) -> list[Advice]:
    """Return what would let a pod in, or bring its devices to its CPUs; nothing for one that runs."""
    if is_running(pod):
        return []
    return answers.advice_for(pod, outlooks.seen.situation, prediction, outlooks.forecast(pod))


def misalignment(pod: ClusterPod, seen: ClusterView) -> "Misalignment | None":
    """Return why a pod that runs is not aligned; None where it is, or does not run, or nobody knows."""
    if not is_running(pod) or pod.create_error:
        return None
    # Imported late: most answers do without all that planning needs.
    from numazones.advice.misalignment import misalignment_of  # noqa: PLC0415

    return misalignment_of(pod, seen.situation)


def runs(pod: ClusterPod, seen: ClusterView) -> str:
    """Say where a pod runs, and how what it holds lies."""
    node = seen.situation.cluster.nodes.get(pod.node)
    found = None if node is None else alignment.of_pod(node, pod)
    return f"runs on {pod.node}" + (f", {found.sentence}" if found is not None else "")


def _headline(
    pod: ClusterPod, prediction: Prediction, background: Background, seen: ClusterView
) -> tuple[str, ...]:
    """Return what happened to the pod, in lines: of a rejected one first the rejection, then now."""
    if is_running(pod):
        if background.waits:
            return (background.waits[0].sentence,)
        if pod.create_error:  # it is bound, and holds its place in the node's sums
            return (
                f"is waiting on {pod.node}, where the runtime cannot create a container: {pod.create_error}",
            )
        return (runs(pod, seen),)
    today = now(prediction, background)
    if not pod.reason or not pod.node:
        return (today,)
    past = f"rejected on {pod.node} with {pod.reason} ({pod.message.removeprefix(STATUS_PREFIX)})"
    if background.then:
        return (past, *background.then, f"Now: {today}")
    return (f"{past}; now: {today}",)


def now(prediction: Prediction, background: Background) -> str:
    """Return what stands in a pod's way as things are now, in one sentence."""
    return background.waits[0].sentence if background.waits else prediction.sentence


def _lines_about_replicas(pods: list[ClusterPod]) -> list[str]:
    """Return how the owner's replicas have fared, if there are several."""
    rejected = [pod for pod in pods if is_rejected(pod)]
    if not rejected:
        return []
    waiting = sum(1 for pod in pods if not pod.node and not pod.terminal)
    bound = [pod for pod in pods if pod.node and not pod.terminal]
    starting = sum(1 for pod in bound if pod.phase == "Pending")
    reasons = ", ".join(
        f"{count} {reason}" for reason, count in Counter(pod.reason for pod in rejected).most_common()
    )
    first, last = (choice(pod.created for pod in rejected) for choice in (min, max))
    since = f"since {first}" + (f", the last at {last}" if last != first else "")
    if len(pods) == 1 and pods[0].controller is None:
        return [f"It was created at {pods[0].created}; {_NOT_TRIED_AGAIN}"]
    owner = rejected[0].controller
    those = f"{pluralize(len(rejected), 'pod')}{'' if owner is None else f' of {owner.kind} {owner.name}'}"
    have = "has" if len(rejected) == 1 else "have"
    now = f"{len(bound) - starting} running, {f'{starting} starting, ' * bool(starting)}{waiting} waiting"
    lines = [f"{those} {have} been rejected {since} ({reasons}); now {now}"]
    if len(rejected) > 1 and rejected[0].controller is not None:
        lines.append(_LOOP)
    return lines
