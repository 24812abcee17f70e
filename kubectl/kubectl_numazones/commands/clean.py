"""``clean``: delete pods that a kubelet rejected and that their owner has replaced."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import click

from kubectl_numazones.printing import screen
from kubectl_numazones.printing.output import Output, output_option
from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.cluster import source_options
from kubectl_numazones.reading.event_loop import run_until_complete
from kubectl_numazones.reading.files import distinct_objects
from kubectl_numazones.reading.selection import all_namespaces_option, none_here, selector_option
from kubectl_numazones.reading.source import Source, connect
from numazones.apimachinery.api_object import MALFORMED
from numazones.apimachinery.label_selector import LabelSelector
from numazones.cluster.cluster import ClusterPod
from numazones.cluster.dump import Dump
from numazones.cluster.rejected_pods import RejectedPod, rejected_pods
from numazones.wording import pluralize
from numazones_client import APIError, Client, Conflict, Forbidden, NotFound
from numazones_client.resources import JOBS, PODS, REPLICA_SETS
from numazones_program.columns import Column

_OWNERS = (REPLICA_SETS, JOBS)
_KINDS = frozenset({("apps/v1", "ReplicaSet"), ("batch/v1", "Job")})
_EPILOG = """
\b
Examples:
  List the rejected pods of all namespaces:
    kubectl numazones clean --rejected -A

\b
  In one namespace, delete those that their owners have replaced:
    kubectl numazones clean --rejected -n my-namespace --yes
"""


@dataclass(frozen=True, slots=True)
class CleanDocument:
    """``clean``: the pods that kubelets rejected and that are still there."""

    items: Annotated[list[RejectedPod], "Rejected pods, the oldest first."]
    deleted: Annotated[list[str], "Namespaces and names of the pods that were deleted."]
    failed: Annotated[dict[str, str], "Namespaces and names of the pods that could not be deleted, and why."]


@click.command("clean", epilog=_EPILOG)
@click.option(
    "--rejected",
    is_flag=True,
    help="Clean up pods that a kubelet rejected (required; nothing else can be cleaned up).",
)
@click.option(
    "--yes",
    is_flag=True,
    help="Delete the pods that their owners have replaced; without --yes, only list them.",
)
@selector_option("pods")
@all_namespaces_option
@output_option("text", "name")
@source_options
def command(
    source: Source,
    *,
    rejected: bool,
    yes: bool,
    selector: LabelSelector | None,
    everywhere: bool,
    output: Output,
) -> int:
    """List the pods that kubelets rejected; with --yes, delete those that their owners have replaced.

    A pod counts as replaced when its ReplicaSet or Job has all its pods without it. Pods without an owner are
    kept, and so are pods whose owner creates no replacement while they exist. Pods are deleted with your own
    permissions. The exit code is 1 if a pod could not be deleted.
    """
    if not rejected:
        raise click.UsageError("say what to clean: --rejected")
    if yes and source.files:
        raise BadDump("clean --yes needs a live cluster; with a dump (-f), clean only lists pods")
    found, where, document, now = (
        _of_files(source, selector, everywhere=everywhere)
        if source.files
        else run_until_complete(_of_cluster(source, selector, everywhere=everywhere, delete=yes))
    )
    if output.is_document:
        output.write(document)
    elif output.form == "name":
        for one in found:
            screen.echo(f"pod/{one.name}")
    else:
        _print(found, where, document, now, yes=yes)
    return int(bool(document.failed))


CleanSelection = tuple[list[RejectedPod], str, CleanDocument, datetime]
"""The pods, where they were looked for, the answer, and when the cluster was read."""


def _of_files(source: Source, selector: LabelSelector | None, *, everywhere: bool) -> CleanSelection:
    objects = distinct_objects(source.files)
    bodies = [body for body in objects if body.get("kind") == "Pod"]
    owners = [body for body in objects if (body.get("apiVersion"), body.get("kind")) in _KINDS]
    namespace = "" if everywhere else source.namespace
    found = _selected(bodies, owners, selector, namespace)
    where = f" in namespace {namespace}" if namespace else ""
    return found, where, CleanDocument(found, [], {}), Dump.of(objects).moment


async def _of_cluster(
    source: Source, selector: LabelSelector | None, *, everywhere: bool, delete: bool
) -> CleanSelection:
    async with await connect(source) as client:
        namespace = "" if everywhere else source.namespace or client.config.namespace
        bodies = await client.list(PODS, namespace=namespace)
        owners: list[Mapping[str, Any]] = []
        for kind in _OWNERS:
            try:
                owners += await client.list(kind, namespace=namespace)
            except (Forbidden, NotFound) as error:
                screen.warn(f"{kind.plural} cannot be listed, so their pods are kept: {error}")
        found = _selected(bodies, owners, selector, "")
        document = CleanDocument(found, [], {})
        if delete:
            await _delete(client, [one for one in found if one.replaced], document)
        return found, "" if everywhere else none_here(namespace, 0), document, datetime.now(UTC)


def _selected(
    bodies: Sequence[Mapping[str, Any]],
    owners: Sequence[Mapping[str, Any]],
    selector: LabelSelector | None,
    namespace: str,
) -> list[RejectedPod]:
    """Return the rejected pods that are asked about; all pods count as replacements."""
    try:
        pods = [ClusterPod.from_api(body) for body in bodies]
        found = rejected_pods(pods, owners)
    except MALFORMED as error:
        raise BadDump(f"a pod, or its owner, cannot be read: {error}") from error
    wanted = {pod.uid for pod in pods if selector is None or selector.matches(pod.labels)}
    return [one for one in found if one.uid in wanted and (not namespace or one.namespace == namespace)]


async def _delete(client: Client, pods: Sequence[RejectedPod], document: CleanDocument) -> None:
    for one in pods:
        name = f"{one.namespace}/{one.name}"
        try:
            await client.delete(PODS, one.name, namespace=one.namespace, uid=one.uid)
        except (NotFound, Conflict):
            continue  # already deleted, or another pod has its name now
        except Forbidden:
            document.failed[name] = (
                f"you may not delete pods in namespace {one.namespace} "
                f"(kubectl auth can-i delete pods -n {one.namespace})"
            )
        except APIError as error:
            document.failed[name] = str(error)
        else:
            document.deleted.append(name)


def _print(
    found: Sequence[RejectedPod], where: str, document: CleanDocument, now: datetime, *, yes: bool
) -> None:
    if not found:
        screen.echo(f"No rejected pods{where}")
        return
    columns: tuple[Column[RejectedPod], ...] = (
        Column("POD", lambda one: f"{one.namespace}/{one.name}"),
        Column("REASON", lambda one: one.reason),
        Column("NODE", lambda one: one.node),
        Column("AGE", lambda one: screen.age(one.created, now)),
        Column("REPLACED", lambda one: "yes" if one.replaced else "no"),
        Column("WHY", lambda one: one.why),
    )
    screen.print_table(columns, found)
    replaced = sum(one.replaced for one in found)
    if not yes:
        screen.say(f"{replaced} of {pluralize(len(found), 'pod')} can be deleted; use --yes to delete them")
        return
    screen.say(f"deleted {pluralize(len(document.deleted), 'pod')}")
    for name, why in sorted(document.failed.items()):
        screen.echo(f"error: {name} was not deleted: {why}", err=True)
