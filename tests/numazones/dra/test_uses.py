"""Devices that a container uses, of those that a kubelet lists for it."""

from typing import Any

import pytest

from numazones.dra.claims import DeviceClaim
from numazones.dra.uses import claims_of, used_by, uses_of
from tests.numazones.dra.building import claim, result


def container(name: str, *claims: str) -> dict[str, Any]:
    """A container that uses claims, each given as NAME or NAME/REQUEST."""
    parts = [one.partition("/") for one in claims]
    used = [{"name": name, **({"request": request} if request else {})} for name, _, request in parts]
    return {"name": name, "resources": {"claims": used}}


SPEC = {
    "resourceClaims": [
        {"name": "named", "resourceClaimName": "shared"},
        {"name": "made", "resourceClaimTemplateName": "template"},
        {"name": "unneeded", "resourceClaimTemplateName": "other"},
    ],
    "initContainers": [container("side", "named")],
    "containers": [
        container("app", "made/a", "made/b", "unneeded"),
        container("log"),
        container("io", "made"),
    ],
}
STATUS = {
    "resourceClaimStatuses": [
        {"name": "made", "resourceClaimName": "made-x7k2p"},
        {"name": "unneeded", "resourceClaimName": None},
    ],
    "extendedResourceClaimStatus": {
        "resourceClaimName": "extended-1",
        "requestMappings": [
            {"containerName": "log", "resourceName": "v.example/gpu", "requestName": "container-1-request-0"}
        ],
    },
}


def test_containers_use_named_templated_and_extended_resource_claims() -> None:
    assert uses_of("team", SPEC, STATUS) == {
        "side": {("team/shared", "")},
        "app": {("team/made-x7k2p", "a"), ("team/made-x7k2p", "b")},
        "io": {("team/made-x7k2p", "")},
        "log": {("team/extended-1", "container-1-request-0")},
    }


def test_template_that_made_no_claim_gives_the_pod_none() -> None:
    found = {one.name: one.claim or one.template for one in claims_of("team", SPEC, STATUS)}
    assert found == {"named": "team/shared", "made": "team/made-x7k2p", "": "team/extended-1"}
    before = {one.name: one.claim or one.template for one in claims_of("team", SPEC, {})}
    assert before == {"named": "team/shared", "made": "team/template", "unneeded": "team/other"}


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"containers": [{"name": "c", "resources": {"claims": "all"}}]}, {}),
        ({"resourceClaims": [{"name": 1, "resourceClaimName": "x"}]}, {}),
        ({}, {"extendedResourceClaimStatus": []}),
    ],
)
def test_fields_of_another_type_are_named(spec: dict[str, Any], status: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"claims|name|extendedResourceClaimStatus"):
        uses_of("team", spec, status)


def of(name: str, request: str) -> Any:
    body = claim(result("gpu-0", request=request), name=name)
    (found,) = DeviceClaim.from_api(body).allocations
    return found


@pytest.mark.parametrize(
    ("name", "of_request", "users"),
    [
        ("made-x7k2p", "a", {"app", "io"}),
        ("made-x7k2p", "b/alternative", {"app", "io"}),
        ("made-x7k2p", "c", {"io"}),
        ("shared", "one", {"side"}),
        ("extended-1", "container-1-request-0", {"log"}),
        # Nothing is known of such a claim: what the kubelet lists is believed.
        ("unknown", "one", {"side", "app", "io", "log"}),
    ],
)
def test_a_device_is_used_by_the_containers_of_its_request(
    name: str, of_request: str, users: set[str]
) -> None:
    uses = uses_of("team", SPEC, STATUS)
    assert {one for one in uses if used_by(one, uses, [of(name, of_request)])} == users


def test_shared_device_is_used_through_any_share() -> None:
    uses = uses_of("team", SPEC, STATUS)
    shares = [of("other-pods", "one"), of("made-x7k2p", "c"), of("made-x7k2p", "a")]
    assert {one for one in uses if used_by(one, uses, shares)} == {"app", "io"}


def test_without_allocations_the_kubelet_is_believed() -> None:
    assert used_by("log", uses_of("team", SPEC, STATUS), [])
