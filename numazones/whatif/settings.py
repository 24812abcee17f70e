"""Kubelet settings as people write them, ``topologyManagerScope=pod``, and what they make of a kubelet.

Keys are fields of KubeletConfiguration, those of maps after a dot. The kubelet's own validation says whether
it would start with the values; only keys that have no effect on admission are rejected here. An option behind
an alpha or beta gate turns the gate on, unless that is set too.

Variants of an experiment may also differ in ``placement``, which is the scheduler's choice of nodes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from numazones.apimachinery import quantity
from numazones.errors import NumazonesError
from numazones.kubelet import go
from numazones.kubelet.config import KubeletConfiguration, MemoryReservation
from numazones.kubelet.kept_memory import FIELDS, KeptMemory
from numazones.kubelet.versions import (
    CPU_ALPHA_OPTIONS,
    CPU_BETA_OPTIONS,
    GATES,
    TOPOLOGY_ALPHA_OPTIONS,
    TOPOLOGY_BETA_OPTIONS,
    Maturity,
)
from numazones.prediction.node_choice import NodeChoice
from numazones.wording import did_you_mean, enumeration

Settings = Mapping[str, str]
"""Key → value, as written."""

PLACEMENT = "placement"
RESERVED_CPUS = "reservedSystemCPUs"
RESERVED_MEMORY = "reservedMemory"
MEMORY_POLICY = "memoryManagerPolicy"
_GATES = "featureGates"
_TEXTS = {
    "cpuManagerPolicy": "cpu_manager_policy",
    RESERVED_CPUS: "reserved_system_cpus",
    MEMORY_POLICY: "memory_manager_policy",
    "topologyManagerPolicy": "topology_manager_policy",
    "topologyManagerScope": "topology_manager_scope",
}
_OPTIONS = {
    "cpuManagerPolicyOptions": "cpu_manager_policy_options",
    "topologyManagerPolicyOptions": "topology_manager_policy_options",
}
_OPTION_GATES = {
    "cpuManagerPolicyOptions": {Maturity.ALPHA: CPU_ALPHA_OPTIONS, Maturity.BETA: CPU_BETA_OPTIONS},
    "topologyManagerPolicyOptions": {
        Maturity.ALPHA: TOPOLOGY_ALPHA_OPTIONS,
        Maturity.BETA: TOPOLOGY_BETA_OPTIONS,
    },
}
_FORMS = (
    *_TEXTS,
    *(f"{name}.OPTION" for name in _OPTIONS),
    f"{_GATES}.GATE",
    f"{RESERVED_MEMORY}.NUMA.TYPE",
    *FIELDS,
)


class IneffectiveSetting(NumazonesError):
    """A setting has no effect on admission, or cannot be read; the message names the field."""


def parse(texts: Iterable[str], *others: str) -> dict[str, str]:
    """Read ``KEY=VALUE`` texts; of a key given twice the last value counts.

    ``others``: keys that are read elsewhere, which a misspelled one may mean.

    Raises:
        IneffectiveSetting: a text is not in this form, or its key is unknown.
    """
    settings: dict[str, str] = {}
    for text in texts:
        key, separator, value = (part.strip() for part in text.partition("="))
        if not separator:
            raise IneffectiveSetting(
                f"{text!r} is not a setting; write KEY=VALUE, where KEY is one of {', '.join(_FORMS)}"
            )
        _check(key, value, *others)
        settings[key] = value
    return settings


def parse_variant(texts: Iterable[str]) -> dict[str, str]:
    """Read what sets a variant apart, as ``parse``; ``placement`` is a key, too.

    Raises:
        IneffectiveSetting: as ``parse``, or there is no such placement.
    """
    settings: dict[str, str] = {}
    for text in texts:
        key, separator, value = (part.strip() for part in text.partition("="))
        settings |= {key: _choice(value)} if separator and key == PLACEMENT else parse([text], PLACEMENT)
    return settings


def split_variant(settings: Settings) -> tuple[Settings, NodeChoice | None]:
    """Return the settings of kubelets, and the scheduler's choice where it is set."""
    of_kubelets = {key: value for key, value in settings.items() if key != PLACEMENT}
    chosen = settings.get(PLACEMENT)
    return of_kubelets, None if chosen is None else _choice(chosen)


def _choice(value: str) -> NodeChoice:
    try:
        return NodeChoice(value)
    except ValueError as error:
        known = ", ".join(NodeChoice)
        raise IneffectiveSetting(f"{PLACEMENT}={value}: unknown placement; use one of {known}") from error


def _check(key: str, value: str, *others: str) -> None:
    field, dot, name = key.partition(".")
    if field in _TEXTS and not dot:
        return
    if field in _OPTIONS and name:
        return
    if field == _GATES and name:
        if name not in GATES:
            cure = did_you_mean(name, known := sorted(GATES)) or f"; use one of {', '.join(known)}"
            raise IneffectiveSetting(f"{key}: this gate has no effect on admission{cure}")
        _boolean(key, value)
        return
    if field == RESERVED_MEMORY and name:
        _reservation(key, value)
        return
    if key in FIELDS:
        _kept({key: value})
        return
    cure = did_you_mean(key, (*_FORMS, *others)) or f"; use one of {', '.join(_FORMS)}"
    raise IneffectiveSetting(f"{key} is not a setting that affects admission{cure}")


def _boolean(key: str, value: str) -> bool:
    try:
        return go.parse_bool(value)
    except ValueError as error:
        raise IneffectiveSetting(f"{key}: {value!r} is neither true nor false") from error


def _reservation(key: str, value: str) -> tuple[int, str, quantity.Quantity]:
    """Return (NUMA id, type, amount)."""
    numa, _, kind = key.partition(".")[2].partition(".")
    if not numa.isdecimal() or not kind:
        raise IneffectiveSetting(f"{key}: write {RESERVED_MEMORY}.0.memory=1Gi for NUMA node 0")
    try:
        return int(numa), kind, quantity.parse(value)
    except quantity.InvalidQuantity as error:
        raise IneffectiveSetting(f"{key}: {error}") from error


def _kept(fields: Mapping[str, str]) -> KeptMemory:
    try:
        return KeptMemory.read(fields)
    except quantity.InvalidQuantity as error:
        raise IneffectiveSetting(f"{', '.join(fields)}: {error}") from error


def _kept_memory(config: KubeletConfiguration, changed: Mapping[str, str]) -> KeptMemory:
    """Return what is kept from pods after a change of some of the fields that say so."""
    known = {} if config.kept_memory is None else dict(config.kept_memory.fields)
    missing = [name for name in FIELDS if name not in changed]
    if missing and not known:
        raise IneffectiveSetting(
            f"{', '.join(changed)}: NUMAZones contain only the sum of {', '.join(FIELDS)}; set "
            f"{enumeration(missing)} too (0 where there is none)"
        )
    return _kept({**known, **changed})


def apply(config: KubeletConfiguration, settings: Settings) -> KubeletConfiguration:
    """Return the configuration with settings changed; an empty value removes an option.

    Raises:
        IneffectiveSetting: as ``parse``.
    """
    changes: dict[str, Any] = {}
    options = {field: dict(getattr(config, name)) for field, name in _OPTIONS.items()}
    gates = {**dict(config.feature_gates), **_needed_gates(config, settings)}
    memory = {entry.numa: dict(entry.limits) for entry in config.reserved_memory}
    if any(key.startswith(RESERVED_MEMORY) for key in settings):
        memory = {}
    for key, value in settings.items():
        _check(key, value)
        field, _, name = key.partition(".")
        if field in _TEXTS:
            changes[_TEXTS[field]] = value
        elif field in _OPTIONS:
            options[field].pop(name, None)
            options[field] |= {name: value} if value else {}
        elif key in FIELDS:
            continue
        elif field == _GATES:
            gates[name] = _boolean(key, value)
        else:
            numa, kind, amount = _reservation(key, value)
            memory.setdefault(numa, {})[kind] = amount
    for field, name in _OPTIONS.items():
        changes[name] = tuple(sorted(options[field].items()))
    reserved = tuple(MemoryReservation(numa, tuple(sorted(memory[numa].items()))) for numa in sorted(memory))
    kept = {key: value for key, value in settings.items() if key in FIELDS}
    if kept:
        changes["kept_memory"] = _kept_memory(config, kept)
    return replace(config, **changes, feature_gates=tuple(sorted(gates.items())), reserved_memory=reserved)


def with_needed_gates(config: KubeletConfiguration, settings: Settings) -> dict[str, str]:
    """Return the settings with the gates that their options need and that they don't set."""
    needed = _needed_gates(config, settings)
    return {**settings, **{f"{_GATES}.{gate}": "true" for gate in sorted(needed)}}


def _needed_gates(config: KubeletConfiguration, settings: Settings) -> dict[str, bool]:
    known = {
        "cpuManagerPolicyOptions": config.release.cpu_options,
        "topologyManagerPolicyOptions": config.release.topology_options,
    }
    needed: dict[str, bool] = {}
    for key, value in settings.items():
        field, _, option = key.partition(".")
        maturity = known[field].get(option) if field in known and value else None
        gate = _OPTION_GATES[field].get(maturity) if maturity is not None else None
        if gate is not None and f"{_GATES}.{gate}" not in settings and not config.gate(gate):
            needed[gate] = True
    return needed
