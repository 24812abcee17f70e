"""Why a pod is stuck, in sentences: the answer, how its owner's replicas fared, and what would help."""

from collections import Counter
from collections.abc import Iterator

from kubectl_numazones import answers
from kubectl_numazones.cluster import Seen
from numazones.advice import Advice
from numazones.cluster import ClusterPod
from numazones.kubelet.rejection import STATUS_PREFIX
from numazones.placement import Unknown
from numazones.prediction import ADMISSIBLE, Prediction, deciding

_LOOP = (
    "Its controller makes a new pod for each one rejected, so this goes on until one fits; "
    "the scheduling gate numazones.io/admission ends such loops."
)


def is_running(pod: ClusterPod) -> bool:
    """Whether a kubelet has admitted the pod, so that nothing is to be explained."""
    return bool(pod.node) and not pod.terminal


def most_telling(pods: list[ClusterPod]) -> ClusterPod:
    """The pod to explain of an owner's: one that waits, else one that was rejected, else any."""
    return min(
        pods,
        key=lambda pod: (bool(pod.node), not (pod.reason or pod.create_error), pod.created, pod.name),
    )


def explanation_lines(
    pods: list[ClusterPod], pod: ClusterPod, prediction: Prediction, seen: Seen
) -> Iterator[str]:
    """Yield everything that is to be said before node by node: ``pod`` is the most telling of ``pods``."""
    yield f"{pod.full_name}: {_headline(pod, prediction)}"
    yield from _lines_about_replicas(pods)
    if not is_running(pod) and not prediction.possible:
        yield "No eviction can help: the nodes for such pods would not take it even when empty."
    helpful = helpful_changes(pod, prediction, seen)
    made = [] if is_running(pod) or prediction.verdict == ADMISSIBLE else seen.recommendations(pods)
    if helpful or made:
        yield ""
        yield "What would help:"
    for item in helpful:
        where = "" if item.node in item.sentence else f" ({item.node})"
        yield f"  - {item.sentence}{where}"
    for recommendation in made:
        yield f"  - a plan was made: kubectl describe rebalancerecommendation {recommendation}"
    if not is_running(pod) and prediction.verdict != ADMISSIBLE:
        deciders = sorted(_deciders_without_advice(pod, prediction, seen))
        if deciders:
            yield ""
            yield f"What would help where {' or '.join(deciders)} decides is not worked out yet."


def _deciders_without_advice(pod: ClusterPod, prediction: Prediction, seen: Seen) -> set[str]:
    """Who decides on the example nodes of rejections, where no change can be proven."""
    nodes = seen.situation.cluster.nodes
    examples = (nodes[reason.node] for reason in prediction.reasons if reason.node and reason.model)
    placements = (deciding(pod.constraints, node) for node in examples)
    return {one.decider for one in placements if not isinstance(one, Unknown) and one.kubelet is None}


def helpful_changes(pod: ClusterPod, prediction: Prediction, seen: Seen) -> list[Advice]:
    """Return what would let a pod in; nothing for one that runs or would be admitted."""
    if is_running(pod) or prediction.verdict == ADMISSIBLE:
        return []
    forecast = answers.forecast_of(pod, seen.situation.cluster.nodes)
    return answers.advice_for(pod, seen.situation, prediction, forecast)


def _headline(pod: ClusterPod, prediction: Prediction) -> str:
    if is_running(pod):
        if pod.create_error:  # it is bound, and holds its place in the node's sums
            return f"waits on {pod.node}, where the runtime does not create a container: {pod.create_error}"
        return f"runs on {pod.node}"
    past = ""
    if pod.reason and pod.node:
        said = pod.message.removeprefix(STATUS_PREFIX)
        past = f"rejected on {pod.node} with {pod.reason} ({said}); as things are now, "
    return past + prediction.sentence


def _lines_about_replicas(pods: list[ClusterPod]) -> list[str]:
    """How the owner's replicas have fared, where there are several."""
    rejected = [pod for pod in pods if pod.terminal and pod.reason and not pod.acknowledged]
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
    were = "was" if len(rejected) == 1 else "were"
    now = f"{len(bound) - starting} running, {f'{starting} starting, ' * bool(starting)}{waiting} waiting"
    lines = [f"{len(rejected)} of its pods {were} rejected {since} ({reasons}); now {now}"]
    if len(rejected) > 1 and rejected[0].controller is not None:
        lines.append(_LOOP)
    return lines
