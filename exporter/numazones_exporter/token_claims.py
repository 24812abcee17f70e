"""Claims of a service account token, read without checking its signature.

The token of a pod names the pod's Node with its uid (KEP-4193, stable since Kubernetes 1.32). A Node that
is deleted and made anew has another uid, while the token keeps the old one until it is renewed: then the
API server refuses what the exporter writes, and does not say why. This module does, for the log.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """The Node and the pod that a token is bound to; empty where it is bound to none."""

    node: str = ""
    node_uid: str = ""
    namespace: str = ""
    pod: str = ""


def token_claims(token: str) -> TokenClaims:
    """Return what a token is bound to; nothing where it is no service account's JSON Web Token."""
    try:
        payload = token.split(".")[1]
        document = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError, RecursionError):
        return TokenClaims()
    claims = _mapping(document, "kubernetes.io")
    node, pod = _mapping(claims, "node"), _mapping(claims, "pod")
    return TokenClaims(
        _text(node, "name"), _text(node, "uid"), _text(claims, "namespace"), _text(pod, "name")
    )


def outdated_token(claims: TokenClaims, *, node_name: str, node_uid: str | None) -> str:
    """Say that a token was made for a Node that is gone, and what helps; empty where that is not so.

    Args:
        claims: of the token with which the API server refused something.
        node_name: the exporter's node.
        node_uid: uid of its Node; None where the API server did not tell it.
    """
    if claims.node != node_name or not claims.node_uid or claims.node_uid == node_uid:
        return ""
    if claims.pod:
        cure = (
            "delete the exporter's pod; its replacement gets a new token at once (kubectl -n "
            f"{claims.namespace} delete pod {claims.pod}); otherwise, the kubelet renews this one "
            "within an hour"
        )
    else:
        cure = "give the exporter a token that is bound to the current Node"
    if node_uid is None:
        return (
            f"the exporter's token is bound to Node {node_name} with uid {claims.node_uid}; if that "
            f"Node has been deleted or recreated since, {cure}"
        )
    return (
        f"the exporter's token names Node {node_name} with uid {claims.node_uid}, but the Node was "
        f"recreated and has uid {node_uid} now; {cure}"
    )


def _mapping(document: Any, key: str) -> Mapping[str, Any]:
    found = document.get(key) if isinstance(document, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _text(document: Mapping[str, Any], key: str) -> str:
    found = document.get(key)
    return found if isinstance(found, str) else ""
