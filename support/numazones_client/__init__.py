"""The client for Kubernetes API servers that all programs use: small and asynchronous.

The exporter runs on every node within a few dozen MiB, and the operator reads fifty thousand pods in
seconds; the official client's typed models serve neither, so this client moves bytes and plain
mappings over aiohttp and leaves decoding to its caller (``Decoder``).

Errors and resources load at once, the rest when it is first used: a program that reads files can import this
package without paying for aiohttp and ssl.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from numazones_client.errors import (
    AlreadyExists,
    APIError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NamespaceTerminating,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    UndeclaredField,
    UnknownResource,
    Unreachable,
)
from numazones_client.resources import Resource
from numazones_client.table import Table

if TYPE_CHECKING:
    from numazones_client.client import Client
    from numazones_client.config import ClusterConfig, ConfigError, in_cluster
    from numazones_client.decoding import JSON, Decoder, Event, Page, Unreadable, by_name, by_uid
    from numazones_client.kubeconfig import from_kubeconfig, load
    from numazones_client.reflector import Backoff, Pace, Reflector
    from numazones_client.retry import NO_RETRY, RetryPolicy
    from numazones_client.transport import Transport

__all__ = [
    "JSON",
    "NO_RETRY",
    "APIError",
    "AlreadyExists",
    "Backoff",
    "BadRequest",
    "Client",
    "ClusterConfig",
    "ConfigError",
    "Conflict",
    "Decoder",
    "Event",
    "Forbidden",
    "Gone",
    "Invalid",
    "NamespaceTerminating",
    "NotFound",
    "Pace",
    "Page",
    "Reflector",
    "Resource",
    "RetryPolicy",
    "ServerError",
    "Table",
    "TooManyRequests",
    "Transport",
    "Unauthorized",
    "UndeclaredField",
    "UnknownResource",
    "Unreachable",
    "Unreadable",
    "by_name",
    "by_uid",
    "from_kubeconfig",
    "in_cluster",
    "load",
]

_LOADED_LATE = {
    "client": ("Client",),
    "config": ("ClusterConfig", "ConfigError", "in_cluster"),
    "decoding": ("JSON", "Decoder", "Event", "Page", "Unreadable", "by_name", "by_uid"),
    "kubeconfig": ("from_kubeconfig", "load"),
    "reflector": ("Backoff", "Pace", "Reflector"),
    "retry": ("NO_RETRY", "RetryPolicy"),
    "transport": ("Transport",),
}
_HOME = {name: module for module, names in _LOADED_LATE.items() for name in names}


if not TYPE_CHECKING:  # type checkers know the names from above, and find misspelt ones

    def __getattr__(name: str) -> Any:
        """Load a name from the module that defines it (PEP 562)."""
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
