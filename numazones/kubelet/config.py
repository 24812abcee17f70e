"""The part of a kubelet's configuration that decides admissions, and what the kubelet rejects in it.

Field names and defaults are those of KubeletConfiguration (kubelet.config.k8s.io/v1beta1), the
checks those of ``pkg/kubelet/apis/config/validation``. What depends on the machine as well is
checked by each manager when it is set up (see ``startup``).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from numazones.apimachinery import quantity
from numazones.apimachinery.quantity import Quantity
from numazones.apimachinery.resources import MEMORY, is_memory
from numazones.errors import NumazonesError
from numazones.kubelet import cures, go
from numazones.kubelet.demand import PodLevel
from numazones.kubelet.kept_memory import FIELDS, HARD_EVICTION, KeptMemory
from numazones.kubelet.versions import (
    CPU_OPTIONS,
    GATES,
    REFERENCE,
    TOPOLOGY_OPTIONS,
    Maturity,
    Release,
    release,
    unreleased_options,
)

POLICY_NONE = "none"
BEST_EFFORT = "best-effort"
RESTRICTED = "restricted"
SINGLE_NUMA_NODE = "single-numa-node"
SCOPE_CONTAINER = "container"
SCOPE_POD = "pod"

_DEFAULT_EVICTION = "100Mi"
_OFF = frozenset({"false", "False", "FALSE", "f", "F", "0", "none", ""})


class InvalidConfiguration(NumazonesError):
    """A kubelet would not start with this configuration; the message is the kubelet's own.

    >>> KubeletConfiguration.from_api({"cpuManagerPolicy": 1})
    Traceback (most recent call last):
    ...
    numazones.kubelet.config.InvalidConfiguration: json: cannot unmarshal number into Go struct field
    KubeletConfiguration.cpuManagerPolicy of type string
    """

    def __init__(self, message: str, *, cure: str = cures.CORRECT_CONFIGURATION) -> None:
        """Keep what helps beside the kubelet's message."""
        super().__init__(message)
        self.cure = cure


@dataclass(frozen=True, slots=True)
class MemoryReservation:
    """One entry of ``reservedMemory``."""

    numa: int
    limits: tuple[tuple[str, Quantity], ...]


@dataclass(frozen=True, slots=True)
class KubeletConfiguration:
    """A kubelet's configuration, defaults applied; values are as written, valid or not.

    >>> KubeletConfiguration.from_api({"topologyManagerPolicy": "restricted"}).topology_manager_scope
    'container'
    """

    release: Release = field(default_factory=lambda: release(f"1.{REFERENCE}"))
    cpu_manager_policy: str = POLICY_NONE
    cpu_manager_policy_options: tuple[tuple[str, str], ...] = ()
    reserved_system_cpus: str = ""
    reserved_cpu: Quantity = quantity.ZERO
    """kubeReserved + systemReserved; counts while ``reserved_system_cpus`` is empty."""
    memory_manager_policy: str = "None"
    reserved_memory: tuple[MemoryReservation, ...] = ()
    kept_memory: KeptMemory | None = None
    """kubeReserved + systemReserved + hard eviction threshold; None: not known, taken to fit."""
    topology_manager_policy: str = POLICY_NONE
    topology_manager_scope: str = SCOPE_CONTAINER
    topology_manager_policy_options: tuple[tuple[str, str], ...] = ()
    feature_gates: tuple[tuple[str, bool], ...] = ()
    workload_partitioning: bool = False
    """Whether the node is under OpenShift's workload partitioning. No field of KubeletConfiguration: the
    kubelet looks for a file when it starts, and then keeps reserved CPUs out of the shared set."""

    @classmethod
    def from_api(
        cls, configuration: Mapping[str, Any], *, version: str = f"1.{REFERENCE}"
    ) -> "KubeletConfiguration":
        """Read a KubeletConfiguration.

        Args:
            configuration: of a file, or ``kubeletconfig`` of /configz; unknown fields are passed over.
            version: the kubelet's.

        Raises:
            InvalidConfiguration: a field has the wrong shape.
            InvalidQuantity: a reservation is not a quantity.
            UnsupportedVersion: the version is not modelled.

        >>> KubeletConfiguration.from_api({"cpuManagerPolicy": "static"}).cpu_manager_policy
        'static'
        """
        if not isinstance(configuration, Mapping):
            raise InvalidConfiguration(
                f"the kubelet configuration must be a mapping, not {type(configuration).__name__}"
            )
        return cls(
            release=release(version),
            cpu_manager_policy=_text(configuration, "cpuManagerPolicy", POLICY_NONE),
            cpu_manager_policy_options=_options(configuration, "cpuManagerPolicyOptions"),
            reserved_system_cpus=_text(configuration, "reservedSystemCPUs", ""),
            reserved_cpu=_reserved_amount(configuration, "cpu"),
            memory_manager_policy=_text(configuration, "memoryManagerPolicy", "None"),
            reserved_memory=reservations(_list_field(configuration, "reservedMemory")),
            kept_memory=_kept_memory(configuration),
            topology_manager_policy=_text(configuration, "topologyManagerPolicy", POLICY_NONE),
            topology_manager_scope=_text(configuration, "topologyManagerScope", SCOPE_CONTAINER),
            topology_manager_policy_options=_options(configuration, "topologyManagerPolicyOptions"),
            feature_gates=_gates(configuration),
        )

    @property
    def accepted(self) -> "KubeletConfiguration":
        """The same of a kubelet that runs: it knows its memory to the byte, so a share of it has added up."""
        if self.kept_memory is None or not self.kept_memory.share:
            return self
        return replace(self, kept_memory=None)

    def gate(self, name: str) -> bool:
        """Return whether a feature gate is on, by configuration or by default.

        Args:
            name: the gate's.

        >>> body = {"featureGates": {"PodLevelResources": False}}
        >>> KubeletConfiguration.from_api(body).gate("PodLevelResources")
        False
        """
        return self.release.gate(name, dict(self.feature_gates))

    @property
    def pod_level(self) -> PodLevel:
        """Return how the kubelet treats pod-level resources."""
        return self.release.pod_level(dict(self.feature_gates))

    @property
    def reads_empty_pod_resources(self) -> bool:
        """Whether a ``spec.resources`` that names nothing makes a pod BestEffort."""
        return self.release.reads_empty_pod_resources(dict(self.feature_gates))

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is not certain about decisions of this release with these options and gates."""
        options = (*self.cpu_manager_policy_options, *self.topology_manager_policy_options)
        gates = [name for name in GATES if self.gate(name)]
        return self.release.doubts([*gates, *(name for name, value in options if value not in _OFF)])

    @property
    def unknown_options(self) -> tuple[str, ...]:
        """Return the policy options that the release does not know, and does not start with."""
        cpus, topology = self.cpu_manager_policy_options, self.topology_manager_policy_options
        counted = (
            *(() if self.cpu_manager_policy == POLICY_NONE else cpus),
            *(() if self.topology_manager_policy == POLICY_NONE else topology),
        )
        known = self.release.cpu_options | self.release.topology_options
        return tuple(option for option, _ in counted if option not in known)

    @property
    def unreleased_options(self) -> tuple[str, ...]:
        """Return sentences about options that no release knows."""
        return unreleased_options(option for option, _ in self.topology_manager_policy_options)

    @property
    def skips_claimed_devices(self) -> bool:
        """Return whether devices served by dynamic resource allocation are not assigned again."""
        return self.release.skips_claimed_devices(dict(self.feature_gates))

    def check(self) -> None:
        """Reject what the kubelet rejects before it looks at the machine.

        Raises:
            InvalidConfiguration: with the kubelet's message; several are listed in brackets.

        >>> KubeletConfiguration.from_api({"topologyManagerScope": "node"}).check()
        Traceback (most recent call last):
        ...
        numazones.kubelet.config.InvalidConfiguration: ...
        """
        for problems in (_locked_gates(self), _gate_problems(self), dict.fromkeys(_problems(self))):
            listed = list(problems)
            if len(listed) == 1:
                raise InvalidConfiguration(listed[0])
            if listed:
                raise InvalidConfiguration(f"[{', '.join(listed)}]")

    def check_option_gates(self) -> None:
        """Reject policy options where the gate that allows any of them is off.

        Raises:
            InvalidConfiguration: with the kubelet's message.

        >>> gates = {"featureGates": {"CPUManagerPolicyOptions": False}}
        >>> options = {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}
        >>> KubeletConfiguration.from_api({**gates, **options}, version="1.32").check_option_gates()
        Traceback (most recent call last):
        ...
        numazones.kubelet.config.InvalidConfiguration: CPU Manager policy options ... enabled
        """
        if self.cpu_manager_policy_options and not self.gate(CPU_OPTIONS):
            raise InvalidConfiguration(
                f"CPU Manager policy options {go.format_map(self.cpu_manager_policy_options)} "
                f'require feature gates "CPUManager", "{CPU_OPTIONS}" enabled'
            )
        if self.topology_manager_policy_options and not self.gate(TOPOLOGY_OPTIONS):
            raise InvalidConfiguration(
                f"topology manager policy options {go.format_map(self.topology_manager_policy_options)} "
                f'require feature gates "{TOPOLOGY_OPTIONS}" enabled'
            )


def option_unavailable(maturity: Maturity | None, *, alpha: bool, beta: bool) -> Maturity | None:
    """Return the maturity whose gate is off, so that an option is hidden; None if the option may be used."""
    if maturity is Maturity.ALPHA and not alpha:
        return maturity
    if maturity is Maturity.BETA and not beta:
        return maturity
    return None


def reservations(entries: Iterable[Any]) -> tuple[MemoryReservation, ...]:
    """Read ``reservedMemory``.

    Raises:
        InvalidConfiguration: an entry has the wrong shape.
        InvalidQuantity: a limit is not a quantity.
    """
    read = []
    for entry in entries:
        numa = entry.get("numaNode") or 0 if isinstance(entry, Mapping) else None
        if not isinstance(numa, int):
            raise InvalidConfiguration(
                f"reservedMemory of the kubelet configuration: {entry!r} names no NUMA node"
            )
        limits = _map_field(entry, "limits")
        amounts = tuple(sorted((str(name), quantity.parse(amount)) for name, amount in limits.items()))
        read.append(MemoryReservation(numa, amounts))
    return tuple(read)


def reserved_in_all(entries: Iterable[MemoryReservation]) -> Quantity:
    """Return the sum of ``reservedMemory``, which a kubelet that runs has found to be right."""
    amounts = [amount for entry in entries for kind, amount in entry.limits if kind == MEMORY]
    return sum(amounts, start=quantity.ZERO)


def _map_field(configuration: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = configuration.get(name) or {}
    if not isinstance(value, Mapping):
        raise InvalidConfiguration(
            f"{name} of the kubelet configuration must be a mapping, not {type(value).__name__}"
        )
    return value


def _list_field(configuration: Mapping[str, Any], name: str) -> list[Any]:
    value = configuration.get(name) or []
    if not isinstance(value, list):
        raise InvalidConfiguration(
            f"{name} of the kubelet configuration must be a list, not {type(value).__name__}"
        )
    return value


_GO_TYPES = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}


def _of_type(name: str, value: Any, wanted: type) -> Any:
    """Return a field's value, which the kubelet's own decoder has to take; YAML that looks alike often isn't.

    Raises:
        InvalidConfiguration: with the decoder's words.
    """
    if type(value) is wanted:
        return value
    cure = cures.in_quotes(name) if wanted is str else cures.CORRECT_CONFIGURATION
    raise InvalidConfiguration(
        f"json: cannot unmarshal {_GO_TYPES.get(type(value), type(value).__name__)} into Go struct field "
        f"KubeletConfiguration.{name} of type {_GO_TYPES[wanted]}",
        cure=cure,
    )


def _text(configuration: Mapping[str, Any], name: str, default: str) -> str:
    value = configuration.get(name)
    return default if value is None else str(_of_type(name, value, str)) or default


def _texts(configuration: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return a map of texts; what is null is empty text in the kubelet."""
    return {
        str(key): "" if value is None else str(_of_type(name, value, str))
        for key, value in _map_field(configuration, name).items()
    }


def _options(configuration: Mapping[str, Any], name: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(_texts(configuration, name).items()))


def _gates(configuration: Mapping[str, Any]) -> tuple[tuple[str, bool], ...]:
    name = "featureGates"
    gates = _map_field(configuration, name)
    return tuple(
        sorted((str(gate), on is not None and bool(_of_type(name, on, bool))) for gate, on in gates.items())
    )


def _reserved_amount(configuration: Mapping[str, Any], resource: str) -> Quantity:
    """Return the sum of kubeReserved and systemReserved for a resource."""
    total = quantity.ZERO
    for name in ("systemReserved", "kubeReserved"):
        amounts = _texts(configuration, name)
        if resource in amounts:
            total += quantity.parse(amounts[resource])
    return total


def _kept_memory(configuration: Mapping[str, Any]) -> KeptMemory:
    written = {
        f"{name}.{key}": value
        for name in ("systemReserved", "kubeReserved", "evictionHard")
        for key, value in _texts(configuration, name).items()
    }
    if configuration.get("evictionHard") is None or configuration.get("mergeDefaultEvictionSettings"):
        written.setdefault(HARD_EVICTION, _DEFAULT_EVICTION)
    return KeptMemory.read({name: value for name, value in written.items() if name in FIELDS})


def _locked_gates(config: KubeletConfiguration) -> Iterator[str]:
    """Yield what the kubelet says to a gate that cannot be switched off; it stops at the first."""
    for name in config.release.locked_gates(dict(config.feature_gates))[:1]:
        yield f"cannot set feature gate {name} to false, feature is locked to true"


def _gate_problems(config: KubeletConfiguration) -> Iterator[str]:
    for name, off in config.release.missing_gates(dict(config.feature_gates)):
        yield f"{name} is enabled, but depends on features that are disabled: [{' '.join(off)}]"


def _problems(config: KubeletConfiguration) -> Iterator[str]:
    policies = (POLICY_NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE)
    if config.topology_manager_policy not in policies:
        yield (
            "invalid configuration: topologyManagerPolicy (--topology-manager-policy) "
            f"{go.quote(config.topology_manager_policy)} must be one of: "
            f"[{' '.join(map(go.quote, policies))}]"
        )
    if config.topology_manager_scope not in {SCOPE_CONTAINER, SCOPE_POD}:
        yield (
            "invalid configuration: topologyManagerScope (--topology-manager-scope) "
            f'{go.quote(config.topology_manager_scope)} must be one of: "container", or "pod"'
        )
    try:
        go.parse_cpu_list(config.reserved_system_cpus)
    except ValueError as error:
        yield (
            "invalid configuration: unable to parse reservedSystemCPUs (--reserved-cpus) "
            f"{config.reserved_system_cpus}, error: {error}"
        )
    yield from _reservation_problems(config.reserved_memory)


def _reservation_problems(entries: tuple[MemoryReservation, ...]) -> Iterator[str]:
    seen: set[tuple[int, str]] = set()
    for entry in entries:
        for name, amount in entry.limits:
            if not is_memory(name):
                yield (
                    f"invalid configuration: the limit type {go.quote(name)} for NUMA node {entry.numa} "
                    "is not supported, only [memory hugepages-<HugePageSize>] is accepted"
                )
            if not amount:
                yield (
                    f"invalid configuration: reserved memory may not be zero for NUMA node {entry.numa} "
                    f"and resource {go.quote(name)}"
                )
            if (entry.numa, name) in seen:
                yield (
                    "invalid configuration: the reserved memory has a duplicate value "
                    f"for NUMA node {entry.numa} and resource {go.quote(name)}"
                )
            seen.add((entry.numa, name))
