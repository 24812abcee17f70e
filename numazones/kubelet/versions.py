"""Which kubelet release does what: the one place that knows releases apart.

1.36 is the reference. Differences are those that the release notes and sources of 1.31 to 1.36
show for the CPU, Memory, Device and Topology Managers: how mature a policy option is (and so which
feature gate guards it), and which NUMA nodes the Device Manager makes hints over. Releases newer
than the newest one known are treated as that one; their new options are rejected by name.
"""

import re
from dataclasses import dataclass
from enum import Enum

from numazones.errors import NumazonesError


class UnsupportedVersion(NumazonesError):
    """A kubelet version is no version, or older than what is modelled."""


class Maturity(Enum):
    """How mature a policy option is in a release."""

    ALPHA = "alpha"
    BETA = "beta"
    STABLE = "stable"


@dataclass(frozen=True, slots=True)
class Release:
    """What one minor release of the kubelet does differently."""

    minor: int
    cpu_options: tuple[tuple[str, Maturity], ...]
    topology_options: tuple[tuple[str, Maturity], ...]
    device_hints_over_hosting_nodes: bool
    """Device hints are made only over NUMA nodes that host a device of the resource."""

    def __str__(self) -> str:
        return f"1.{self.minor}"


OLDEST, NEWEST = 31, 36

FULL_PCPUS_ONLY = "full-pcpus-only"
STRICT_CPU_RESERVATION = "strict-cpu-reservation"
DISTRIBUTE_ACROSS_NUMA = "distribute-cpus-across-numa"
ALIGN_BY_SOCKET = "align-by-socket"
DISTRIBUTE_ACROSS_CORES = "distribute-cpus-across-cores"
PREFER_ALIGN_BY_UNCORE = "prefer-align-cpus-by-uncorecache"
PREFER_CLOSEST = "prefer-closest-numa-nodes"
MAX_ALLOWABLE = "max-allowable-numa-nodes"
PREFER_MOST_ALLOCATED = "prefer-most-allocated-numa-node"

# option → (minor release, maturity from then on), oldest first
_CPU_OPTIONS: dict[str, tuple[tuple[int, Maturity], ...]] = {
    FULL_PCPUS_ONLY: ((31, Maturity.BETA), (33, Maturity.STABLE)),
    DISTRIBUTE_ACROSS_NUMA: ((31, Maturity.ALPHA), (33, Maturity.BETA)),
    ALIGN_BY_SOCKET: ((31, Maturity.ALPHA),),
    DISTRIBUTE_ACROSS_CORES: ((31, Maturity.ALPHA),),
    STRICT_CPU_RESERVATION: ((32, Maturity.ALPHA), (33, Maturity.BETA), (35, Maturity.STABLE)),
    PREFER_ALIGN_BY_UNCORE: ((32, Maturity.ALPHA), (34, Maturity.BETA), (36, Maturity.STABLE)),
}
_TOPOLOGY_OPTIONS: dict[str, tuple[tuple[int, Maturity], ...]] = {
    PREFER_CLOSEST: ((31, Maturity.BETA), (32, Maturity.STABLE)),
    MAX_ALLOWABLE: ((31, Maturity.BETA), (35, Maturity.STABLE)),
    # KEP-6007: in no release yet; modelled as its draft says, behind the alpha gate, in every release.
    PREFER_MOST_ALLOCATED: ((31, Maturity.ALPHA),),
}
# First release that narrows device hints to the NUMA nodes hosting a device of the resource.
_HOSTING_NODES_SINCE = 36

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:[.+-].*)?")


def release(version: str) -> Release:
    """The release of a kubelet version such as ``v1.36.2`` or ``1.34``.

    Raises:
        UnsupportedVersion: the text is no version, or the release is older than 1.31.
    """
    match = _VERSION.fullmatch(version.strip())
    if match is None or match[1] != "1":
        raise UnsupportedVersion(f"{version!r} is no kubelet version such as v1.{NEWEST}.0")
    minor = min(int(match[2]), NEWEST)
    if minor < OLDEST:
        raise UnsupportedVersion(f"kubelet {version} is older than 1.{OLDEST}, the oldest release modelled")
    return Release(
        minor=minor,
        cpu_options=_known(_CPU_OPTIONS, minor),
        topology_options=_known(_TOPOLOGY_OPTIONS, minor),
        device_hints_over_hosting_nodes=minor >= _HOSTING_NODES_SINCE,
    )


def _known(
    options: dict[str, tuple[tuple[int, Maturity], ...]], minor: int
) -> tuple[tuple[str, Maturity], ...]:
    known = []
    for option, history in options.items():
        reached = [maturity for since, maturity in history if since <= minor]
        if reached:
            known.append((option, reached[-1]))
    return tuple(known)
