"""Affinity between containers: annotations ``affinity`` and ``anti-affinity`` of a pod, colocation settings.

The affinity of a container to others adds up per pool; a pool's score counts its ancestors and its
subtree with a weight of 0.75 per level, so that siblings don't pull.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from numazones_topology_aware import go_yaml
from numazones_topology_aware.config import Configuration
from numazones_topology_aware.expression import ALWAYS_TRUE, EQUALS, IN, Expression, Subject
from numazones_topology_aware.go_yaml import InvalidDocument
from numazones_topology_aware.pools import Pool, Tree
from numazones_topology_aware.sandbox import DOMAIN, ContainerSpec, Sandbox

_CUTOFF = 1000
_COLOCATION = 10
_PER_LEVEL = 0.75
_INT32 = 1 << 31

_EVERYWHERE = Expression(ALWAYS_TRUE)


@dataclass(frozen=True, slots=True)
class Affinity:
    """Containers in a scope that match attract (below 0: repel) with a weight."""

    scope: Expression
    match: Expression
    weight: int

    def selects(self, subject: Subject) -> bool:
        """Return whether a container is selected."""
        return self.scope.holds(subject) and self.match.holds(subject)


def of_container(sandbox: Sandbox, container: ContainerSpec, config: Configuration) -> tuple[Affinity, ...]:
    """Return a container's affinities: its own, or else those of the colocation settings.

    Raises:
        InvalidDocument: an affinity annotation of the pod is broken, for whichever container.
    """
    read = _from_annotations(
        sandbox.name,
        sandbox.annotations.get(f"{DOMAIN}/affinity"),
        sandbox.annotations.get(f"{DOMAIN}/anti-affinity"),
    )
    if isinstance(read, InvalidDocument):
        raise InvalidDocument(*read.args)
    own = read.get(container.name, ())
    if own:
        return own
    implied = []
    if config.colocate_pods:
        implied.append(Affinity(_same_pod(sandbox.name), _EVERYWHERE, _COLOCATION))
    if config.colocate_namespaces:
        match = Expression(EQUALS, "namespace", (sandbox.namespace,))
        implied.append(Affinity(_EVERYWHERE, match, _COLOCATION))
    return tuple(implied)


def weights(affinities: Iterable[Affinity], others: Iterable[Subject]) -> dict[str, int]:
    """Container id → sum of the weights of the affinities that select it."""
    sums: dict[str, int] = {}
    affinities = tuple(affinities)
    for subject in others:
        for affinity in affinities:
            if affinity.selects(subject):
                name = subject.container.id
                sums[name] = sums.get(name, 0) + affinity.weight
    return sums


def pool_scores(tree: Tree, own: Mapping[int, int]) -> list[float]:
    """Score of every pool from the weights of the containers granted exactly there."""
    if not any(own.values()):
        return [0.0] * len(tree.pools)
    return [_score(tree, pool, own) for pool in tree.pools]


def _score(tree: Tree, pool: Pool, own: Mapping[int, int]) -> float:
    above = sum(_PER_LEVEL**distance * own.get(up, 0) for distance, up in enumerate(pool.ancestors, start=1))
    inside = sum(
        _PER_LEVEL ** (tree.pools[down].depth - pool.depth) * own.get(down, 0) for down in pool.descendants
    )
    return above + inside


def _same_pod(name: str) -> Expression:
    """Return the default scope: by name alone, so that it includes pods of that name in other namespaces."""
    return Expression(EQUALS, "pod/name", (name,))


@lru_cache(maxsize=512)
def _from_annotations(
    pod: str, affinity: str | None, anti_affinity: str | None
) -> Mapping[str, tuple[Affinity, ...]] | InvalidDocument:
    """Return container → affinities, or the error: a cache forgets what is raised."""
    try:
        return _parse_annotations(pod, affinity, anti_affinity)
    except InvalidDocument as error:
        return InvalidDocument(*error.args)


def _parse_annotations(
    pod: str, affinity: str | None, anti_affinity: str | None
) -> Mapping[str, tuple[Affinity, ...]]:
    found: dict[str, list[Affinity]] = {}
    for text, weight in ((affinity, 1), (anti_affinity, -1)):
        if text is not None:
            document = go_yaml.load(text, strict=True)
            try:
                parsed = _shorthand(document, pod, weight)
            except InvalidDocument:
                parsed = _full(document, pod, weight)
            for name, affinities in parsed.items():
                found.setdefault(name, []).extend(affinities)
    return {name: tuple(affinities) for name, affinities in found.items()}


def _shorthand(document: Any, pod: str, weight: int) -> dict[str, list[Affinity]]:
    """Read ``a: [b, c]``, which holds in both directions."""
    pairs: dict[str, dict[str, None]] = {}
    for name, others in go_yaml.mapping(document).items():
        for other in go_yaml.texts(others):
            pairs.setdefault(name, {})[other] = None
            pairs.setdefault(other, {})[name] = None
    return {
        name: [
            Affinity(
                _same_pod(pod), Expression(EQUALS if len(others) == 1 else IN, "name", tuple(others)), weight
            )
        ]
        for name, others in pairs.items()
    }


def _full(document: Any, pod: str, weight: int) -> dict[str, list[Affinity]]:
    found: dict[str, list[Affinity]] = {}
    for name, items in go_yaml.mapping(document).items():
        if not isinstance(items, list | None):
            raise InvalidDocument(f"the affinities of {name!r} are not a list")
        found[name] = [_affinity(item, pod, weight) for item in items or ()]
    return found


def _affinity(item: Any, pod: str, default: int) -> Affinity:
    read = go_yaml.fields(item, "scope", "match", "weight", strict=True)
    weight = read.get("weight") or 0
    if isinstance(weight, bool) or not (
        isinstance(weight, int) or (isinstance(weight, float) and weight.is_integer())
    ):
        raise InvalidDocument(f"the weight {go_yaml.short_text(weight)} is not a whole number")
    if not -_INT32 <= weight < _INT32:
        raise InvalidDocument(f"the weight {go_yaml.short_text(weight)} is too large")
    signed = int(weight) * default if weight else default
    if read.get("match") is None:
        raise InvalidDocument("an affinity needs a match")
    scope = _same_pod(pod) if read.get("scope") is None else Expression.parse(read["scope"])
    return Affinity(scope, Expression.parse(read["match"]), max(-_CUTOFF, min(_CUTOFF, signed)))
