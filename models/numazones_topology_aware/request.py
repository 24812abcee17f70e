"""Request that the policy derives from a container: kind of CPUs, exclusive and shared amounts, memory."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from numazones.apimachinery import duration
from numazones.apimachinery.duration import InvalidDuration
from numazones.errors import UnmodelledFeature
from numazones.kubelet import go
from numazones.kubelet.demand import QOSClass
from numazones_topology_aware import glob, go_yaml
from numazones_topology_aware.config import Configuration
from numazones_topology_aware.cpu_priority import Priority
from numazones_topology_aware.go_yaml import InvalidDocument
from numazones_topology_aware.memory_types import ALL, DRAM, HBM, PMEM, PRESERVE
from numazones_topology_aware.policy import Policy
from numazones_topology_aware.rejection import Rejection
from numazones_topology_aware.requirements import Requirements
from numazones_topology_aware.sandbox import DOMAIN, Sandbox, Scope

_SYSTEM_NAMESPACE = "kube-system"
_MEMORY_TYPES = {"dram": DRAM, "pmem": PMEM, "hbm": HBM, "mixed": ALL}
_MAX_COLD_START = timedelta(hours=1)
_NONE = timedelta()
_ONE_CPU = 1000
_SEVERAL = 2


class CPUType(StrEnum):
    """Kind of CPUs that a container runs on."""

    NORMAL = "normal"
    RESERVED = "reserved"
    PRESERVE = "preserve"
    """Whatever it had: the policy does not pin it."""


@dataclass(frozen=True, slots=True)
class CPURequest:
    """The CPU part of a request."""

    kind: CPUType
    full: int
    """Exclusive CPUs."""
    fraction: int
    """Milli-CPU of shared (or reserved) CPUs."""
    limit: int | None
    """Milli-CPU; None: unlimited."""
    isolate: bool = False
    """Prefers kernel-isolated CPUs."""
    require_isolated: bool = False
    """Fails without them."""
    priority: Priority = Priority.NONE


@dataclass(frozen=True, slots=True)
class Request:
    """A container's request."""

    cpu: CPURequest
    memory_request: int
    """Bytes; 0: none."""
    memory_limit: int
    memory_types: int
    """Mask of wanted types, or PRESERVE."""
    cold_start: timedelta
    """How long the container is to get PMEM only."""
    by_hints: bool
    """Pick CPUs and memory near the container's devices."""

    @property
    def memory(self) -> int:
        """Bytes that are accounted."""
        return self.memory_request or self.memory_limit


def build(policy: Policy, sandbox: Sandbox, container: str, requirements: Requirements) -> Request:
    """Read a container's request.

    Raises:
        Rejection: an annotation is broken, or a CPU class or interrupt affinity is not for this container.
        UnmodelledFeature: whether an interrupt may be claimed depends on the machine's interrupts.
    """
    cpu = _cpu_request(policy.config, sandbox, container, requirements)
    _check_cpu_class(policy.config, sandbox, container, cpu)
    _check_interrupts(policy.config, sandbox, container, cpu)
    types, cold_start = _memory_types(policy, sandbox, container)
    return Request(
        cpu=cpu,
        memory_request=requirements.memory_request or 0,
        memory_limit=requirements.memory_limit or 0,
        memory_types=types,
        cold_start=cold_start,
        by_hints=sandbox.flag("pick-resources-by-hints", container) or False,
    )


def _cpu_request(
    config: Configuration, sandbox: Sandbox, container: str, requirements: Requirements
) -> CPURequest:
    amount = requirements.cpu_request or 0
    limit = _cpu_limit(sandbox.qos, requirements)
    prefers_reserved = sandbox.flag("prefer-reserved-cpus", container)
    default = config.default_priority
    if sandbox.preference("cpu.preserve", container) == "true":
        return CPURequest(CPUType.PRESERVE, 0, amount, limit, priority=default)
    if prefers_reserved or (prefers_reserved is None and _reserved_namespace(config, sandbox.namespace)):
        return CPURequest(CPUType.RESERVED, 0, amount, limit, priority=default)
    if sandbox.qos is QOSClass.BEST_EFFORT:
        return CPURequest(CPUType.NORMAL, 0, 0, 0, priority=default)
    if sandbox.qos is QOSClass.BURSTABLE:
        return CPURequest(CPUType.NORMAL, 0, amount, limit, priority=default)
    return _guaranteed_request(config, sandbox, container, amount)


def _cpu_limit(qos: QOSClass, requirements: Requirements) -> int | None:
    if qos is QOSClass.BEST_EFFORT:
        return 0
    if requirements.cpu_limit is not None:
        return requirements.cpu_limit
    return None if qos is QOSClass.BURSTABLE else 0


def _guaranteed_request(config: Configuration, sandbox: Sandbox, container: str, amount: int) -> CPURequest:
    """Return how a Guaranteed container's amount is split into exclusive and shared CPUs."""
    full, fraction = divmod(amount, _ONE_CPU)
    annotated_isolation, required = _isolation(sandbox, container)
    isolate = bool(config.prefer_isolated) if annotated_isolation is None else annotated_isolation
    annotated_sharing = sandbox.flag("prefer-shared-cpus", container)
    share = bool(config.prefer_shared) if annotated_sharing is None else annotated_sharing
    if full >= _SEVERAL:
        if fraction and annotated_sharing is not False:
            share = True
        if not fraction and annotated_isolation is None:
            isolate = False  # several whole CPUs are isolated on demand only
    if not full or share:
        full, fraction, isolate = 0, amount, False
    priority = _priority(config, sandbox, container)
    return CPURequest(CPUType.NORMAL, full, fraction, amount, isolate, required, priority)


def _isolation(sandbox: Sandbox, container: str) -> tuple[bool | None, bool]:
    """Return the isolation preference in a container's annotations (None: none), and whether it is required.

    The more specific of ``require`` and ``prefer`` counts, ``require`` on a tie. A missing annotation
    passes for one of the widest scope, so that a bare ``prefer`` without a ``require`` loses against it.
    """
    require = sandbox.scoped(f"require-isolated-cpus.{DOMAIN}", container)
    prefer = sandbox.scoped(f"prefer-isolated-cpus.{DOMAIN}", container)
    if require is None and prefer is None:
        return None, False
    scope = Scope.BARE if require is None else require[1]
    decisive = require if prefer is None or scope <= prefer[1] else prefer
    value = "" if decisive is None else decisive[0]
    required = require is not None and (prefer is None or require[1] <= prefer[1])
    try:
        return go.parse_bool(value), required
    except ValueError:
        return None, required


def _priority(config: Configuration, sandbox: Sandbox, container: str) -> Priority:
    wanted = sandbox.preference("prefer-cpu-priority", container)
    return Priority(wanted) if wanted in list(Priority) else config.default_priority


def _reserved_namespace(config: Configuration, namespace: str) -> bool:
    if namespace == _SYSTEM_NAMESPACE:
        return True
    for pattern in config.reserved_namespaces:
        if not glob.valid(pattern):
            return False  # a broken pattern ends the search
        if glob.matches(pattern, namespace):
            return True
    return False


def _memory_types(policy: Policy, sandbox: Sandbox, container: str) -> tuple[int, timedelta]:
    """Wanted types and the length of the cold start."""
    if sandbox.preference("memory.preserve", container) == "true":
        return PRESERVE, _NONE
    wanted = _annotated_types(sandbox.preference("memory-type", container)) or ALL & ~HBM
    types = wanted & policy.memory.present
    if policy.cold_start_off:
        return (types | DRAM if types == PMEM else types), _NONE
    cold_start = _cold_start(sandbox.preference("cold-start", container))
    return (types & ~DRAM if cold_start else types), cold_start


def _annotated_types(annotation: str | None) -> int:
    """Mask of types; 0 where the annotation is absent or not readable."""
    types = 0
    for word in (annotation or "").split(","):
        kind = _MEMORY_TYPES.get(word.lower())
        if kind is None:
            return 0
        types |= kind
    return types


def _cold_start(annotation: str | None) -> timedelta:
    if annotation is None:
        return _NONE
    try:
        read = go_yaml.fields(go_yaml.load(annotation), "duration")
        length = _duration(read["duration"]) if "duration" in read else _NONE
    except (InvalidDocument, InvalidDuration) as error:
        raise Rejection(f"the cold-start annotation can't be read: {error}", code="cold-start") from error
    if length > _MAX_COLD_START:
        raise Rejection(
            f"a cold start of {annotation!r:.80} is out of range; it may last up to an hour",
            code="cold-start",
        )
    return length


def _duration(value: object) -> timedelta:
    if not isinstance(value, str):
        raise InvalidDocument(f"{go_yaml.short_text(value)} is not a duration such as 60s")
    return duration.parse(value.removeprefix("+"))


def _check_cpu_class(config: Configuration, sandbox: Sandbox, container: str, cpu: CPURequest) -> None:
    if not config.cpu_classes:
        return
    found = sandbox.scoped(f"cpu-class.{DOMAIN}", container)
    name, scope = found or (config.default_cpu_class, Scope.BARE)
    own = scope is Scope.CONTAINER
    if sandbox.qos is not QOSClass.GUARANTEED:
        if own:
            raise Rejection(f"CPU class {name!r} is for Guaranteed pods only", code="cpu-class")
        return
    if name and name not in config.cpu_classes:
        raise Rejection(f"unknown CPU class {name!r}", code="cpu-class")
    if name and own and not cpu.full:
        raise Rejection(f"CPU class {name!r} has no effect without exclusive CPUs", code="cpu-class")


def _check_interrupts(config: Configuration, sandbox: Sandbox, container: str, cpu: CPURequest) -> None:
    found = sandbox.scoped(f"irq-affinity.{DOMAIN}", container)
    if found is None:
        return
    annotation, scope = found
    try:
        read = go_yaml.fields(go_yaml.load(annotation), "claim", "mask", "mode")
        patterns = (*go_yaml.texts(read.get("claim")), *go_yaml.texts(read.get("mask")))
        mode = go_yaml.text(read.get("mode"))
    except InvalidDocument as error:
        raise Rejection(f"the irq-affinity annotation can't be read: {error}", code="irq-affinity") from error
    if mode not in {"", "mask-first", "claim-first"}:
        raise Rejection(f"irq-affinity has no mode {mode!r}", code="irq-affinity")
    if patterns and config.interrupts not in {(), ("*",)}:
        raise UnmodelledFeature(
            f"container {container} claims or masks interrupts, but the configuration restricts "
            "controllableInterrupts, and it is not known which interrupts the machine has"
        )
    if scope is Scope.CONTAINER and sandbox.qos is not QOSClass.GUARANTEED:
        raise Rejection("irq-affinity is for Guaranteed pods only", code="irq-affinity")
    if scope is Scope.CONTAINER and not cpu.full:
        raise Rejection("irq-affinity has no effect without exclusive CPUs", code="irq-affinity")
