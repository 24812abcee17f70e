"""kopf's handlers: for the kinds that people write and that change seldom.

- RebalancePolicy: ``policy_changed`` takes it in; one that cannot be read counts as gone, and says so.
- RebalanceRecommendation: ``recommendation_changed`` does the same; ``approved``, a handler of the field
  ``spec.approved``, has the plan carried out, or says why that will not happen.
- Namespace: ``namespace_changed`` takes in its labels, which opt in to the admission gate, and by which
  policies select; ``opted_in_in_vain`` says that this operator releases no pods.

kopf runs on the replica that leads, for as long as it leads (``leading``), so no handler runs twice and none
asks who leads. Pods, nodes, zones and what else comes in tens of thousands are mirrored by reflectors on
every replica instead: 50,000 pods take kopf 29 to 69 s and up to 455 MiB where a reflector takes 1.2 s and 68
MiB, an index of 4,000 objects takes 61 s, and after a 410 kopf's watch never tells of what vanished
meanwhile (docs/decisions.md, docs/architecture.md). ``intent`` says how the last is made good here.

All handlers are coroutines, for kopf runs plain functions in threads, and what they touch lives on one loop.
No timers, daemons or deletion handlers: for each of them kopf puts a finalizer on the object, and a policy
could not be deleted, nor its definition uninstalled, while no operator runs. Nothing outside the cluster has
to be cleaned up, so a finalizer would earn nothing. The one annotation, on approved recommendations, earns
that an approval is heard once, also if it is given while nobody leads.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import kopf

from numazones.api.meta import API_VERSION
from numazones_client import ClusterConfig
from numazones_client.resources import REBALANCE_POLICIES, REBALANCE_RECOMMENDATIONS
from numazones_operator.events import COMPONENT, NORMAL, WARNING, EventPoster, object_reference
from numazones_operator.mirror.decoding import NamespaceLabels
from numazones_operator.placement.admission_gates import GATE, OPT_IN, SWITCHED_OFF
from numazones_operator.rebalance.intent import Intent
from numazones_operator.rebalance.objects import APPROVE, PolicyObject, Recommendation, condition

NAMESPACES = ("v1", "namespaces")
POLICIES = (API_VERSION, REBALANCE_POLICIES.plural)
RECOMMENDATIONS = (API_VERSION, REBALANCE_RECOMMENDATIONS.plural)

PREFIX = "numazones.io"
"""Of the annotations in which kopf keeps what it has handled."""
_PLAN = ("spec.moves", "spec.placements", "spec.gain", "spec.disruption", "spec.goal", "spec.expires")
"""Parts of a recommendation that need not be remembered to notice an approval."""


@dataclass(frozen=True, slots=True)
class Memo:
    """What kopf hands to every handler."""

    config: ClusterConfig
    identity: str
    events: EventPoster
    intent: Intent
    gates: bool
    """Whether this operator releases gated pods."""
    rebalance: bool
    """Whether it follows policies."""
    told: set[str] = field(default_factory=set)
    """UIDs of the namespaces that were told that they opted in in vain."""


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Set kopf up: small lists, short-lived workers, annotations in our own name."""
    settings.watching.chunk_size = 500
    settings.watching.server_timeout = 300
    settings.queueing.idle_timeout = 0.5
    # Who ceases to lead has to cease at once.
    settings.queueing.exit_timeout = 0.5
    # Events keep to the operator's rate, which kopf does not know.
    settings.posting.enabled = False
    settings.posting.loggers = False
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=PREFIX)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(
        prefix=PREFIX, key="last-handled", ignored_fields=_PLAN
    )
    # The process ends by itself; a killing scheduled for the end of one term would strike a later one.
    settings.process.ultimate_exiting_timeout = None


@kopf.on.login()
async def login(memo: Memo, **_: Any) -> kopf.AiohttpSession:
    """Let kopf speak to the API server as everything else here does."""
    return kopf.AiohttpSession(
        server=memo.config.server, aiohttp_session=_session(memo.config), default_namespace=None
    )


@kopf.on.event(*POLICIES)
async def policy_changed(type: str, body: kopf.Body, patch: kopf.Patch, memo: Memo, **_: Any) -> None:  # noqa: A002
    """Take a policy in; one that makes no sense is not followed from now on, and says so."""
    intent = memo.intent
    if type == "DELETED":
        intent.drop(intent.policies, str(body.metadata.name))
        return
    problem = intent.take(intent.policies, PolicyObject.from_api, dict(body))
    if problem:
        _report(body, patch, "Unreadable", problem)
    elif not memo.rebalance:
        _report(body, patch, "NotFollowed", "the operator runs with --no-rebalance, so it makes no plans")


@kopf.on.event(*RECOMMENDATIONS)
async def recommendation_changed(
    type: str,  # noqa: A002
    body: kopf.Body,
    patch: kopf.Patch,
    memo: Memo,
    **_: Any,
) -> None:
    """Take a recommendation in; one that makes no sense is not carried out, and says so."""
    intent = memo.intent
    if type == "DELETED":
        intent.drop(intent.recommendations, str(body.metadata.name))
        return
    problem = intent.take(intent.recommendations, Recommendation.from_api, dict(body))
    if problem and body.status.get("message") != problem:
        patch.status["message"] = problem


@kopf.on.field(*RECOMMENDATIONS, field="spec.approved", new=True)
async def approved(body: kopf.Body, memo: Memo, **_: Any) -> None:
    """Confirm an approval, or say why nothing will come of it."""
    policy = memo.intent.policies.get(str(body.spec.get("policy")))
    phase = body.status.get("phase") or "Proposed"
    if policy is None:
        memo.events.post(
            object_reference(body),
            type=WARNING,
            reason="ApprovalInVain",
            message=f"policy {body.spec.get('policy')} is gone or cannot be followed, "
            "so nothing is carried out",
        )
    elif policy.spec.mode != APPROVE:
        memo.events.post(
            object_reference(body),
            type=WARNING,
            reason="ApprovalInVain",
            message=f"policy {policy.name} is in mode {policy.spec.mode}, which asks for no approval; "
            f"set its spec.mode to {APPROVE}",
        )
    elif phase != "Proposed":
        memo.events.post(
            object_reference(body),
            type=WARNING,
            reason="ApprovalInVain",
            message=f"the recommendation is {phase} already",
        )
    else:
        memo.events.post(
            object_reference(body),
            type=NORMAL,
            reason="Approved",
            message="the plan is proven once more and then carried out",
        )
    memo.intent.changed.set()


@kopf.on.event(*NAMESPACES)
async def namespace_changed(type: str, body: kopf.Body, memo: Memo, **_: Any) -> None:  # noqa: A002
    """Take a namespace's labels in."""
    intent = memo.intent
    if type == "DELETED":
        intent.drop(intent.namespaces, str(body.metadata.name))
    else:
        intent.take(intent.namespaces, NamespaceLabels.from_api, dict(body))


@kopf.on.event(*NAMESPACES, labels={OPT_IN[0]: OPT_IN[1]}, when=lambda memo, **_: not memo.gates)
async def opted_in_in_vain(body: kopf.Body, memo: Memo, **_: Any) -> None:
    """Say, once, that gated pods of this namespace wait for ever."""
    uid = str(body.metadata.uid)
    if uid not in memo.told:
        memo.told.add(uid)
        memo.events.post(
            object_reference(body),
            type=WARNING,
            reason="AdmissionGateOff",
            message=f"pods with the scheduling gate {GATE} are not released: {SWITCHED_OFF}",
        )


def _report(body: kopf.Body, patch: kopf.Patch, reason: str, problem: str) -> None:
    """Write the condition Ready=False where it is not there yet."""
    found = condition(
        body.status.get("conditions") or (),
        "Ready",
        status="False",
        reason=reason,
        message=problem,
        generation=body.metadata.get("generation"),
    )
    if found is not None:
        patch.status["conditions"] = [found]
        patch.status["observedGeneration"] = body.metadata.get("generation")


def _session(config: ClusterConfig) -> aiohttp.ClientSession:
    """Open kopf's own connections, with credentials that are read anew for every request."""

    async def authenticate(
        request: aiohttp.ClientRequest, handler: Callable[[aiohttp.ClientRequest], Any]
    ) -> aiohttp.ClientResponse:
        token = await config.credentials.token()
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        response: aiohttp.ClientResponse = await handler(request)
        return response

    ssl = config.ssl_context if config.ssl_context is not None else True
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=ssl),
        headers={"User-Agent": COMPONENT},
        middlewares=(authenticate,),
        proxy=config.proxy,
    )
