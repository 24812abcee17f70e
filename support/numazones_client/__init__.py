"""The client for Kubernetes API servers that all programs use: small and asynchronous.

The exporter runs on every node within a few dozen MiB, and the operator reads fifty thousand pods in
seconds; the official client's typed models serve neither, so this client moves bytes and plain
mappings over aiohttp and leaves decoding to its caller (``Decoder``).
"""

from numazones_client.client import Client
from numazones_client.config import ClusterConfig, ConfigError, in_cluster
from numazones_client.decoding import JSON, Decoder, Event, Page, Unreadable, by_name, by_uid
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
from numazones_client.kubeconfig import from_kubeconfig, load
from numazones_client.reflector import Backoff, Pace, Reflector
from numazones_client.resources import Resource
from numazones_client.retry import NO_RETRY, RetryPolicy
from numazones_client.table import Table

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
