"""The exceptions for what an API server answers.

A Kubernetes ``Status`` names a code, a reason, a message and details; see
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/. Every exception says
which request failed on which object, what the server said and what to do about it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from numazones.errors import NumazonesError

_MAX_TEXT = 500


@dataclass(frozen=True, slots=True)
class Request:
    """Request that an error names."""

    verb: str
    subject: str
    """The object or collection: ``numazones.numazones.io worker-1-numa-0``."""
    resource: str = ""
    """Resource type as RBAC names it, empty for raw paths."""

    def __str__(self) -> str:
        return f"{self.verb} {self.subject}"


class APIError(NumazonesError):
    """A request to the API server failed."""

    cure: ClassVar[str] = "see the API server's log"

    def __init__(
        self,
        request: Request,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        causes: tuple[str, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        """Describe the failure; ``causes`` are the reasons of ``details.causes``."""
        self.request = request
        self.code = code
        self.reason = reason
        self.causes = causes
        self.retry_after = retry_after
        self.message = message
        super().__init__(f"{request}: {message.rstrip('.')}; {self._cure()}")

    def _cure(self) -> str:
        return self.cure


class BadRequest(APIError):
    """400: the server does not understand the request."""

    cure = "this is a bug in numazones, or the API server is older than numazones supports"


class Unauthorized(APIError):
    """401: the credentials are not accepted."""

    cure = "the token or certificate has expired or belongs to another cluster: renew it"


class Forbidden(APIError):
    """403: the credentials do not allow this, or an admission policy rejected it."""

    def _cure(self) -> str:
        if "denied" in self.message:  # admission policies and webhooks say so, RBAC says "cannot"
            return "an admission policy rejects this object: change the object, or the policy"
        if not self.request.resource:
            return "grant it to the service account (see the RBAC rules in manifests/)"
        verb = self.request.verb
        return f"grant {verb} on {self.request.resource} to the service account (see manifests/)"


class NamespaceTerminating(APIError):
    """403: nothing is created any more in a namespace that is being deleted."""

    cure = "nothing to do: its namespace is being deleted"


class NotFound(APIError):
    """404: the object does not exist."""

    cure = "it does not exist, or was deleted"


class UnknownResource(NotFound):
    """404: the API server does not know this type of resource."""

    def _cure(self) -> str:
        if self.request.resource and "." not in self.request.resource:  # every API server has the core group
            return (
                "this is not a Kubernetes API server, or its URL lacks a path: compare the server with "
                "kubectl config view --minify"
            )
        ours = self.request.resource.endswith(".numazones.io")
        where = " (kubectl apply -k crds)" if ours else ", which is not part of numazones"
        return f"install the definition of {self.request.resource or 'this resource'}{where}"


class Conflict(APIError):
    """409: somebody else changed the object, or owns the applied fields."""

    def _cure(self) -> str:
        if "FieldManagerConflict" in self.causes:
            return "another manager owns the fields: apply with force, or leave them out"
        return "it has changed in the meantime: read it again and retry"


class AlreadyExists(Conflict):
    """409: an object of this name exists."""

    def _cure(self) -> str:
        return "update it instead of creating it"


class Gone(APIError):
    """410: the resource version or the continue token is too old."""

    cure = "list again from the start"


class Invalid(APIError):
    """422: the object does not satisfy its schema or rules."""

    cure = "correct the object, or update its definition (kubectl apply -k crds)"


class TooManyRequests(APIError):
    """429: the server asks for patience, or a disruption budget forbids an eviction."""

    cure = "wait and retry"


class ServerError(APIError):
    """5xx: the server failed or is overloaded."""

    cure = "the API server is restarting or overloaded: see its log if this persists"


class UndeclaredField(ServerError):
    """500: the definition of a custom resource declares no such field, so nothing can be applied with it."""

    cure = "its definition is older than this program: update it (kubectl apply -k crds)"


class Unreachable(APIError):
    """No answer: the connection failed, broke or timed out."""

    cure = "check the server's address, the network and network policies"

    def __init__(self, request: Request, message: str, *, sent: bool) -> None:
        """Describe the failure; ``sent``: the server may have received and carried out the request."""
        super().__init__(request, message)
        self.sent = sent


_BY_CODE: dict[int, type[APIError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
_SERVER_ERROR = 500
_UNDECLARED = "field not declared in schema"
"""How the API server answers to server-side apply (structured-merge-diff); it has no reason of its own."""
_BY_REASON: dict[str, type[APIError]] = {"AlreadyExists": AlreadyExists, "Expired": Gone, "Gone": Gone}


def from_response(request: Request, code: int, body: bytes, *, retry_after: float | None = None) -> APIError:
    """Return the exception for an answer that reports failure."""
    return from_status(request, _status(body), code=code, retry_after=retry_after)


def from_status(
    request: Request, status: Mapping[str, Any], *, code: int = 0, retry_after: float | None = None
) -> APIError:
    """Return the exception for a Kubernetes Status, from an answer's body or a watch's ERROR event."""
    code = code or _integer(status.get("code"))
    reason = str(status.get("reason") or "")
    details = status.get("details")
    details = details if isinstance(details, Mapping) else {}
    if retry_after is None and details.get("retryAfterSeconds"):
        retry_after = float(_integer(details["retryAfterSeconds"]))
    causes = tuple(
        str(cause.get("reason") or "") for cause in details.get("causes") or () if isinstance(cause, Mapping)
    )
    message = str(status.get("message") or reason or f"the server returned {code}")
    kind = _kind(request, code, reason, details, causes)
    return (UndeclaredField if kind is ServerError and _UNDECLARED in message else kind)(
        request,
        message,
        code=code,
        reason=reason,
        causes=causes,
        retry_after=retry_after,
    )


def _kind(
    request: Request, code: int, reason: str, details: Mapping[str, Any], causes: tuple[str, ...]
) -> type[APIError]:
    kind = _BY_REASON.get(reason) or _BY_CODE.get(code)
    if kind is Forbidden and "NamespaceTerminating" in causes:
        return NamespaceTerminating
    if kind is None:
        return ServerError if code >= _SERVER_ERROR else APIError
    # An unknown type is rejected before any object is looked up, so the answer cannot name one.
    if kind is NotFound and request.resource and not details.get("name"):
        return UnknownResource
    return kind


def _status(body: bytes) -> Mapping[str, Any]:
    try:
        status = json.loads(body)
    except ValueError:
        status = None
    if isinstance(status, Mapping):
        return status
    return {"message": body[:_MAX_TEXT].decode(errors="replace").strip()}


def _integer(value: Any) -> int:
    return value if isinstance(value, int) else 0
