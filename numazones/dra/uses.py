"""Devices that a container uses of its pod's claims.

A container names the claims that it uses, and may name one request of each; extended resources that devices
serve (KEP-5004) are mapped to requests in the pod's status. The kubelet does not look: it lists all devices
of a claim for each container that uses any of it (1.36, ``GetContainerClaimInfos``).
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from numazones.dra import fields

if TYPE_CHECKING:  # few pods have claims
    from numazones.dra.claims import Allocation

Uses = frozenset[tuple[str, str]]
"""(NAMESPACE/NAME of a claim, request); an empty request: all of them."""


class PodClaim(NamedTuple):
    """A claim of a pod."""

    name: str
    """Within the pod; empty: the scheduler made it of extended resources."""
    claim: str
    """NAMESPACE/NAME of the ResourceClaim; empty: it has not been made yet."""
    template: str = ""
    """NAMESPACE/NAME of the ResourceClaimTemplate that it is made from; empty: it is used by its name."""
    users: tuple[tuple[str, str], ...] = ()
    """(container, request) of the containers that use it; an empty request: all of them."""


def claims_of(namespace: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[PodClaim, ...]:
    """Return a pod's claims in its order, without those that its status shows as not needed.

    The claim that the scheduler has made of its extended resources comes last.

    Raises:
        TypeError: a field is of another type.

    >>> spec = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
    >>> claims_of("team", spec, {})
    (PodClaim(name='gpu', claim='', template='team/one', users=()),)
    """
    users: dict[str, list[tuple[str, str]]] = {}
    for container in (*fields.parts(spec, "initContainers"), *fields.parts(spec, "containers")):
        for one in fields.parts(fields.part(container, "resources"), "claims"):
            user = fields.text(container, "name"), fields.text(one, "request")
            users.setdefault(fields.text(one, "name"), []).append(user)
    made = {
        fields.text(one, "name"): fields.text(one, "resourceClaimName")
        for one in fields.parts(status, "resourceClaimStatuses")
    }
    found = []
    for one in fields.parts(spec, "resourceClaims"):
        name = fields.text(one, "name")
        template = fields.text(one, "resourceClaimTemplateName")
        claim = fields.text(one, "resourceClaimName") or made.get(name, "")
        if claim or name not in made:
            claim, template = (f"{namespace}/{part}" if part else "" for part in (claim, template))
            found.append(PodClaim(name, claim, template, tuple(users.get(name, ()))))
    extended = fields.part(status, "extendedResourceClaimStatus")
    if claim := fields.text(extended, "resourceClaimName"):
        mappings = fields.parts(extended, "requestMappings")
        using = ((fields.text(one, "containerName"), fields.text(one, "requestName")) for one in mappings)
        found.append(PodClaim("", f"{namespace}/{claim}", users=tuple(using)))
    return tuple(found)


def uses_of(namespace: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Uses]:
    """Return container → what it uses of claims; claims that have no name yet are left out.

    Raises:
        TypeError: a field is of another type.

    >>> spec = {
    ...     "resourceClaims": [{"name": "gpus", "resourceClaimName": "two"}],
    ...     "containers": [{"name": "app", "resources": {"claims": [{"name": "gpus", "request": "first"}]}}],
    ... }
    >>> uses_of("team", spec, {})
    {'app': frozenset({('team/two', 'first')})}
    """
    names = {
        fields.text(one, "name"): fields.text(one, "resourceClaimName")
        for one in (*fields.parts(spec, "resourceClaims"), *fields.parts(status, "resourceClaimStatuses"))
        if one.get("resourceClaimName")
    }
    found: dict[str, set[tuple[str, str]]] = {}
    for container in (*fields.parts(spec, "initContainers"), *fields.parts(spec, "containers")):
        for one in fields.parts(fields.part(container, "resources"), "claims"):
            if claim := names.get(fields.text(one, "name")):
                used = found.setdefault(fields.text(container, "name"), set())
                used.add((f"{namespace}/{claim}", fields.text(one, "request")))
    extended = fields.part(status, "extendedResourceClaimStatus")
    if claim := fields.text(extended, "resourceClaimName"):
        for one in fields.parts(extended, "requestMappings"):
            used = found.setdefault(fields.text(one, "containerName"), set())
            used.add((f"{namespace}/{claim}", fields.text(one, "requestName")))
    return {name: frozenset(used) for name, used in found.items()}


def used_by(container: str, uses: Mapping[str, Uses], allocations: "Iterable[Allocation]") -> bool:
    """Return whether a container uses a device that its kubelet lists for it.

    Where nothing is known of how the device came to the pod, the kubelet is believed.
    """
    claims = {claim for used in uses.values() for claim, _ in used}
    own = [one for one in allocations if one.claim in claims]
    wanted = uses.get(container, frozenset())
    return not own or any({(one.claim, ""), (one.claim, one.main_request)} & wanted for one in own)
