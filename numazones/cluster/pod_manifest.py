"""Manifests of pods: check what people wrote, and fill in what the API server would.

No API server has looked at a manifest yet. A mistake is named with its field. Rules for amounts are those of
the API server's validation of pods: a quantity, not below 0, and no request above its limit.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from numazones.apimachinery import quantity
from numazones.apimachinery.defaulting import created_spec
from numazones.errors import NumazonesError
from numazones.wording import did_you_mean

_MOST_SHOWN = 40


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_RELEASE = "1.37"
# Fields that pods have in this release.
_OF_PODS = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_OF_METADATA = _names(
    """annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName
    generation labels managedFields name namespace ownerReferences resourceVersion selfLink uid"""
)
_OF_SPECS = _names(
    """activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy
    enableServiceLinks ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers hostname
    hostnameOverride imagePullSecrets initContainers nodeName nodeSelector os overhead preemptionPolicy
    priority priorityClassName readinessGates resourceClaims resources restartPolicy runtimeClassName
    schedulerName schedulingGates schedulingGroup securityContext serviceAccount serviceAccountName
    setHostnameAsFQDN shareProcessNamespace subdomain terminationGracePeriodSeconds tolerations
    topologySpreadConstraints volumes"""
)
_OF_CONTAINERS = _names(
    """args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports readinessProbe
    resizePolicy resources restartPolicy restartPolicyRules securityContext startupProbe stdin stdinOnce
    terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir"""
)
_OF_RESOURCES = frozenset({"limits", "requests", "claims"})


class InvalidManifest(NumazonesError, ValueError):
    """The API server would reject a manifest; the message names the field."""


def created_pod(body: Mapping[str, Any], *, exact: bool) -> dict[str, Any]:
    """Return the pod that the API server would store; without a name or namespace it is ``default/pod``.

    ``exact``: reject every field that pods do not have, not only those of resources.

    Raises:
        InvalidManifest: it is not a pod, or the API server would reject it.
    """
    if not isinstance(body, Mapping):
        raise InvalidManifest(f"expected a Pod, a mapping with metadata and spec, not {type(body).__name__}")
    kind = str(body.get("kind") or "Pod")
    if kind != "Pod":
        article = "an" if kind[0] in "AEIOU" else "a"
        raise InvalidManifest(f"expected a Pod, not {article} {kind}; pass its pod template")
    own, spec = part_of(body, "metadata"), part_of(body, "spec")
    for problem in _problems(body, own, spec, exact=exact):
        raise InvalidManifest(problem)
    metadata = {"name": "pod", "namespace": "default", **own}
    metadata.setdefault("uid", f"{metadata['namespace']}/{metadata['name']}")
    return {**body, "metadata": metadata, "spec": created_spec(spec, namespace=metadata["namespace"])}


def part_of(body: Mapping[str, Any], field: str, within: str = "") -> Mapping[str, Any]:
    """Return a part of an object, empty where it has none.

    Raises:
        InvalidManifest: it is not a mapping.
    """
    part = body.get(field)
    if part is None:
        return {}
    if not isinstance(part, Mapping):
        raise InvalidManifest(f"{within}{field} must be a mapping, not {part!r:.{_MOST_SHOWN}}")
    return part


def _unknown(part: Mapping[str, Any], known: frozenset[str], within: str) -> Iterator[str]:
    for field in map(str, part):
        if field not in known:
            cure = did_you_mean(field, sorted(known)) or (
                "; check its spelling and indentation, or remove it to get an answer without it"
            )
            yield f"{within}{field} is not a field of a pod in Kubernetes {_RELEASE}{cure}"


def _problems(
    body: Mapping[str, Any], metadata: Mapping[str, Any], spec: Mapping[str, Any], *, exact: bool
) -> Iterator[str]:
    """Yield what the API server would not take of a pod, in the order of its parts.

    An unknown field may decide where the pod goes, so it is an error rather than a warning.
    """
    if exact:
        yield from _unknown(body, _OF_PODS, "")
        yield from _unknown(metadata, _OF_METADATA, "metadata.")
        yield from _unknown(spec, _OF_SPECS, "spec.")
    yield from _wrong_resources(part_of(spec, "resources", "spec."), "spec.resources")
    yield from _wrong_amounts(part_of(spec, "overhead", "spec."), "spec.overhead")
    for field in ("initContainers", "containers"):
        containers = spec.get(field) or []
        if not isinstance(containers, list):
            yield f"spec.{field} must be a list, not {containers!r:.{_MOST_SHOWN}}"
            return
        for at, container in enumerate(containers):
            where = f"spec.{field}[{at}]"
            if not isinstance(container, Mapping):
                yield f"{where} must be a mapping, not {container!r:.{_MOST_SHOWN}}"
                return
            if exact:
                yield from _unknown(container, _OF_CONTAINERS, f"{where}.")
            yield from _wrong_resources(part_of(container, "resources", f"{where}."), f"{where}.resources")
    if not spec.get("containers"):
        yield "spec.containers is missing: a pod has at least one container"


def _wrong_resources(resources: Mapping[str, Any], where: str) -> Iterator[str]:
    for field in resources:
        if field not in _OF_RESOURCES:
            yield f"{where}.{field} is not a field of a pod; use limits or requests"
    parts = {name: part_of(resources, name, f"{where}.") for name in ("limits", "requests")}
    for name, amounts in parts.items():
        yield from _wrong_amounts(amounts, f"{where}.{name}")
    for resource, limit in parts["limits"].items():
        request = parts["requests"].get(resource, limit)
        if quantity.parse(request) > quantity.parse(limit):
            yield f"{where}.requests.{resource} is {request}, more than the limit of {limit}"


def _wrong_amounts(amounts: Mapping[str, Any], where: str) -> Iterator[str]:
    for resource, amount in amounts.items():
        try:
            negative = quantity.parse(amount).nanos < 0
        except quantity.InvalidQuantity as error:
            yield f"{where}.{resource}: {error}"
            continue
        if negative:
            yield f"{where}.{resource} is {amount}; it must not be below 0"
