"""The shapes of pods that room is to be kept for: those that policies name, and those of pods that wait.

Who places pods by shapes asks here unless told which: a shape that a RebalancePolicy wants to fit should not
be broken up by the next small pod, and a pod that waits will come. Each shape costs a decision on every node
that is looked at, so there are few.
"""

from collections import Counter
from collections.abc import Iterable

from numazones.api.rebalance import Goals, TargetShape
from numazones.apimachinery.resources import CPU
from numazones.cluster.cluster import ClusterPod
from numazones.errors import NumazonesError
from numazones.placement.fragmentation import InvalidShape, Shape

MOST = 4
"""Room is kept for so many shapes at most."""


def wanted_shapes(goals: Iterable[Goals], waiting: Iterable[ClusterPod]) -> tuple[Shape, ...]:
    """Return the shapes that policies name, in their order, then those that wait for the most CPUs.

    Args:
        goals: of the RebalancePolicies; a shape that makes no sense is left out.
        waiting: pods without a node; those without CPUs of their own have no shape.

    >>> from numazones import build
    >>> goals = Goals.model_validate({"shapes": [{"name": "large", "resources": {"cpu": "16"}}]})
    >>> pods = [ClusterPod.from_api(build.pod_body("web", cpu=4, memory="1Gi"))]
    >>> [str(shape) for shape in wanted_shapes([goals], pods)]
    ['cpu=16', 'cpu=4,memory=1Gi']
    """
    found: dict[Shape, None] = {}
    for target in (target for some in goals for target in some.shapes):
        try:
            found[shape_named(target)] = None
        except InvalidShape:  # the policy's own condition says so
            continue
    cpus: Counter[Shape] = Counter()
    for pod in waiting:
        if (shape := shape_of_pod(pod)) is not None:
            cpus[shape] += shape.cpus
    found |= dict.fromkeys(sorted(cpus, key=lambda shape: (-cpus[shape], str(shape))))
    return tuple(found)[:MOST]


def shape_named(target: TargetShape) -> Shape:
    """Return the shape that a policy names.

    Raises:
        InvalidShape: it asks for no CPUs, or for broken amounts.

    >>> str(shape_named(TargetShape.model_validate({"name": "large", "resources": {"cpu": "16"}})))
    'cpu=16'
    """
    return Shape.parse(",".join(f"{name}={amount}" for name, amount in target.resources.items()))


def shape_of_pod(pod: ClusterPod) -> Shape | None:
    """Return what a pod must find on one NUMA node; None: it has no CPUs of its own, or cannot be read.

    >>> from numazones import build
    >>> str(shape_of_pod(ClusterPod.from_api(build.pod_body("web", cpu=4, memory="1Gi"))))
    'cpu=4,memory=1Gi'
    """
    if pod.admission is None:
        return None
    try:
        cpus = pod.admission.demand().total.cpus
    except NumazonesError:
        return None
    if not cpus:
        return None
    others = {name: amount for name, amount in pod.requests.items() if name != CPU and amount}
    return Shape(tuple(sorted({**others, CPU: cpus}.items())))
