"""What state files hold on a node whose sources contradict each other, as far as its zones say it.

Such zones show the machine and the configuration as they are now; the kubelet's state files are older. What
of them is not in the zones' figures is in the message of the condition Consistent, in the words of every
release of the exporter.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from numazones import cpuset
from numazones.api.numazone import NUMAZone
from numazones.api.workload_partitioning import CONSISTENT
from numazones.api.zones import node_from_zones
from numazones.errors import NumazonesError
from numazones.kubelet import go
from numazones.kubelet.cures import CPU_STATE_FILE, MEMORY_STATE_FILE
from numazones.kubelet.node import Node
from numazones.kubelet.state_validation import MEMORY_DIFFERS, RESTART_FAILS, Refusal

DISAGREE = "SourcesDisagree"
_GONE = re.compile(rf"{CPU_STATE_FILE} has CPUs ([0-9,-]+), which are not online")
_POLICY = re.compile(
    r"(\w+_manager_state) was written under policy ([^,]+),(?: but)? the kubelet configuration says (\w+)"
)
_MEMORY = re.compile(rf"{MEMORY_STATE_FILE} has (?:NUMA nodes|\S+ of )")
_FORESEEN = re.compile(rf"{RESTART_FAILS}(.*?); drain .*?, remove \S*/(\w+) and start it again")
_PREFIXES = {CPU_STATE_FILE: "", MEMORY_STATE_FILE: "[memorymanager] "}


@dataclass(frozen=True, slots=True)
class Contradicted:
    """A node whose sources contradict each other."""

    state: Node
    """By the zones, with the CPUs of the state file that are not online any more."""
    refused: tuple[Refusal, ...]
    """State files that a kubelet which restarts would not take, by the condition's message."""


def contradicted(node: str, zones: Iterable[Mapping[str, Any]]) -> Contradicted | None:
    """Return a node's state where only contradictions keep its zones from being ready.

    ``zones``: NUMAZones as API objects, of any nodes.
    """
    try:
        own = [NUMAZone.from_api(body) for body in zones if _node_of(body) == node]
        state = node_from_zones(own, despite=(DISAGREE,))
    except NumazonesError:
        return None
    said = next(iter(_messages(own)), "")
    gone = _GONE.search(said)
    if gone is not None:
        default = state.cpus.default | cpuset.parse(gone[1])
        state = replace(state, cpus=state.cpus._replace(default=default))
    return Contradicted(state, tuple(_refusals(said)))


def _node_of(body: Mapping[str, Any]) -> str:
    return str((body.get("spec") or {}).get("nodeName"))


def _messages(zones: Iterable[NUMAZone]) -> Iterator[str]:
    for zone in zones:
        for condition in zone.status.conditions if zone.status else ():
            if condition.type == CONSISTENT and condition.reason == DISAGREE:
                yield condition.message


def _refusals(said: str) -> Iterator[Refusal]:
    for words, file in _FORESEEN.findall(said):
        yield Refusal(words, file)
    for file, found, configured in _POLICY.findall(said):
        policies = go.quote(configured), go.quote(found)
        words = "configured policy {} differs from state checkpoint policy {}".format(*policies)
        yield Refusal(f"{_PREFIXES.get(file, '')}{words}", file)
    if _MEMORY.search(said):
        yield Refusal(MEMORY_DIFFERS, MEMORY_STATE_FILE)
