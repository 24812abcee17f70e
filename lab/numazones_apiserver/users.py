"""User of a request: the administrator, or the user that the administrator impersonates.

Nobody is authenticated by name here; ``Impersonate-User`` and the headers beside it (kubernetes.io,
"User impersonation"; ``kubectl --as``) let a request be made in the name of anybody, which policies then see.
"""

from collections.abc import Mapping
from urllib.parse import unquote

from numazones_apiserver import errors
from numazones_apiserver.admission_policies.review import User
from numazones_apiserver.requests import HTTPRequest

ADMINISTRATOR = User("admin", ("system:masters", "system:authenticated"))
_EXTRA = "impersonate-extra-"
_SERVICE_ACCOUNT = "system:serviceaccount:"


def user_of(request: HTTPRequest) -> User:
    """The user of a request; raises StatusError 400 for impersonation without a name."""
    headers = request.headers
    name, groups = headers.get("Impersonate-User", ""), headers.getall("Impersonate-Group", [])
    extra = _extra(request)
    if not name:
        if groups or extra or "Impersonate-Uid" in headers:
            raise errors.bad_request("requested impersonation of groups, uid or extra without a user")
        return ADMINISTRATOR
    if (
        not groups
        and name.startswith(_SERVICE_ACCOUNT)
        and name.count(":") == _SERVICE_ACCOUNT.count(":") + 1
    ):
        namespace = name.removeprefix(_SERVICE_ACCOUNT).partition(":")[0]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    everybody = "system:unauthenticated" if name == "system:anonymous" else "system:authenticated"
    groups = [*groups, *([everybody] if everybody not in groups else [])]
    return User(name, tuple(groups), headers.get("Impersonate-Uid", ""), extra)


def _extra(request: HTTPRequest) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for header, value in request.headers.items():
        if header.lower().startswith(_EXTRA):
            key = unquote(header[len(_EXTRA) :].lower())
            found[key] = (*found.get(key, ()), value)
    return found
