"""Reading and opening the scheduling gate on a live cluster, without the operator.

Everything here asks the API server alone, so that people are never at the mercy of an operator that is away.
A pod that is released so goes to wherever the scheduler puts it, as if there were no gate.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

from kubectl_numazones.reading.names import POD_TYPES, without_type
from kubectl_numazones.stuck.gated_pods import (
    OPERATOR,
    gates_of,
    is_gated,
    is_live,
    leads_without_lease,
    opted_in,
    trouble,
)
from numazones.cluster.admission_gate import GATE, WITHOUT_GATE
from numazones.errors import NumazonesError
from numazones_client import APIError, Client, Conflict, Forbidden, NotFound, Resource
from numazones_client.client import STRATEGIC_MERGE_PATCH
from numazones_client.resources import ADMISSION_PREDICTIONS, LEASES, NAMESPACES, PODS

BINDINGS = Resource("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings", namespaced=False)
INJECTION = "numazones-admission-gate"
"""Name of the policy's binding, without which nothing is injected."""

_AT_ONCE = 32
_SETTLES = 2.0
"""Seconds for which an API server may still inject after the binding is gone; it looks once a second."""

Object = dict[str, Any]


class Unanswerable(NumazonesError):
    """Raised when a request cannot be fulfilled; the message says why."""


@dataclass(frozen=True, slots=True)
class Injection:
    """State of gate injection into new pods."""

    TITLE: ClassVar = "GateInjection"
    on: Annotated[bool | None, "Null if unknown."]
    message: Annotated[str, "The same in a sentence."]


@dataclass(frozen=True, slots=True)
class GatedPod:
    """A pod at the gate."""

    namespace: Annotated[str, "Namespace of the pod."]
    name: Annotated[str, "Name of the pod."]
    since: Annotated[str, "When the pod was created."]
    why: Annotated[str, "Why the gate has not been removed."]


@dataclass(frozen=True, slots=True)
class GateDocument:
    """``gate``: the pods that are waiting at the scheduling gate, and why."""

    injection: Annotated[Injection, "Whether new pods get the gate."]
    operator: Annotated[str, "Whether the operator is running, in a sentence."]
    waiting: Annotated[Sequence[GatedPod], "Pods at the gate, the longest-waiting first."]


@dataclass(slots=True)
class Released:
    """Outcome for the pods to release."""

    done: int = 0
    gone: int = 0
    """Pods that ended, or were released, meanwhile."""
    failed: dict[str, str] = field(default_factory=dict)
    """NAMESPACE/NAME → why."""


async def status(client: Client, namespace: str = "", labels: str = "") -> GateDocument:
    """Say who waits, since when and why; in one namespace, or in all; those with some labels, or all.

    Raises:
        APIError: pods cannot be listed.
    """
    pods = await gated(client, namespace, labels)
    namespaces = await _list(client, NAMESPACES)
    operators = await _list(client, PODS, f"app.kubernetes.io/name={OPERATOR}") or []
    leader = await _leader(client, operators)
    made = {
        (item["metadata"].get("namespace", ""), item["metadata"]["name"]): item.get("status") or {}
        for item in await _list(client, ADMISSION_PREDICTIONS) or ()
    }
    opted = None if namespaces is None else opted_in(namespaces)
    waiting = []
    for pod in pods:
        metadata = pod["metadata"]
        where = metadata.get("namespace", "default")
        others = [name for name in gates_of(pod) if name != GATE]
        stands = trouble(where, {where} if opted is None else opted, operators, leads=leader[0] is True)
        if stands is not None:
            why = f"{stands.why}; {stands.cure}"
        elif leader[0] is False:
            why = "no operator is running"
        elif others:
            why = f"other gates must be removed first: {', '.join(others)}"
        else:
            why = made.get((where, metadata["name"]), {}).get("message") or "no prediction yet"
        waiting.append(GatedPod(where, metadata["name"], metadata.get("creationTimestamp", ""), why))
    waiting.sort(key=lambda item: (item.since, item.namespace, item.name))
    return GateDocument(await injection(client), _operator(operators, leader), waiting)


async def gated(client: Client, namespace: str = "", labels: str = "") -> list[Object]:
    """List the pods that carry the gate."""
    # No node is assigned to a gated pod.
    pages = client.pages(PODS, namespace=namespace, label_selector=labels, field_selector="spec.nodeName=")
    return [pod async for page in pages for pod in page.items if is_gated(pod)]


async def count_everywhere(client: Client, labels: str = "") -> int:
    """Count the pods that carry the gate in all namespaces; 0 where they cannot be listed."""
    try:
        return len(await gated(client, labels=labels))
    except APIError:
        return 0


async def named(client: Client, names: Iterable[str], namespace: str) -> list[Object]:
    """Return the gated pods that a user named.

    Raises:
        Unanswerable: one is not there, or does not carry the gate.
    """
    found = []
    for name in names:
        where, slash, bare = without_type(name, POD_TYPES).partition("/")
        where, bare = (where, bare) if slash else (namespace, where)
        try:
            pod = await client.get(PODS, bare, namespace=where)
        except NotFound as error:
            raise Unanswerable(f"there is no pod {bare} in namespace {where}") from error
        if not is_gated(pod):
            raise Unanswerable(f"pod {where}/{bare} does not have the gate {GATE}")
        found.append(pod)
    return found


async def release(client: Client, pods: Sequence[Object], progress: Callable[[int], None]) -> Released:
    """Take the gate of pods away, many at a time; ``progress`` is told how many are through."""
    found, slots = Released(), asyncio.Semaphore(_AT_ONCE)

    async def one(pod: Object) -> None:
        metadata = pod["metadata"]
        where, name = metadata["namespace"], metadata["name"]
        patch = {
            "metadata": {"uid": metadata["uid"]},
            "spec": {"schedulingGates": WITHOUT_GATE},
        }
        async with slots:
            try:
                await client.patch(PODS, name, patch, namespace=where, media_type=STRATEGIC_MERGE_PATCH)
            except (NotFound, Conflict):
                found.gone += 1
            except APIError as error:
                found.failed[f"{where}/{name}"] = (
                    f"you may not patch pods in namespace {where} (kubectl auth can-i patch pods -n {where})"
                    if isinstance(error, Forbidden)
                    else str(error)
                )
            else:
                found.done += 1
            progress(found.done + found.gone + len(found.failed))

    async with asyncio.TaskGroup() as tasks:
        for pod in pods:
            tasks.create_task(one(pod))
    return found


async def injection(client: Client) -> Injection:
    """Find out whether new pods get the gate."""
    try:
        await client.get(BINDINGS, INJECTION)
    except NotFound:
        return Injection(on=False, message="off: no policy adds the gate to new pods")
    except APIError as error:
        return Injection(on=None, message=f"unknown: {error}")
    return Injection(
        on=True,
        message=f"on, through MutatingAdmissionPolicyBinding {INJECTION}, as long as the operator may "
        "release pods",
    )


async def switch_off(client: Client) -> None:
    """Delete the binding of the policy, so that nothing new is gated; wait until that is in force.

    Raises:
        Unanswerable: the user may not.
    """
    try:
        await client.delete(BINDINGS, INJECTION)
    except NotFound:
        return
    except Forbidden as error:
        raise Unanswerable(
            f"you may not delete MutatingAdmissionPolicyBinding {INJECTION}, so new pods still get the "
            f"gate (kubectl auth can-i delete {BINDINGS.plural}); ask someone with this permission to "
            "run the command"
        ) from error
    await asyncio.sleep(_SETTLES)


async def _list(client: Client, resource: Resource, selector: str = "") -> list[Object] | None:
    """List objects; None where that is not possible."""
    try:
        return await client.list(resource, label_selector=selector)
    except APIError:
        return None


async def _leader(client: Client, operators: Sequence[Object]) -> tuple[bool | None, str]:
    """Return whether an operator leads, and a phrase that says so; None where that is unknown."""
    alone = next(filter(leads_without_lease, operators), None)
    if alone is not None:
        return True, f"{alone['metadata']['name']} is running without leader election"
    try:
        leases = await client.list(LEASES, field_selector=f"metadata.name={OPERATOR}")
    except APIError as error:
        return None, f"it is unknown whether an operator is running: {error}"
    now = datetime.now(UTC)
    live = next((lease for lease in leases if is_live(lease, now)), None)
    if live is not None:
        return True, f"{live['spec']['holderIdentity']} is the leader"
    renewed = max(((lease.get("spec") or {}).get("renewTime") or "" for lease in leases), default="")
    since = f" since {renewed}" if renewed else ""
    return False, f"no operator is running{since}"


def _operator(operators: Sequence[Object], leader: tuple[bool | None, str]) -> str:
    """Return a sentence about the operator: whether it leads, and whether it releases gated pods."""
    leads, phrase = leader
    stands = trouble("", {""}, operators, leads=leads is True)
    if leads is False:
        cure = "Check its pods and log" if stands is None else stands.cure
        return f"{phrase}, so gated pods are not released. {cure}"
    if not operators:
        return f"{phrase}; none of its pods is in this cluster, so its settings are unknown"
    return f"{phrase}; {'it releases gated pods' if stands is None else stands.why}"
