"""Tests of what a token is bound to, and of the message when its Node is gone."""

import base64
import json
from typing import Any

import pytest

from numazones_exporter.token_claims import TokenClaims, outdated_token, token_claims


def token(claims: Any) -> str:
    """A JSON Web Token with these claims; header and signature are nobody's business here."""
    return ".".join(
        base64.urlsafe_b64encode(part).rstrip(b"=").decode()
        for part in (b'{"alg":"RS256"}', json.dumps(claims).encode(), b"signature")
    )


BOUND_TO_POD = {
    "kubernetes.io": {
        "namespace": "numazones-system",
        "node": {"name": "worker-3", "uid": "old"},
        "pod": {"name": "numazones-exporter-x7k2p", "uid": "p"},
        "serviceaccount": {"name": "numazones-exporter", "uid": "s"},
    }
}
OF_POD = TokenClaims("worker-3", "old", "numazones-system", "numazones-exporter-x7k2p")
OF_NODE = TokenClaims("worker-3", "old", "numazones-system")


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        (token(BOUND_TO_POD), OF_POD),
        (token({"kubernetes.io": {"namespace": "n", "node": {"name": "w"}}}), TokenClaims("w", "", "n")),
        (token({"iss": "somebody else"}), TokenClaims()),
        (token({"kubernetes.io": "odd"}), TokenClaims()),
        (token({"kubernetes.io": {"node": {"name": 1}}}), TokenClaims()),
        (token(["a list"]), TokenClaims()),
        ("a-static-token", TokenClaims()),
        ("a.%%%.c", TokenClaims()),
        ("a.é.c", TokenClaims()),
        ("", TokenClaims()),
    ],
)
def test_claims_are_read_from_tokens_of_any_origin(text: str, bound: TokenClaims) -> None:
    assert token_claims(text) == bound


@pytest.mark.parametrize(
    ("claims", "node_uid", "parts"),
    [
        (OF_POD, "old", []),
        (TokenClaims(), "new", []),
        (TokenClaims("another-node", "old"), "new", []),
        (
            OF_POD,
            "new",
            [
                "token names Node worker-3 with uid old, but the Node was recreated",
                "has uid new now",
                "kubectl -n numazones-system delete pod numazones-exporter-x7k2p",
            ],
        ),
        (OF_NODE, "new", ["has uid new now; give the exporter a token that is bound to the current Node"]),
        (
            OF_NODE,
            None,
            ["bound to Node worker-3 with uid old; if that Node has been deleted or recreated since"],
        ),
    ],
)
def test_token_of_a_deleted_node_is_named_with_the_cure(
    claims: TokenClaims, node_uid: str | None, parts: list[str]
) -> None:
    said = outdated_token(claims, node_name="worker-3", node_uid=node_uid)
    assert bool(said) == bool(parts)
    assert [part for part in parts if part not in said] == []
