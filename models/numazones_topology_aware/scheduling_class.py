"""Scheduling classes: Linux scheduling and I/O priorities that a container is started with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numazones_topology_aware.rejection import StartFailed

_POLICIES = frozenset({"none", "other", "fifo", "rr", "batch", "iso", "idle", "deadline"})
_FLAGS = frozenset(
    {
        "reset_on_fork", "reclaim", "dl_overrun", "keep_policy", "keep_params", "util_clamp_min",
        "util_clamp_max",
    }
)  # fmt: skip
_IO_CLASSES = frozenset({"none", "rt", "be", "idle"})
_INTEGERS = ("priority", "nice", "runtime", "deadline", "period", "ioPriority")


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Scheduling attributes as the runtime gets them; times in microseconds as configured."""

    policy: str = "SCHED_NONE"
    nice: int = 0
    priority: int = 0
    flags: tuple[str, ...] = ()
    runtime: int = 0
    deadline: int = 0
    period: int = 0


@dataclass(frozen=True, slots=True)
class IOPriority:
    """I/O priority as the runtime gets it."""

    io_class: str = "IOPRIO_CLASS_NONE"
    priority: int = 0


@dataclass(frozen=True, slots=True)
class SchedulingClass:
    """One configured class; None where the runtime gets no value."""

    name: str
    scheduler: Scheduler | None = None
    io_priority: IOPriority | None = None

    @classmethod
    def from_api(cls, item: Mapping[str, Any], *, path: str) -> "SchedulingClass":
        """Read one entry of ``schedulingClasses``.

        What the runtime's library does not know (the documented flag ``reclaim`` is right, the code's own
        ``reclaimable`` is not) is left out, as the plugin leaves it out.

        Raises:
            StartFailed: a field has the wrong shape; code ``parse``.
        """
        name = item.get("name")
        if not isinstance(name, str):
            raise StartFailed("a scheduling class needs a name", code="parse", path=f"{path}.name")
        for key in _INTEGERS:
            value = item.get(key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise StartFailed(f"{value!r:.80} is not a whole number", code="parse", path=f"{path}.{key}")
        return cls(name, _scheduler(item), _io_priority(item))


def _scheduler(item: Mapping[str, Any]) -> Scheduler | None:
    flags = [str(flag).replace("-", "_").lower() for flag in item.get("flags") or ()]
    policy = str(item.get("policy") or "")
    values: dict[str, Any] = {}
    if policy.lower() in _POLICIES:
        values["policy"] = f"SCHED_{policy.upper()}"
    if flags and all(flag in _FLAGS for flag in flags):
        values["flags"] = tuple(f"SCHED_FLAG_{flag.upper()}" for flag in flags)
    for key in ("priority", "nice", "runtime", "deadline", "period"):
        if item.get(key) is not None:
            values[key] = item[key]
    return Scheduler(**values) if values else None


def _io_priority(item: Mapping[str, Any]) -> IOPriority | None:
    io_class = str(item.get("ioClass") or "")
    values: dict[str, Any] = {}
    if io_class.lower() in _IO_CLASSES:
        values["io_class"] = f"IOPRIO_CLASS_{io_class.upper()}"
    if item.get("ioPriority") is not None:
        values["priority"] = item["ioPriority"]
    return IOPriority(**values) if values else None
