"""Names of objects as kubectl's own commands take them, ``TYPE/NAME`` or ``TYPE NAME``, and their completion.

A completion asks the cluster for a moment only, and offers nothing where the cluster does not answer in time.
"""

from collections.abc import Awaitable, Callable, Iterable

import click
from click.shell_completion import CompletionItem

from kubectl_numazones.reading.event_loop import run_until_complete
from kubectl_numazones.reading.source import Source, connect
from numazones.errors import NumazonesError
from numazones_client.resources import (
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)

_OWNERS = {
    "Deployment": ("deploy", "deployment", "deployments"),
    "ReplicaSet": ("rs", "replicaset", "replicasets"),
    "StatefulSet": ("sts", "statefulset", "statefulsets"),
    "Job": ("job", "jobs"),
    "DaemonSet": ("ds", "daemonset", "daemonsets"),
}
OWNER_TYPES = {name: kind for kind, names in _OWNERS.items() for name in names}
"""kubectl's word for a kind of pods' owners → the kind."""
POD_TYPES = ("pods", "pod", "po")
NODE_TYPES = ("nodes", "node", "no")
_RESOURCES = {
    "Deployment": DEPLOYMENTS,
    "ReplicaSet": REPLICA_SETS,
    "StatefulSet": STATEFUL_SETS,
    "Job": JOBS,
}
_COMPLETION_SECONDS = 2.0


def joined(names: tuple[str, ...], types: Iterable[str]) -> tuple[str, ...]:
    """Return ``TYPE NAME...`` as ``TYPE/NAME...``; other names as they are."""
    kind, *rest = names or ("",)
    if rest and kind.partition(".")[0] in types and not any("/" in name for name in rest):
        return tuple(f"{kind}/{name}" for name in rest)
    return names


def without_type(name: str, types: Iterable[str]) -> str:
    """Return the name of ``TYPE/NAME``; other names as they are."""
    kind, slash, rest = name.partition("/")
    return rest if slash and kind in types else name


class NodeCommand(click.Command):
    """A command whose first argument is a node: NODE, node/NODE or node NODE."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Drop the type that stands before the node's name."""
        if len(args) > 1 and args[0] in NODE_TYPES and not args[1].startswith("-"):
            args = args[1:]
        return super().parse_args(ctx, args)


def source_of(ctx: click.Context) -> Source:
    """Return the cluster that the options of a half-typed command line name."""
    given = ctx.params
    return Source(
        (),
        given.get("kubeconfig"),
        given.get("context"),
        given.get("namespace") or "",
        given.get("as_user") or "",
        tuple(given.get("as_groups") or ()),
    )


def completions(
    ctx: click.Context, ask: Callable[[Source], Awaitable[list[CompletionItem]]]
) -> list[CompletionItem]:
    """Return what the cluster offers within moments; nothing for a dump, or where it does not answer."""
    if ctx.params.get("filename"):
        return []
    import asyncio  # noqa: PLC0415 - commands that read dumps need no event loop

    async def asked() -> list[CompletionItem]:
        async with asyncio.timeout(_COMPLETION_SECONDS):
            return await ask(source_of(ctx))

    try:
        return run_until_complete(asked())
    except (NumazonesError, OSError, TimeoutError):
        return []


def complete_pods(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the pods of the namespace; after the type of an owner, such owners."""
    given = tuple(ctx.params.get("names") or ctx.params.get("pods") or ())
    kind, slash, bare = incomplete.partition("/")
    if not slash and given:
        kind, bare = given[0], incomplete
    resource = _RESOURCES.get(OWNER_TYPES.get(kind, ""), PODS)
    if slash and resource is PODS and kind not in POD_TYPES:
        return []
    before = f"{kind}/" if slash else ""
    return _names(ctx, resource, bare, before=before, without=given)


def complete_nodes(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the nodes."""
    return _names(ctx, NODES, incomplete, without=ctx.params.get("names") or ())


def complete_namespaces(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the namespaces."""
    return _names(ctx, NAMESPACES, incomplete)


def _names(
    ctx: click.Context, resource: Resource, start: str, *, before: str = "", without: Iterable[str] = ()
) -> list[CompletionItem]:
    async def ask(source: Source) -> list[CompletionItem]:
        async with await connect(source) as client:
            namespace = source.namespace or client.config.namespace if resource.namespaced else ""
            bodies = await client.list(resource, namespace=namespace)
        names = sorted(str(body["metadata"]["name"]) for body in bodies)
        return [CompletionItem(f"{before}{name}") for name in names if name.startswith(start)]

    return [item for item in completions(ctx, ask) if item.value not in set(without)]
