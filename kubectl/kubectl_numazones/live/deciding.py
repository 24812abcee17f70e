"""Approving and rejecting plans in ``live``, after a question; what is said is what the commands say."""

from typing import Any

from textual.app import App

from kubectl_numazones.live import lines
from kubectl_numazones.live.lines import Line
from kubectl_numazones.live.screens import Confirm
from kubectl_numazones.plans import decisions
from kubectl_numazones.plans.decisions import PendingPlan, PlanDecision
from kubectl_numazones.reading.cluster import ClusterView
from numazones.errors import NumazonesError
from numazones_client import Client

_SAID_SECONDS = 12.0
"""So long an answer stays on the screen."""
_NO_PLAN = "Only the operator's plans can be approved or rejected. Create a RebalancePolicy to get one."
_NO_CLUSTER = "you cannot approve or reject plans here: this is a dump, or the cluster has not been read yet"


async def decide(app: App[Any], client: Client | None, line: Line | None, decision: PlanDecision) -> None:
    """Decide about the plan of a line: say what speaks against it, or ask, and write the answer.

    ``client``: None for a dump.
    """
    if client is None:
        _say_wrong(app, _NO_CLUSTER)
        return
    if line is None or not line.plan:
        _say_wrong(app, _NO_PLAN)
        return
    try:
        plan = await decisions.find(client, line.plan)
        if decisions.is_decided(plan, decision):
            _say(app, decisions.already(plan, decision))
            return
        await decisions.check(client, [plan], decision)
        asked = decisions.question([plan], decision)
        if await app.push_screen_wait(Confirm(f"{decision} {plan.name}", lines.moves_of(plan), asked)):
            await decisions.decide(client, plan, decision)
            follows = decisions.what_follows(plan, decision)
            _say(app, f"{plan.name} is {decision.field}: {follows}")
    except NumazonesError as error:
        _say_wrong(app, str(error))


def is_open(seen: ClusterView, name: str, decision: PlanDecision) -> bool:
    """Return whether something would come of a decision about a recommendation, as the cluster was read."""
    body = next((item for item in seen.made if item["metadata"]["name"] == name), None)
    if body is None:
        return False
    try:
        plan = PendingPlan.of(dict(body))
    except NumazonesError:
        return False
    mode = seen.policy_mode(plan.spec.policy)
    return not decisions.is_decided(plan, decision) and not decisions.objection(plan, decision, mode)


def _say(app: App[Any], text: str) -> None:
    app.notify(text, timeout=_SAID_SECONDS, markup=False)


def _say_wrong(app: App[Any], text: str) -> None:
    app.notify(text, severity="error", timeout=_SAID_SECONDS, markup=False)
