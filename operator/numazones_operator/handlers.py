"""kopf's handlers: for the kinds that people write and that change seldom.

- RebalancePolicy: ``policy_changed`` takes it in, and has its condition Ready written; one that cannot be
  read counts as gone. ``rebalance.proposer`` then looks for a plan.
- RebalanceRecommendation: ``recommendation_changed`` takes it in; ``recommendation_approved``, a handler of
  the field ``spec.approved``, answers, and wakes ``rebalance.executor``, which carries it out.
- Namespace: ``namespace_changed`` takes in its labels, which opt in to the admission gate, and by which
  policies select; ``namespace_opted_in_vain`` says that this operator releases no pods.

kopf runs on the replica that leads, for as long as it leads (``kopf_operator``), so no handler runs twice
and none asks who leads. Pods, nodes, zones and what else comes in tens of thousands are mirrored by
reflectors on every replica instead: 50,000 pods take kopf 29 to 69 s and up to 455 MiB where a reflector
takes 1.2 s and 68 MiB, an index of 4,000 objects takes 61 s, and after a 410 kopf's watch never tells of what
vanished meanwhile (docs/decisions.md, docs/architecture.md). ``intent`` says how the last is made good here.

Handlers run in kopf's thread. They look at the object that kopf hands them; each step that touches anything
else is taken by name on the main loop (``Memo.on_main_loop``), where it needs no locks.
No timers, daemons or deletion handlers: for each of them kopf puts a finalizer on the object, and a policy
could not be deleted, nor its definition uninstalled, while no operator runs. Nothing outside the cluster has
to be cleaned up, so a finalizer would earn nothing. The one annotation, on approved recommendations, earns
that an approval is heard once, also if it is given while nobody leads.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp
import kopf

from numazones.api.meta import API_VERSION
from numazones.cluster.admission_gate import GATE, OPT_IN
from numazones_client import ClusterConfig, Resource
from numazones_client.resources import REBALANCE_POLICIES, REBALANCE_RECOMMENDATIONS
from numazones_operator.events import COMPONENT, NORMAL, WARNING, EventPoster, object_reference
from numazones_operator.prevention.removable_gates import SWITCHED_OFF
from numazones_operator.rebalance.intent import Intent
from numazones_operator.rebalance.readiness import Readiness

T = TypeVar("T")

NAMESPACES = ("v1", "namespaces")
POLICIES = (API_VERSION, REBALANCE_POLICIES.plural)
RECOMMENDATIONS = (API_VERSION, REBALANCE_RECOMMENDATIONS.plural)

PREFIX = "numazones.io"
"""Of the annotations in which kopf keeps what it has handled."""
_PLAN = ("spec.moves", "spec.placements", "spec.gain", "spec.disruption", "spec.goal", "spec.expires")
"""Parts of a recommendation that need not be remembered to notice an approval."""


@dataclass(frozen=True, slots=True)
class Memo:
    """Memo that kopf passes to every handler."""

    main_loop: asyncio.AbstractEventLoop
    """Where everything but kopf lives."""
    config: ClusterConfig
    identity: str
    events: EventPoster
    intent: Intent
    readiness: Readiness
    gates: bool
    """Whether this operator releases gated pods."""
    appearance: Callable[[Resource], Awaitable[None]]
    """Waits until it is worth asking again for a kind that the API server does not serve."""
    warned: set[str] = field(default_factory=set)
    """UIDs of the namespaces that were warned that they opted in in vain."""

    sessions: list[aiohttp.ClientSession] = field(default_factory=list)
    """kopf's connections. It closes them, except those that were opened while it was being ended."""

    async def on_main_loop(self, step: Coroutine[Any, Any, T]) -> T:
        """Take a step on the main loop, from kopf's; it is cancelled with the handler that waits for it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(step, self.main_loop))

    async def post_event(self, body: kopf.Body, *, type: str, reason: str, message: str) -> None:  # noqa: A002
        """Post an event on an object, within the operator's rate."""

        async def post() -> None:
            self.events.post(object_reference(body), type=type, reason=reason, message=message)

        await self.on_main_loop(post())


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Configure kopf: small lists, short-lived workers, annotations in our own name."""
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
    session = _session(memo)
    memo.sessions.append(session)
    return kopf.AiohttpSession(server=memo.config.server, aiohttp_session=session, default_namespace=None)


@kopf.on.event(*POLICIES)
async def policy_changed(type: str, body: kopf.Body, memo: Memo, **_: Any) -> None:  # noqa: A002
    """Take in the policy as it is now, which wakes the search for plans; write its condition Ready."""
    if type == "DELETED":
        await memo.on_main_loop(memo.intent.drop_policy(dict(body)))
        return
    problem = await memo.on_main_loop(memo.intent.take_policy(dict(body)))
    await memo.on_main_loop(memo.readiness.publish(dict(body), problem))


@kopf.on.event(*RECOMMENDATIONS)
async def recommendation_changed(
    type: str,  # noqa: A002
    body: kopf.Body,
    patch: kopf.Patch,
    memo: Memo,
    **_: Any,
) -> None:
    """Take in the recommendation as it is now; one that cannot be read is not carried out, and says so."""
    if type == "DELETED":
        await memo.on_main_loop(memo.intent.drop_recommendation(dict(body)))
        return
    problem = await memo.on_main_loop(memo.intent.take_recommendation(dict(body)))
    if problem and body.status.get("message") != problem:
        patch.status["message"] = problem


@kopf.on.field(*RECOMMENDATIONS, field="spec.approved", new=True)
async def recommendation_approved(body: kopf.Body, memo: Memo, **_: Any) -> None:
    """Confirm an approval, or say why nothing will come of it; then let the plan be carried out."""
    problem = await memo.on_main_loop(memo.intent.approval_problem(dict(body)))
    if problem:
        await memo.post_event(body, type=WARNING, reason="ApprovalInVain", message=problem)
    else:
        message = "the operator checks the plan again and then executes it"
        await memo.post_event(body, type=NORMAL, reason="Approved", message=message)
    await memo.on_main_loop(memo.intent.wake())


@kopf.on.event(*NAMESPACES)
async def namespace_changed(type: str, body: kopf.Body, memo: Memo, **_: Any) -> None:  # noqa: A002
    """Take in the labels of the namespace as they are now."""
    if type == "DELETED":
        await memo.on_main_loop(memo.intent.drop_namespace(dict(body)))
    else:
        await memo.on_main_loop(memo.intent.take_namespace(dict(body)))


@kopf.on.event(*NAMESPACES, labels={OPT_IN[0]: OPT_IN[1]}, when=lambda memo, **_: not memo.gates)
async def namespace_opted_in_vain(body: kopf.Body, memo: Memo, **_: Any) -> None:
    """Say, once, that gated pods of this namespace wait for ever."""
    uid = str(body.metadata.uid)
    if uid not in memo.warned:
        memo.warned.add(uid)
        await memo.post_event(
            body,
            type=WARNING,
            reason="AdmissionGateOff",
            message=f"pods with the scheduling gate {GATE} are not released because {SWITCHED_OFF}",
        )


def _session(memo: Memo) -> aiohttp.ClientSession:
    """Open kopf's own connections, with credentials that are read anew for every request."""
    config = memo.config

    async def authenticate(
        request: aiohttp.ClientRequest, handler: Callable[[aiohttp.ClientRequest], Any]
    ) -> aiohttp.ClientResponse:
        token = await memo.on_main_loop(config.credentials.token())
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
