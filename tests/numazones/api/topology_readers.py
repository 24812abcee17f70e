"""Models of known readers of NodeResourceTopology, with its zones, up to where they fail.

scheduler-plugins (903da7df): NodeResourceTopologyMatch takes the number in a zone's name for a place in
arrays of its own, 64 long or as long as the list; policy, scope and limit from attributes; and, where its
cache looks ahead, the pods' fingerprint. Koordinator (a7a1b76b): NodeNUMAResource adds a zone under the
number that follows ``node-``. Written from what their sources do: where those panic, this raises. NFD and
the resource topology exporter write such objects and read none but their own, by the node's name.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numazones.apimachinery import quantity

MAX_SCORE = 100
UNKNOWN_COST = 255
MAX_COMBINATIONS = 1 << 16
"""More than a scheduler could hold in memory for each pod and node that it looks at."""

_POLICIES = {"none", "best-effort", "restricted", "single-numa-node"}


class ReaderFailed(Exception):
    """The reader would end, refuse the node, or not come back."""


@dataclass(frozen=True)
class Cell:
    """A NUMA node as scheduler-plugins keeps it; resources in billionths."""

    number: int
    resources: dict[str, int]
    costs: dict[int, int]


def cells(body: Mapping[str, Any]) -> list[Cell]:
    """Read the zones as NodeResourceTopologyMatch does before it filters or scores."""
    places: dict[int, int] = {}
    for place, zone in enumerate(body["zones"]):
        if zone["type"] == "Node":
            number = int(zone["name"].removeprefix("node-"))
            if number >= 64:
                raise ReaderFailed(f"index out of range [{number}] with length 64")
            places[number] = place
    found = []
    for number, place in places.items():
        zone = body["zones"][place]
        resources = {row["name"]: quantity.parse(row["available"]).nanos for row in zone.get("resources", ())}
        costs = {int(cost["name"].removeprefix("node-")): cost["value"] for cost in zone.get("costs", ())}
        found.append(Cell(number, resources, costs))
    return found


def topology_manager(body: Mapping[str, Any]) -> tuple[str, str, int]:
    """Read (policy, scope, most NUMA nodes) as scheduler-plugins do; nonsense counts as the default."""
    policy, scope, most = "none", "container", 8
    for entry in body.get("attributes", ()):
        name, value = entry["name"], entry["value"]
        if name == "topologyManagerPolicy" and value in _POLICIES:
            policy = value
        elif name == "topologyManagerScope" and value in {"container", "pod"}:
            scope = value
        elif name == "topologyManagerMaxNUMANodes" and value.isdecimal() and int(value) > 1:
            most = min(int(value), 1024)
    return policy, scope, most


def pods_fingerprint(body: Mapping[str, Any]) -> tuple[str, bool]:
    """Read the pods' fingerprint, and whether it is of pods with exclusive resources only, as their cache."""
    told: dict[str, str] = {}
    for entry in body.get("attributes", ()):
        told.setdefault(entry["name"], entry["value"])
    if "nodeTopologyPodsFingerprint" in told:
        method = told.get("nodeTopologyPodsFingerprintMethod")
        return told["nodeTopologyPodsFingerprint"], method == "with-exclusive-resources"
    annotations = body["metadata"].get("annotations") or {}
    return annotations.get("topology.node.k8s.io/fingerprint", ""), False


def score_each_zone(body: Mapping[str, Any], request: Mapping[str, int]) -> int:
    """Score as LeastAllocated; MostAllocated and BalancedAllocation keep zones in the same array."""
    zones = cells(body)
    scores = [0] * len(zones)
    for cell in zones:
        if cell.number >= len(scores):
            raise ReaderFailed(f"index out of range [{cell.number}] with length {len(scores)}")
        shares = [_share_left(amount, cell.resources.get(name, 0)) for name, amount in request.items()]
        scores[cell.number] = sum(shares) // len(shares)
    return min((score for score in scores if score), default=0)


def _share_left(asked: int, available: int) -> int:
    return 0 if not available or asked > available else (available - asked) * MAX_SCORE // available


def score_least_numa_nodes(body: Mapping[str, Any], requests: Sequence[Mapping[str, int]]) -> int:
    """Score as LeastNUMANodes under scope container, which looks at nodes of every policy."""
    zones = cells(body)
    most, closest = 0, True
    for request in requests:
        if not any(name in cell.resources for cell in zones for name in request):
            continue
        found = _fewest(zones, request)
        if found is None:
            return 0
        numbers, nearest = found
        most, closest = max(most, len(numbers)), closest and nearest
        _subtract(zones, request, numbers)
    if not most:
        return MAX_SCORE
    step = MAX_SCORE // topology_manager(body)[2]
    score = MAX_SCORE - most * step + (step // 2 if closest else 0)
    if not 0 <= score <= MAX_SCORE:
        raise ReaderFailed(f"plugin returns an invalid score {score}, it should in the range of [0, 100]")
    return score


def _fewest(zones: Sequence[Cell], request: Mapping[str, int]) -> tuple[tuple[int, ...], bool] | None:
    weighed = 0
    for count in range(1, len(zones) + 1):
        weighed += math.comb(len(zones), count)
        if weighed > MAX_COMBINATIONS:
            raise ReaderFailed(f"{weighed} combinations of {len(zones)} zones")
        choices = list(itertools.combinations(range(len(zones)), count))
        nearest = min(_distance(zones, choice) for choice in choices)
        fitting = [choice for choice in choices if _fits(zones, choice, request)]
        if fitting:
            choice = min(fitting, key=lambda choice: _distance(zones, choice))
            return tuple(zones[place].number for place in choice), _distance(zones, choice) == nearest
    return None


def _fits(zones: Sequence[Cell], choice: Sequence[int], request: Mapping[str, int]) -> bool:
    return all(
        all(name in zones[place].resources for place in choice)
        and sum(zones[place].resources[name] for place in choice) >= amount
        for name, amount in request.items()
    )


def _distance(zones: Sequence[Cell], choice: Sequence[int]) -> float:
    pairs = itertools.product(choice, repeat=2)
    costs = [zones[one].costs.get(zones[other].number, UNKNOWN_COST) for one, other in pairs]
    return sum(costs) / len(costs)


def _subtract(zones: Sequence[Cell], request: Mapping[str, int], numbers: Sequence[int]) -> None:
    for name, amount in request.items():
        for number in numbers:
            if number >= len(zones):
                raise ReaderFailed(f"index out of range [{number}] with length {len(zones)}")
            taken = min(amount, zones[number].resources.get(name, 0))
            zones[number].resources[name] = zones[number].resources.get(name, 0) - taken
            amount -= taken  # noqa: PLW2901 - what is left for the next zone


def lines_logged_at_every_look(body: Mapping[str, Any]) -> int:
    """Count the lines that scheduler-plugins log, at any level, because of deprecated fields."""
    return 2 if body.get("topologyPolicies") else 0


def koordinator_numa_nodes(body: Mapping[str, Any]) -> dict[int, dict[str, str]]:
    """Read what is allocatable by the number that follows ``node-``."""
    found = {}
    for zone in body["zones"]:
        parts = zone["name"].split("node-")
        if zone["type"] == "Node" and len(parts) == 2:
            found[int(parts[1])] = {row["name"]: row["allocatable"] for row in zone.get("resources", ())}
    return found
