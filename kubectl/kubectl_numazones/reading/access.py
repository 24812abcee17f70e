"""Rights of the user, as the API server reports them."""

from typing import TYPE_CHECKING

from kubectl_numazones.reading.kinds import ACCESS_REVIEWS

if TYPE_CHECKING:
    from numazones_client import Client, Resource


async def may(
    client: "Client", verb: str, resource: "Resource", subresource: str = "", *, namespace: str = ""
) -> bool:
    """Return whether the user may do something (SelfSubjectAccessReview).

    Raises:
        APIError: the API server does not tell.
    """
    attributes = {
        "verb": verb,
        "group": resource.group,
        "resource": resource.plural,
        "subresource": subresource,
        "namespace": namespace,
    }
    body = {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await client.create(ACCESS_REVIEWS, body)
    return bool((answer.get("status") or {}).get("allowed"))
