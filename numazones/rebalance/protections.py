"""Read and check the settings that protect pods from eviction.

The form and the names are those of the descheduler's DefaultEvictor (v1alpha2). What the settings mean for
a pod is in ``filter``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from numazones.apimachinery import duration
from numazones.apimachinery.label_selector import LabelSelector
from numazones.errors import NumazonesError

if TYPE_CHECKING:  # slow to import, and most programs read no policies
    from numazones.api.rebalance import (
        Namespaces,
        PodProtections,
        PriorityThreshold,
        ProtectionSettings,
        Selector,
    )

LOCAL_STORAGE = "PodsWithLocalStorage"
SYSTEM_CRITICAL = "SystemCriticalPods"
BARE = "FailedBarePods"
DAEMON_SET = "DaemonSetPods"
PVC = "PodsWithPVC"
WITHOUT_PDB = "PodsWithoutPDB"
RESOURCE_CLAIMS = "PodsWithResourceClaims"
DEFAULT = (LOCAL_STORAGE, SYSTEM_CRITICAL, BARE, DAEMON_SET)
EXTRA = (PVC, WITHOUT_PDB, RESOURCE_CLAIMS)
PREFERRED = "Preferred"
MANDATORY = "Mandatory"
HIGHEST_USER_PRIORITY = 2_000_000_000
"""Priorities from here on belong to the system's critical classes."""


class InvalidProtections(NumazonesError):
    """Settings contradict each other or name something unknown; the message names the setting."""


@dataclass(frozen=True, slots=True)
class Protections:
    """Pods that a policy protects; the defaults are the descheduler's."""

    effective: tuple[str, ...] = DEFAULT
    """Names of the protections in force: the list to print, since defaults may change between versions."""
    storage_classes: frozenset[str] = frozenset()
    """Storage classes that ``PodsWithPVC`` protects; empty: all claims."""
    priority_threshold: int | None = None
    """Pods of this priority or above stay, as long as ``SystemCriticalPods`` is in force."""
    label_selector: LabelSelector | None = None
    namespace_label_selector: LabelSelector | None = None
    included_namespaces: frozenset[str] = frozenset()
    excluded_namespaces: frozenset[str] = frozenset()
    node_selector: LabelSelector | None = None
    """Nodes that pods may be evicted from."""
    min_replicas: int = 0
    min_pod_age: timedelta | None = None
    no_eviction_policy: str = PREFERRED
    """Whether ``prefer-no-eviction`` puts a pod last (Preferred) or protects it (Mandatory)."""
    node_fit: bool = False
    """Whether a pod must pass the scheduler's filters on another node; plans check more than that anyway."""

    def __contains__(self, name: object) -> bool:
        return name in self.effective

    @classmethod
    def of(cls, settings: "ProtectionSettings", priority_classes: Mapping[str, int]) -> Self:
        """Read a policy's settings; ``priority_classes`` gives the value of each class.

        Raises:
            InvalidProtections: a setting is unknown, given twice, without effect, or out of range.
            InvalidSelector: a selector cannot be read.
        """
        policy = settings.no_eviction_policy or PREFERRED
        if policy not in {PREFERRED, MANDATORY}:
            raise InvalidProtections(
                f"noEvictionPolicy {policy!r} is unknown; use {PREFERRED} or {MANDATORY}"
            )
        protections, chosen = settings.pod_protections, settings.namespaces
        include, exclude = (frozenset(), frozenset()) if chosen is None else _namespaces(chosen)
        return cls(
            effective=DEFAULT if protections is None else _effective(protections),
            storage_classes=frozenset() if protections is None else _storage_classes(protections),
            priority_threshold=_threshold(settings.priority_threshold, priority_classes),
            label_selector=label_selector(settings.label_selector),
            namespace_label_selector=label_selector(settings.namespace_label_selector),
            included_namespaces=include,
            excluded_namespaces=exclude,
            node_selector=label_selector(settings.node_selector),
            min_replicas=settings.min_replicas or 0,
            min_pod_age=_age(settings.min_pod_age),
            no_eviction_policy=policy,
            node_fit=settings.node_fit,
        )


def label_selector(selector: "Selector | None") -> LabelSelector | None:
    """Return a policy's label selector as a value; None where it has none.

    Raises:
        InvalidSelector: it cannot be read.
    """
    return None if selector is None else LabelSelector.from_api(selector.to_api())


def _age(text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return duration.parse(text)
    except duration.InvalidDuration as error:
        raise InvalidProtections(f"minPodAge: {error}") from error


def _effective(protections: "PodProtections") -> tuple[str, ...]:
    _check_names("defaultDisabled", protections.default_disabled, DEFAULT)
    _check_names("extraEnabled", protections.extra_enabled, EXTRA)
    kept = (name for name in DEFAULT if name not in protections.default_disabled)
    return (*kept, *protections.extra_enabled)


def _check_names(setting: str, names: tuple[str, ...], valid: tuple[str, ...]) -> None:
    for name in names:
        if name not in valid:
            raise InvalidProtections(
                f"podProtections.{setting}: {name!r} is unknown; use one of {', '.join(valid)}"
            )
        if names.count(name) > 1:
            raise InvalidProtections(f"podProtections.{setting}: {name} is listed twice")


def _storage_classes(protections: "PodProtections") -> frozenset[str]:
    details = None if protections.config is None else protections.config.pods_with_pvc
    if details is None:
        return frozenset()
    if PVC not in protections.extra_enabled:
        raise InvalidProtections(
            f"podProtections.config.{PVC} has no effect; add {PVC} to podProtections.extraEnabled"
        )
    return frozenset(one.name for one in details.protected_storage_classes)


def _threshold(threshold: "PriorityThreshold | None", classes: Mapping[str, int]) -> int | None:
    if threshold is None:
        return None
    value, name = threshold.value, threshold.name
    if value is not None and name:
        raise InvalidProtections("priorityThreshold: set either value or name, not both")
    if name:
        if name not in classes:
            raise InvalidProtections(
                f"priorityThreshold: no PriorityClass {name} exists; create or correct it"
            )
        value = classes[name]
    if value is not None and value > HIGHEST_USER_PRIORITY:
        raise InvalidProtections(
            f"priorityThreshold {value} is above {HIGHEST_USER_PRIORITY}; higher values are reserved for "
            "the system"
        )
    return value


def _namespaces(chosen: "Namespaces") -> tuple[frozenset[str], frozenset[str]]:
    if chosen.include and chosen.exclude:
        raise InvalidProtections("namespaces: set either include or exclude, not both")
    return frozenset(chosen.include), frozenset(chosen.exclude)
