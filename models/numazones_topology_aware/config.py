"""The policy's configuration: the ``TopologyAwarePolicy`` resource (config.nri/v1alpha1) or a file.

What is absent is absent for the policy too: the API server fills in the resource's defaults, a file
stands as it is. Exactly one resource is used, whole: ``node.NAME`` before ``group.GROUP`` before
``default``; a node of a group whose resource is missing does *not* fall back to ``default``.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numazones.errors import UnmodelledFeature
from numazones.kubelet.demand import QOSClass
from numazones_topology_aware import glob
from numazones_topology_aware.cpu_priority import Priority
from numazones_topology_aware.rejection import StartFailed
from numazones_topology_aware.scheduling_class import SchedulingClass

# The CustomResourceDefinition's defaults, as the API server fills them in.
DEFAULTS: Mapping[str, Any] = {
    "pinCPU": True,
    "pinMemory": True,
    "preferIsolatedCPUs": True,
    "defaultCPUPriority": "none",
    "unlimitedBurstable": "package",
    "controllableInterrupts": ["*"],
}
_GROUP_LABELS = ("config.nri/group", "group.config.nri", "resource-policy.nri.io/group")
_SPEED_SELECT = ("pctPriority", "sstClosID")


@dataclass(frozen=True, slots=True)
class Configuration:
    """Configuration of the policy; values are as written."""

    pin_cpu: bool = False
    pin_memory: bool = False
    prefer_isolated: bool | None = None
    """None: not configured, which counts as no."""
    prefer_shared: bool | None = None
    colocate_pods: bool = False
    colocate_namespaces: bool = False
    reserved_namespaces: tuple[str, ...] = ()
    """Shell patterns; ``kube-system`` is always one of them."""
    available_cpu: str | None = None
    """``cpuset:LIST``, ``exclude-cpuset:LIST`` or a quantity (which the plugin rejects here)."""
    reserved_cpu: str | None = None
    default_priority: Priority = Priority.NONE
    unlimited_burstable: str = ""
    scheduling_classes: tuple[SchedulingClass, ...] = ()
    namespace_classes: Mapping[str, str] = field(default_factory=dict)
    qos_classes: Mapping[str, str] = field(default_factory=dict)
    """QoS class in lower case → scheduling class."""
    cpu_classes: tuple[str, ...] = ()
    shared_cpu_class: str = ""
    default_cpu_class: str = ""
    """For containers with exclusive CPUs that name none."""
    interrupts: tuple[str, ...] = ()
    """Patterns of the interrupts that containers may claim or mask."""
    pod_resources: bool = True
    """The plugin asks the kubelet for pods' devices (``agent.podResourceAPI``)."""

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], *, path: str = "spec") -> "Configuration":
        """Read the resource's spec, or the same keys from a file.

        Raises:
            StartFailed: a field has the wrong shape or an unknown value; code ``parse``.
            UnmodelledFeature: CPU classes that need Intel Speed Select.
        """
        if not isinstance(spec, Mapping):
            raise _invalid(path, f"{spec!r:.80} is not a mapping")
        read = _Reader(spec, path)
        configuration = cls(
            pin_cpu=read.flag("pinCPU") or False,
            pin_memory=read.flag("pinMemory") or False,
            prefer_isolated=read.flag("preferIsolatedCPUs"),
            prefer_shared=read.flag("preferSharedCPUs"),
            colocate_pods=read.flag("colocatePods") or False,
            colocate_namespaces=read.flag("colocateNamespaces") or False,
            reserved_namespaces=read.texts("reservedPoolNamespaces"),
            available_cpu=read.amounts("availableResources").get("cpu"),
            reserved_cpu=read.amounts("reservedResources").get("cpu"),
            default_priority=_priority(read.text("defaultCPUPriority")),
            unlimited_burstable=read.text("unlimitedBurstable"),
            scheduling_classes=tuple(
                SchedulingClass.from_api(item, path=where)
                for where, item in read.mappings("schedulingClasses")
            ),
            namespace_classes=read.amounts("namespaceSchedulingClasses"),
            qos_classes={qos.lower(): name for qos, name in read.amounts("podQoSSchedulingClasses").items()},
            cpu_classes=tuple(_cpu_class(item, where) for where, item in read.mappings("cpuClasses")),
            shared_cpu_class=read.text("sharedPoolCPUClass"),
            default_cpu_class=read.text("defaultExclusiveCPUClass"),
            interrupts=read.texts("controllableInterrupts"),
            pod_resources=_Reader(read.mapping("agent"), f"{path}.agent").flag("podResourceAPI") or False,
        )
        configuration.check(path, reserved_cpu_class=read.text("reservedPoolCPUClass"))
        return configuration

    def check(self, path: str, *, reserved_cpu_class: str = "") -> None:
        """Reject what the plugin's own validation rejects.

        Raises:
            StartFailed: with the field; code ``parse``.
        """
        known = {one.name for one in self.scheduling_classes}
        for qos, name in self.qos_classes.items():
            where = f"{path}.podQoSSchedulingClasses.{qos}"
            if qos not in {one.value.lower() for one in QOSClass}:
                raise _invalid(where, "unknown QoS class; use Guaranteed, Burstable or BestEffort")
            _check_known(name, known, where, "scheduling class")
        for namespace, name in self.namespace_classes.items():
            _check_known(name, known, f"{path}.namespaceSchedulingClasses.{namespace}", "scheduling class")
        if self.cpu_classes:
            self._check_cpu_classes(path, reserved_cpu_class)
        for index, pattern in enumerate(self.interrupts):
            if not glob.valid(pattern):
                raise _invalid(
                    f"{path}.controllableInterrupts[{index}]", f"{pattern!r} is not a shell pattern"
                )

    def _check_cpu_classes(self, path: str, reserved_cpu_class: str) -> None:
        known = set(self.cpu_classes)
        if len(known) != len(self.cpu_classes):
            raise _invalid(f"{path}.cpuClasses", "a name appears twice")
        _check_known(self.shared_cpu_class, known, f"{path}.sharedPoolCPUClass", "CPU class")
        for name, key in (
            (reserved_cpu_class, "reservedPoolCPUClass"),
            (self.default_cpu_class, "defaultExclusiveCPUClass"),
        ):
            if name:
                _check_known(name, known, f"{path}.{key}", "CPU class")

    @property
    def fingerprint(self) -> Hashable:
        """Equal for configurations that place alike; scheduling classes place nothing."""
        return (
            self.pin_cpu, self.pin_memory, self.prefer_isolated, self.prefer_shared, self.colocate_pods,
            self.colocate_namespaces, self.reserved_namespaces, self.available_cpu, self.reserved_cpu,
            self.default_priority, self.unlimited_burstable, self.cpu_classes, self.default_cpu_class,
            self.interrupts, self.pod_resources,
        )  # fmt: skip

    def scheduling_class(self, name: str) -> SchedulingClass | None:
        """Return the class of a name; the first if there are several."""
        return next((one for one in self.scheduling_classes if one.name == name), None)


def select(
    resources: Iterable[Mapping[str, Any]], *, node: str, labels: Mapping[str, str]
) -> Mapping[str, Any] | None:
    """Return the configuration resource that a node uses; None if there is none for it.

    Args:
        resources: all TopologyAwarePolicy resources in the plugin's namespace.
        node: the node's name.
        labels: the node's labels, of which one may name its group.
    """
    by_name = {(resource.get("metadata") or {}).get("name"): resource for resource in resources}
    group = next((labels[label] for label in _GROUP_LABELS if labels.get(label)), None)
    fallback = "default" if group is None else f"group.{group}"
    return by_name.get(f"node.{node}", by_name.get(fallback))


def _priority(text: str) -> Priority:
    lowered = text.lower()
    return Priority(lowered) if lowered in list(Priority) else Priority.NONE


def _cpu_class(item: Mapping[str, Any], path: str) -> str:
    name = item.get("name")
    if not name or not isinstance(name, str):
        raise _invalid(f"{path}.name", "a CPU class needs a name")
    for key in _SPEED_SELECT:
        if item.get(key) not in {None, ""}:
            raise UnmodelledFeature(
                f"{path}.{key}: CPU classes by Intel Speed Select depend on the processor's state, which is "
                "not modelled; predictions for this node are unknown"
            )
    return name


def _check_known(name: str, known: Iterable[str], path: str, what: str) -> None:
    if name not in known:
        raise _invalid(path, f"unknown {what} {name!r}")


def _invalid(path: str, message: str) -> StartFailed:
    return StartFailed(message, code="parse", path=path)


class _Reader:
    """Fields of a mapping, checked; absent ones are empty."""

    def __init__(self, values: Mapping[str, Any], path: str) -> None:
        self.values = values
        self.path = path

    def _get(self, key: str, kinds: type | tuple[type, ...], wanted: str) -> Any:
        value = self.values.get(key)
        if value is not None and (
            not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool)
        ):
            raise _invalid(f"{self.path}.{key}", f"{value!r:.80} is not a {wanted}")
        return value

    def flag(self, key: str) -> bool | None:
        value = self._get(key, bool, "boolean")
        return None if value is None else bool(value)

    def text(self, key: str) -> str:
        return str(self._get(key, str, "string") or "")

    def mapping(self, key: str) -> Mapping[str, Any]:
        return dict(self._get(key, Mapping, "mapping") or {})

    def texts(self, key: str) -> tuple[str, ...]:
        items = self._get(key, list, "list") or []
        for index, item in enumerate(items):
            if not isinstance(item, str):
                raise _invalid(f"{self.path}.{key}[{index}]", f"{item!r:.80} is not a string")
        return tuple(items)

    def mappings(self, key: str) -> list[tuple[str, Mapping[str, Any]]]:
        """Return (path, item) of a list of mappings."""
        found = []
        for index, item in enumerate(self._get(key, list, "list") or []):
            where = f"{self.path}.{key}[{index}]"
            if not isinstance(item, Mapping):
                raise _invalid(where, f"{item!r:.80} is not a mapping")
            found.append((where, item))
        return found

    def amounts(self, key: str) -> dict[str, str]:
        """Return a mapping to texts; a file may have plain numbers."""
        found = {}
        for name, value in self.mapping(key).items():
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise _invalid(f"{self.path}.{key}.{name}", f"{value!r:.80} is not a string")
            found[str(name)] = str(value)
        return found
