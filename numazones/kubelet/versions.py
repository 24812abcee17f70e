"""Kubelet releases and their differences: the one place that distinguishes them; the managers ask it.

1.36 is the reference. Differences are those that the release notes and sources of 1.31 to 1.36 show
for the CPU, Memory, Device and Topology Managers: how mature a policy option is (and so which
feature gate guards it), which gates there are and what they depend on, what is made of pod-level
resources and of devices that dynamic resource allocation serves, and a handful of rules and texts.
Rules of 1.37 and 1.38 are less well known: each says how (``Rule``), and ``Release.doubts`` says what
follows for a kubelet. Releases newer than the newest one known are treated as that one; their new
options are rejected by name.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from numazones.errors import NumazonesError
from numazones.kubelet.demand import PodLevel


class UnsupportedVersion(NumazonesError):
    """A text is not a kubelet version, or names one older than what is modelled."""


class Maturity(Enum):
    """Maturity of a policy option in a release."""

    ALPHA = "alpha"
    BETA = "beta"
    STABLE = "stable"


class Confidence(StrEnum):
    """How a rule is known."""

    CODE = "read in the code"
    FIGURES = "upstream's figures, reproduced"
    REVIEW = "read in the pull request"
    DERIVED = "derived"


OLDEST, NEWEST = 31, 38
REFERENCE = 36
"""The release whose rules are taken where none is named."""
RELEASED = 37
"""The newest release that is out; the rules of newer ones are those of their alphas."""

FULL_PCPUS_ONLY = "full-pcpus-only"
STRICT_CPU_RESERVATION = "strict-cpu-reservation"
DISTRIBUTE_ACROSS_NUMA = "distribute-cpus-across-numa"
ALIGN_BY_SOCKET = "align-by-socket"
DISTRIBUTE_ACROSS_CORES = "distribute-cpus-across-cores"
PREFER_ALIGN_BY_UNCORE_CACHE = "prefer-align-cpus-by-uncorecache"
PREFER_CLOSEST = "prefer-closest-numa-nodes"
MAX_ALLOWABLE = "max-allowable-numa-nodes"
PREFER_MOST_ALLOCATED = "prefer-most-allocated-numa-node"
ALLOCATION_STRATEGY = "numa-allocation-strategy"
SCORE_WEIGHTS = "numa-score-weights"

UNRELEASED_OPTIONS = frozenset({PREFER_MOST_ALLOCATED, ALLOCATION_STRATEGY, SCORE_WEIGHTS})
"""Options of KEP-6007 that are modelled and that no release knows: kubelets that do are special builds."""

CPU_OPTIONS = "CPUManagerPolicyOptions"
CPU_ALPHA_OPTIONS = "CPUManagerPolicyAlphaOptions"
CPU_BETA_OPTIONS = "CPUManagerPolicyBetaOptions"
TOPOLOGY_OPTIONS = "TopologyManagerPolicyOptions"
TOPOLOGY_ALPHA_OPTIONS = "TopologyManagerPolicyAlphaOptions"
TOPOLOGY_BETA_OPTIONS = "TopologyManagerPolicyBetaOptions"
POD_LEVEL_RESOURCES = "PodLevelResources"
POD_LEVEL_RESIZE = "InPlacePodLevelResourcesVerticalScaling"
POD_LEVEL_MANAGERS = "PodLevelResourceManagers"
POD_LEVEL_DEFAULTING = "PodLevelResourcesFixDefaulting"
POD_LEVEL_QOS = "PodLevelResourcesFixKubeletQOSClass"
NODE_DECLARED_FEATURES = "NodeDeclaredFeatures"
DRA_EXTENDED_RESOURCE = "DRAExtendedResource"
NO_QUOTA_WITH_OWN_CPUS = "DisableCPUQuotaWithExclusiveCPUs"

_History = tuple[tuple[int, Maturity], ...]
"""(minor release, maturity from then on), oldest first."""

_CPU_OPTION_HISTORY: dict[str, _History] = {
    FULL_PCPUS_ONLY: ((31, Maturity.BETA), (33, Maturity.STABLE)),
    DISTRIBUTE_ACROSS_NUMA: ((31, Maturity.ALPHA), (33, Maturity.BETA)),
    ALIGN_BY_SOCKET: ((31, Maturity.ALPHA),),
    DISTRIBUTE_ACROSS_CORES: ((31, Maturity.ALPHA),),
    STRICT_CPU_RESERVATION: ((32, Maturity.ALPHA), (33, Maturity.BETA), (35, Maturity.STABLE)),
    PREFER_ALIGN_BY_UNCORE_CACHE: ((32, Maturity.ALPHA), (34, Maturity.BETA), (36, Maturity.STABLE)),
}
EXCLUSIVE_CPU_OPTIONS = (
    (FULL_PCPUS_ONLY, DISTRIBUTE_ACROSS_CORES),
    (DISTRIBUTE_ACROSS_NUMA, DISTRIBUTE_ACROSS_CORES),
    (PREFER_ALIGN_BY_UNCORE_CACHE, DISTRIBUTE_ACROSS_CORES),
    (PREFER_ALIGN_BY_UNCORE_CACHE, DISTRIBUTE_ACROSS_NUMA),
)
"""Pairs of options that no kubelet starts with, in the order in which it looks for them."""
_TOPOLOGY_OPTION_HISTORY: dict[str, _History] = {
    PREFER_CLOSEST: ((31, Maturity.BETA), (32, Maturity.STABLE)),
    MAX_ALLOWABLE: ((31, Maturity.BETA), (35, Maturity.STABLE)),
    # KEP-6007: in no release yet; modelled as its draft says, behind the alpha gate, in every release.
    PREFER_MOST_ALLOCATED: ((31, Maturity.ALPHA),),
    # What became of it, proposed for 1.38.
    ALLOCATION_STRATEGY: ((38, Maturity.ALPHA),),
    SCORE_WEIGHTS: ((38, Maturity.ALPHA),),
}

# gate → (minor release, whether it is on by default from then on), oldest first; None: locked on.
_GATES: dict[str, tuple[tuple[int, bool | None], ...]] = {
    CPU_OPTIONS: ((31, True), (33, None)),
    CPU_ALPHA_OPTIONS: ((31, False),),
    CPU_BETA_OPTIONS: ((31, True),),
    TOPOLOGY_OPTIONS: ((31, True), (32, None)),
    TOPOLOGY_ALPHA_OPTIONS: ((31, False),),
    TOPOLOGY_BETA_OPTIONS: ((31, True),),
    POD_LEVEL_RESOURCES: ((32, False), (34, True)),
    POD_LEVEL_RESIZE: ((35, False), (36, True)),
    POD_LEVEL_MANAGERS: ((36, False),),
    POD_LEVEL_DEFAULTING: ((37, True),),
    POD_LEVEL_QOS: ((37, True),),
    NODE_DECLARED_FEATURES: ((37, True),),
    DRA_EXTENDED_RESOURCE: ((34, False), (36, True), (37, None)),
    NO_QUOTA_WITH_OWN_CPUS: ((37, None),),
}
GATES = frozenset(_GATES)
"""Every gate that has a say in admission in some release."""

# gate → the gates that it needs; a kubelet does not start without them.
_NEEDED_GATES = {
    POD_LEVEL_RESIZE: (POD_LEVEL_RESOURCES, NODE_DECLARED_FEATURES),
    POD_LEVEL_MANAGERS: (POD_LEVEL_RESOURCES,),
    POD_LEVEL_DEFAULTING: (POD_LEVEL_RESOURCES,),
    POD_LEVEL_QOS: (POD_LEVEL_RESOURCES,),
}

_NEEDED_GATES_CHECKED_SINCE = 35
_SMT_TEXT_BY_CAUSE_SINCE = 32
_BEST_EFFORT_MEMORY_KNOWN_SINCE = 32
_MEMORY_GROUPS_CHECKED_SINCE = 32
_BOOKS_SINCE = 32
_UNCORE_CACHE_REST_ROUNDED_UP_SINCE = 33
_TOPOLOGY_TEXTS_LOWER_CASE_SINCE = 33
_POD_LEVEL_LEFT_ALONE_SINCE = 34
_CLAIMED_DEVICES_SKIPPED_SINCE = 35
_HOSTING_NODES_SINCE = 36
_POD_LEVEL_LEFT_ALONE_ANYWAY_SINCE = 36
_LOCKED_GATES_CHECKED_SINCE = 37


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule that a release newer than the reference changed."""

    since: int
    confidence: Confidence
    what: str
    """In half a sentence."""
    reached_by: frozenset[str] = frozenset()
    """Options, or the gate, without which it decides nothing; empty: it always may."""
    fix: bool = False
    """A fix of a bug, which patch releases of the release before may carry as well."""
    perhaps_since: int = 0
    """The release before, if it is not known whether that has it already."""


STATE_FILES_REPEATED = Rule(37, Confidence.CODE, "state files repeat all content as text (CPU V4, memory V3)")
EMPTY_POD_RESOURCES_ABSENT = Rule(
    37, Confidence.CODE, "an empty spec.resources does not decide the QoS class", frozenset({POD_LEVEL_QOS})
)
DISTRIBUTION_KNOWS_SOCKETS = Rule(
    37,
    Confidence.DERIVED,
    "distribution prefers NUMA nodes of one socket",
    frozenset({DISTRIBUTE_ACROSS_NUMA, ALIGN_BY_SOCKET}),
)
DISTRIBUTION_KEEPS_WIDTH = Rule(
    38,
    Confidence.CODE,
    "distribution takes at least as many NUMA nodes as the Topology Manager chose",
    frozenset({DISTRIBUTE_ACROSS_NUMA}),
    fix=True,
)
DISTRIBUTION_ENDS = Rule(
    38,
    Confidence.CODE,
    "distribution counts the CPUs that are left over in whole cores, so that it always ends",
    frozenset({DISTRIBUTE_ACROSS_NUMA, FULL_PCPUS_ONLY}),
    fix=True,
)
COMBINATIONS_COPIED = Rule(
    38,
    Confidence.DERIVED,
    "distribution uses the NUMA nodes that it chose, even if there are 4, 6 to 8 or more of them",
    frozenset({DISTRIBUTE_ACROSS_NUMA}),
    fix=True,
)
CORES_IN_TURN = Rule(
    38,
    Confidence.REVIEW,
    "single CPUs are taken from the cores of a socket in turn",
    frozenset({DISTRIBUTE_ACROSS_CORES}),
    fix=True,
)
POD_CPUS_KEPT = Rule(
    38,
    Confidence.FIGURES,
    "a pod whose pod-level resources are allocated as a whole keeps its CPUs when the kubelet restarts",
    frozenset({POD_LEVEL_MANAGERS}),
    fix=True,
)
POD_MEMORY_KEPT = Rule(
    38,
    Confidence.REVIEW,
    "a pod whose pod-level resources are allocated as a whole keeps its memory when the kubelet restarts",
    frozenset({POD_LEVEL_MANAGERS}),
    fix=True,
    perhaps_since=37,
)
SCORED_HINTS = Rule(
    38,
    Confidence.CODE,
    "hints of equal width are ordered by how much of their NUMA nodes is allocated; proposed, not merged",
    frozenset({ALLOCATION_STRATEGY}),
)
RULES = (
    STATE_FILES_REPEATED,
    EMPTY_POD_RESOURCES_ABSENT,
    DISTRIBUTION_KNOWS_SOCKETS,
    DISTRIBUTION_KEEPS_WIDTH,
    DISTRIBUTION_ENDS,
    COMBINATIONS_COPIED,
    CORES_IN_TURN,
    POD_CPUS_KEPT,
    POD_MEMORY_KEPT,
    SCORED_HINTS,
)
"""All rules newer than the reference release."""

_SURE = frozenset({Confidence.CODE, Confidence.FIGURES})
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[.+-].*)?")
# OpenShift marks its builds with a commit (v1.35.6+1a2b3c4), OKD also with a count before it.
_OPENSHIFT = re.compile(r"v?1\.(\d+)\.(\d+)(?:-\d+)?\+[0-9a-f]{7,40}(?:-dirty)?")
_OPENSHIFT_HOSTING_NODES_SINCE = (35, 6)


@dataclass(frozen=True, slots=True)
class Release:
    """Differences of one minor release of the kubelet."""

    minor: int
    unread: str = ""
    """The version, such as 1.40 or 1.37.2, where it is taken for a similar one; mostly empty."""
    openshift: bool = False
    """Whether it is OpenShift's build, which validates state files by rules of its own."""
    backports_hosting_nodes: bool = False
    """Whether it carries the device hints of 1.36."""
    build: str = field(default="", compare=False)
    """The version of a vendor's build, so that it can be read again; mostly empty."""

    def __str__(self) -> str:
        return f"1.{self.minor}"

    @property
    def version(self) -> str:
        """A version that is read as this release again."""
        return self.build or f"v{self.unread or self}"

    @property
    def cpu_options(self) -> dict[str, Maturity]:
        """The CPU Manager's policy options."""
        return self._maturities(_CPU_OPTION_HISTORY)

    @property
    def topology_options(self) -> dict[str, Maturity]:
        """The Topology Manager's policy options."""
        return self._maturities(_TOPOLOGY_OPTION_HISTORY)

    def _maturities(self, histories: Mapping[str, _History]) -> dict[str, Maturity]:
        known = {}
        for option, history in histories.items():
            reached = [maturity for since, maturity in history if since <= self.minor]
            if reached:
                known[option] = reached[-1]
        return known

    def follows(self, rule: Rule) -> bool:
        """Return whether a rule newer than the reference release is in force."""
        return self.minor >= rule.since

    def doubts(self, switches: Collection[str]) -> tuple[str, ...]:
        """Return what is not certain about decisions of this release.

        ``switches``: the policy options and feature gates that are on.

        >>> release("1.36.2").doubts(()), release("1.40.1").doubts(())
        ((), ('1.40 is predicted with the rules of 1.38, the newest known',))
        """
        return tuple(self._doubts(frozenset(switches)))

    def _doubts(self, switches: frozenset[str]) -> Iterator[str]:
        if self._is_patched:
            yield f"{self.unread} is predicted with the rules of {self}.0, because its changes are unknown"
        elif self.unread:
            yield f"{self.unread} is predicted with the rules of {self}, the newest known"
        elif self.minor > RELEASED:
            yield f"{self} is not released yet: it is predicted with the rules of its second alpha"
        for rule in RULES:
            if not rule.reached_by or not rule.reached_by <= switches:
                continue
            if self.follows(rule) and rule.confidence not in _SURE:
                yield f"{self}: {rule.what} ({rule.confidence}, not run)"
            elif (rule.fix and self._is_patched) or 0 < rule.perhaps_since <= self.minor < rule.since:
                yield f"{self.unread or self} may already have a rule of 1.{rule.since}: {rule.what}"

    @property
    def _is_patched(self) -> bool:
        return bool(self.unread) and self.minor < NEWEST

    def gate(self, name: str, configured: Mapping[str, bool]) -> bool:
        """Return whether a feature gate is on; one that the release does not know has no effect."""
        if not self._knows(name):
            return False
        default = self._default(name)
        return True if default is None else configured.get(name, default)

    def _knows(self, gate: str) -> bool:
        return _GATES[gate][0][0] <= self.minor

    def locked_gates(self, configured: Mapping[str, bool]) -> list[str]:
        """Return the gates that are switched off and cannot be."""
        if self.minor < _LOCKED_GATES_CHECKED_SINCE:
            return []
        return [
            name
            for name, on in sorted(configured.items())
            if not on and name in _GATES and self._knows(name) and self._default(name) is None
        ]

    def _default(self, gate: str) -> bool | None:
        """Return whether a gate that the release knows is on by default; None: locked on."""
        return [default for since, default in _GATES[gate] if since <= self.minor][-1]

    def missing_gates(self, configured: Mapping[str, bool]) -> list[tuple[str, list[str]]]:
        """Return the gates that are on, each with the gates that it needs and that are off."""
        if self.minor < _NEEDED_GATES_CHECKED_SINCE:
            return []
        missing = [
            (name, [other for other in needed if self._knows(other) and not self.gate(other, configured)])
            for name, needed in sorted(_NEEDED_GATES.items())
            if self.gate(name, configured)
        ]
        return [(name, off) for name, off in missing if off]

    def pod_level(self, configured: Mapping[str, bool]) -> PodLevel:
        """Return how pod-level resources are treated with the gates as configured."""
        known = self.gate(POD_LEVEL_RESOURCES, configured)
        if known and self.gate(POD_LEVEL_MANAGERS, configured):
            return PodLevel.MANAGED
        if self.minor >= _POD_LEVEL_LEFT_ALONE_ANYWAY_SINCE and not known:
            return PodLevel.LEFT_ALONE_UNSEEN
        if not known:
            return PodLevel.DROPPED
        return PodLevel.LEFT_ALONE if self.minor >= _POD_LEVEL_LEFT_ALONE_SINCE else PodLevel.QOS_ONLY

    def skips_claimed_devices(self, configured: Mapping[str, bool]) -> bool:
        """Return whether the Device Manager leaves out devices that dynamic resource allocation serves."""
        on = self.gate(DRA_EXTENDED_RESOURCE, configured)
        return on and self.minor >= _CLAIMED_DEVICES_SKIPPED_SINCE

    def reads_empty_pod_resources(self, configured: Mapping[str, bool]) -> bool:
        """Return whether a ``spec.resources`` that names nothing counts, and makes a pod BestEffort."""
        return not (self.follows(EMPTY_POD_RESOURCES_ABSENT) and self.gate(POD_LEVEL_QOS, configured))

    @property
    def device_hints_over_hosting_nodes(self) -> bool:
        """Return whether device hints are made only over NUMA nodes that host a device of the resource."""
        return self.minor >= _HOSTING_NODES_SINCE or self.backports_hosting_nodes

    @property
    def merges_books(self) -> bool:
        """Return whether cores of s390x with one id in different books or drawers count as one core."""
        return self.minor < _BOOKS_SINCE

    @property
    def checks_memory_groups(self) -> bool:
        """Return whether the Memory Manager checks groups again before taking several nodes' memory."""
        return self.minor >= _MEMORY_GROUPS_CHECKED_SINCE

    @property
    def rounds_up_uncore_cache_rest(self) -> bool:
        """Return whether the rest of a request that must come from one uncore cache may be part of a core."""
        return self.minor >= _UNCORE_CACHE_REST_ROUNDED_UP_SINCE

    @property
    def tells_smt_cause(self) -> bool:
        """Return whether a full-pcpus-only rejection names missing cores even if none is left at all."""
        return self.minor >= _SMT_TEXT_BY_CAUSE_SINCE

    @property
    def knows_best_effort_memory(self) -> bool:
        """Return whether the Memory Manager knows the policy BestEffort (of another platform)."""
        return self.minor >= _BEST_EFFORT_MEMORY_KNOWN_SINCE

    @property
    def writes_topology_texts_in_lower_case(self) -> bool:
        """Return whether the Topology Manager's text about options with a closed gate is in lower case."""
        return self.minor >= _TOPOLOGY_TEXTS_LOWER_CASE_SINCE


def unreleased_options(options: Iterable[str]) -> tuple[str, ...]:
    """Return sentences about the options that no kubelet release knows.

    >>> unreleased_options(["numa-score-weights", "full-pcpus-only"])
    ('no kubelet release has option numa-score-weights, so a released kubelet would not start with it',)
    """
    return tuple(
        f"no kubelet release has option {option}, so a released kubelet would not start with it"
        for option in sorted(UNRELEASED_OPTIONS.intersection(options))
    )


def release(version: str) -> Release:
    """Return the release of a kubelet version such as ``v1.36.2`` or ``1.34``.

    Raises:
        UnsupportedVersion: the text is not a version, or the release is older than 1.31.
    """
    match = _VERSION.fullmatch(version.strip())
    if match is None or match[1] != "1":
        raise UnsupportedVersion(f"{version!r} is not a kubelet version such as v1.{REFERENCE}.0")
    minor = min(int(match[2]), NEWEST)
    if minor < OLDEST:
        raise UnsupportedVersion(f"kubelet {version} is older than 1.{OLDEST}, the oldest release modelled")
    unread = _unread(int(match[2]), int(match[3] or 0))
    vendor = _OPENSHIFT.fullmatch(version.strip())
    if vendor is None:
        return Release(minor, unread)
    patch = (int(vendor[1]), int(vendor[2]))
    return Release(
        minor,
        unread,
        openshift=True,
        backports_hosting_nodes=_OPENSHIFT_HOSTING_NODES_SINCE <= patch < (_HOSTING_NODES_SINCE, 0),
        build=version.strip(),
    )


def _unread(minor: int, patch: int) -> str:
    """Return the version if no release of it was read: a newer one, or a patch of one newer than 1.36."""
    if minor > NEWEST:
        return f"1.{minor}"
    return f"1.{minor}.{patch}" if REFERENCE < minor <= RELEASED and patch else ""
