"""Settings of koord-scheduler: the arguments of its plugins."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numazones_koordinator.annotations import LEAST_ALLOCATED, MOST_ALLOCATED, CPUBindPolicy
from numazones_koordinator.objects import items
from numazones_koordinator.status import InvalidConfiguration

SCHEDULER_NAME = "koord-scheduler"
"""Of the profile that Koordinator installs."""

_MAX_WEIGHT = 100


@dataclass(frozen=True, slots=True)
class ScoringStrategy:
    """A scoring strategy and the weights of resources."""

    most_allocated: bool = False
    weights: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1))


_DEVICE_WEIGHTS = (
    ("koordinator.sh/gpu-memory-ratio", 1),
    ("koordinator.sh/gpu-memory", 1),
    ("koordinator.sh/rdma", 1),
    ("koordinator.sh/fpga", 1),
)


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A configured koord-scheduler; the defaults are upstream's."""

    names: frozenset[str] = frozenset({SCHEDULER_NAME})
    """``spec.schedulerName`` of the pods that it schedules."""
    default_bind_policy: str = CPUBindPolicy.FULL_PCPUS
    scoring: ScoringStrategy = ScoringStrategy()
    numa_scoring: ScoringStrategy = ScoringStrategy()
    device_share: bool = True
    """The plugin DeviceShare is enabled."""
    device_scoring: ScoringStrategy = ScoringStrategy(weights=_DEVICE_WEIGHTS)
    unshared_models: frozenset[tuple[str, str]] = field(default=frozenset())
    """(vendor, model) of GPUs that are not to be shared."""

    @classmethod
    def from_args(
        cls,
        numa: Mapping[str, Any] | None = None,
        device: Mapping[str, Any] | None = None,
        *,
        device_share: bool = True,
    ) -> "Scheduler":
        """Read ``NodeNUMAResourceArgs`` and ``DeviceShareArgs`` of the scheduler's configuration.

        Raises:
            InvalidConfiguration: the scheduler would not start, or does not align devices.
        """
        numa, device = numa or {}, device or {}
        bind_policy = numa.get("defaultCPUBindPolicy")
        if bind_policy is None:
            bind_policy = CPUBindPolicy.FULL_PCPUS
        if bind_policy not in ("", CPUBindPolicy.FULL_PCPUS, CPUBindPolicy.SPREAD_BY_PCPUS):
            raise InvalidConfiguration(
                f"defaultCPUBindPolicy is {bind_policy!r}; use FullPCPUs or SpreadByPCPUs"
            )
        if device.get("disableDeviceNUMATopologyAlignment"):
            raise InvalidConfiguration(
                "disableDeviceNUMATopologyAlignment is not modelled; leave the alignment of devices on"
            )
        return cls(
            device_share=device_share,
            default_bind_policy=bind_policy,
            scoring=_strategy(numa, "scoringStrategy", ScoringStrategy()),
            numa_scoring=_strategy(numa, "numaScoringStrategy", ScoringStrategy()),
            device_scoring=_strategy(device, "scoringStrategy", ScoringStrategy(weights=_DEVICE_WEIGHTS)),
            unshared_models=frozenset(
                (str(item.get("vendor", "")), str(item.get("model", "")))
                for item in items(device, "gpuShareUnsupportedModels", InvalidConfiguration)
            ),
        )


def _strategy(arguments: Mapping[str, Any], name: str, default: ScoringStrategy) -> ScoringStrategy:
    given = arguments.get(name)
    if given is None:
        return default
    if not isinstance(given, Mapping):
        raise InvalidConfiguration(f"{name} must be a mapping, not {type(given).__name__}")
    type_ = given.get("type", "")
    if type_ not in (LEAST_ALLOCATED, MOST_ALLOCATED):
        raise InvalidConfiguration(
            f"{name}.type: strategy {type_} is not supported; use {LEAST_ALLOCATED} or {MOST_ALLOCATED}"
        )
    weights = {}
    for index, item in enumerate(items(given, "resources", InvalidConfiguration)):
        weight = item.get("weight", 0)
        if isinstance(weight, bool) or not isinstance(weight, int) or not 0 < weight <= _MAX_WEIGHT:
            raise InvalidConfiguration(
                f"{name}.resources[{index}].weight of {item.get('name')} is {weight!r:.50}; "
                f"use a number from 1 to {_MAX_WEIGHT}"
            )
        weights[str(item.get("name", ""))] = weight
    return ScoringStrategy(type_ == MOST_ALLOCATED, tuple(weights.items()))
