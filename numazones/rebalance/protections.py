"""Read and check the settings that protect pods from eviction.

The form and the names are those of the descheduler's DefaultEvictor (v1alpha2): ``podProtections`` or, in
its place, the deprecated booleans, and the selectors and thresholds beside them. What the settings mean for
a pod is in ``filter``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from numazones.apimachinery import duration
from numazones.apimachinery.label_selector import LabelSelector
from numazones.errors import NumazonesError

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

_DEPRECATED_OFF = {
    "evictLocalStoragePods": LOCAL_STORAGE,
    "evictSystemCriticalPods": SYSTEM_CRITICAL,
    "evictFailedBarePods": BARE,
    "evictDaemonSetPods": DAEMON_SET,
}
_DEPRECATED_ON = {"ignorePvcPods": PVC, "ignorePodsWithoutPDB": WITHOUT_PDB}
_KNOWN = frozenset(
    {
        *_DEPRECATED_OFF,
        *_DEPRECATED_ON,
        "labelSelector",
        "minPodAge",
        "minReplicas",
        "namespaceLabelSelector",
        "namespaces",
        "noEvictionPolicy",
        "nodeFit",
        "nodeSelector",
        "podProtections",
        "priorityThreshold",
    }
)


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
    def from_api(cls, body: Mapping[str, Any], *, priority_classes: Mapping[str, int] | None = None) -> Self:
        """Read the arguments of a DefaultEvictor; ``priority_classes`` gives the value of each class.

        Raises:
            InvalidProtections: a setting is unknown, given twice, in both forms, or out of range.
            InvalidSelector: a selector cannot be read.
        """
        _require_known("protections", body, _KNOWN)
        _check_policy(body)
        include, exclude = _namespaces(body.get("namespaces") or {})
        return cls(
            effective=_effective(body),
            storage_classes=_storage_classes(body.get("podProtections") or {}),
            priority_threshold=_threshold(body.get("priorityThreshold"), priority_classes or {}),
            label_selector=LabelSelector.optional(body.get("labelSelector")),
            namespace_label_selector=LabelSelector.optional(body.get("namespaceLabelSelector")),
            included_namespaces=include,
            excluded_namespaces=exclude,
            node_selector=LabelSelector.optional(body.get("nodeSelector")),
            min_replicas=body.get("minReplicas") or 0,
            min_pod_age=_age(body.get("minPodAge")),
            no_eviction_policy=body.get("noEvictionPolicy") or PREFERRED,
            node_fit=bool(body.get("nodeFit")),
        )


def _check_policy(body: Mapping[str, Any]) -> None:
    policy = body.get("noEvictionPolicy")
    if policy not in {None, "", PREFERRED, MANDATORY}:
        raise InvalidProtections(f"noEvictionPolicy {policy!r} is unknown; write {PREFERRED} or {MANDATORY}")
    if (body.get("minReplicas") or 0) < 0:
        raise InvalidProtections(f"minReplicas {body['minReplicas']} is negative; write 0 for no minimum")


def _age(text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return duration.parse(text)
    except duration.InvalidDuration as error:
        raise InvalidProtections(f"minPodAge: {error}") from error


def _effective(body: Mapping[str, Any]) -> tuple[str, ...]:
    protections = body.get("podProtections")
    deprecated = [name for name in (*_DEPRECATED_OFF, *_DEPRECATED_ON) if body.get(name)]
    if protections is None:
        off = {_DEPRECATED_OFF[name] for name in deprecated if name in _DEPRECATED_OFF}
        on = [_DEPRECATED_ON[name] for name in deprecated if name in _DEPRECATED_ON]
        return (*(name for name in DEFAULT if name not in off), *on)
    if deprecated:
        raise InvalidProtections(
            f"podProtections excludes the deprecated {', '.join(deprecated)}; leave those out"
        )
    _require_known("podProtections", protections, {"defaultDisabled", "extraEnabled", "config"})
    disabled = _names("defaultDisabled", protections.get("defaultDisabled"), DEFAULT)
    enabled = _names("extraEnabled", protections.get("extraEnabled"), EXTRA)
    return (*(name for name in DEFAULT if name not in disabled), *enabled)


def _names(setting: str, names: Iterable[str] | None, valid: tuple[str, ...]) -> tuple[str, ...]:
    listed = tuple(names or ())
    for name in listed:
        if name not in valid:
            raise InvalidProtections(
                f"podProtections.{setting}: {name!r} is not known; known are {', '.join(valid)}"
            )
        if listed.count(name) > 1:
            raise InvalidProtections(f"podProtections.{setting}: {name} is listed twice")
    return listed


def _storage_classes(protections: Mapping[str, Any]) -> frozenset[str]:
    config = protections.get("config") or {}
    _require_known("podProtections.config", config, {PVC})
    if PVC not in config:
        return frozenset()
    if PVC not in (protections.get("extraEnabled") or ()):
        raise InvalidProtections(
            f"podProtections.config.{PVC} has no effect; add {PVC} to podProtections.extraEnabled"
        )
    _require_known(f"podProtections.config.{PVC}", config[PVC], {"protectedStorageClasses"})
    names = [entry.get("name") or "" for entry in config[PVC].get("protectedStorageClasses") or ()]
    if "" in names:
        raise InvalidProtections(f"podProtections.config.{PVC}.protectedStorageClasses: an entry has no name")
    return frozenset(names)


def _threshold(body: Mapping[str, Any] | None, classes: Mapping[str, int]) -> int | None:
    if not body:
        return None
    value, name = body.get("value"), body.get("name")
    if value is not None and name:
        raise InvalidProtections("priorityThreshold: value and name exclude each other; write one of them")
    if name:
        if name not in classes:
            raise InvalidProtections(
                f"priorityThreshold: no PriorityClass {name} exists; create or correct it"
            )
        value = classes[name]
    if value is not None and value > HIGHEST_USER_PRIORITY:
        raise InvalidProtections(
            f"priorityThreshold {value} is above {HIGHEST_USER_PRIORITY}; higher ones are the system's"
        )
    return value


def _namespaces(body: Mapping[str, Any]) -> tuple[frozenset[str], frozenset[str]]:
    _require_known("namespaces", body, {"include", "exclude"})
    include, exclude = frozenset(body.get("include") or ()), frozenset(body.get("exclude") or ())
    if include and exclude:
        raise InvalidProtections("namespaces: include and exclude exclude each other; write one of them")
    return include, exclude


def _require_known(where: str, body: Mapping[str, Any], known: Iterable[str]) -> None:
    unknown = sorted(set(body) - set(known))
    if unknown:
        raise InvalidProtections(
            f"{where}: unknown {', '.join(unknown)}; known are {', '.join(sorted(known))}"
        )
