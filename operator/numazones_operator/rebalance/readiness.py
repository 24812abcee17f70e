"""Readiness of a policy: its settings, and its conditions, which nothing else writes.

Ready says whether it is followed, Conflicted whether its plans and another policy's undo each other.
``handlers.policy_changed`` has them published with each change of the policy. They depend on priority classes
and on other policies, too, of which that handler is not told: ``publish_again`` repeats what has changed
with them.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import Any

from numazones.api.meta import stamp, transitions
from numazones.apimachinery import duration, timestamp
from numazones.rebalance.custom_resources import goals_of, policy_of
from numazones.rebalance.policy import InvalidPolicy, Policy
from numazones_client import APIError, Client, Conflict, Invalid, NotFound
from numazones_client.resources import REBALANCE_POLICIES
from numazones_operator.faults import ObjectFaults, in_words, of_subject
from numazones_operator.rebalance import conflicts
from numazones_operator.rebalance.inputs import Inputs
from numazones_operator.rebalance.objects import PolicyObject

READY = "Ready"
_NOT_FOLLOWED = "the operator runs with --no-rebalance, so it does not make plans"

_log = logging.getLogger(__name__)


@dataclass
class Readiness:
    """The settings of policies, and the one writer of their conditions."""

    client: Client
    inputs: Inputs
    _: KW_ONLY
    follows: bool = True
    """False if this operator follows no policies."""
    faults: ObjectFaults = field(default_factory=ObjectFaults)
    wall: Callable[[], float] = time.time
    _published: tuple[Any, ...] | None = field(init=False, default=None)
    """What conditions depended on when they were published last; None: one was not written."""

    def settings(self, policy: PolicyObject) -> Policy:
        """Return the settings of a policy.

        Raises:
            InvalidPolicy: it makes no sense; the message says why.
        """
        try:
            settings = policy_of(policy.spec, self.inputs.classes)
            tuple(goals_of(policy.spec.goals))
            duration.parse(policy.spec.search_time)
        except Exception as error:  # whatever it is, the other policies are followed
            raise InvalidPolicy(in_words(error)) from error
        return settings

    async def publish(self, body: Mapping[str, Any], problem: str = "") -> None:
        """Write the condition of a policy where it differs; ``problem``: why it could not even be read."""
        metadata = body["metadata"]
        if problem:
            await self._write(
                metadata["name"],
                metadata.get("generation"),
                (body.get("status") or {}).get("conditions") or (),
                {READY: ("False", "Unreadable", problem)},
            )
            return
        policy = self.inputs.intent.policies.get(metadata["name"])
        if policy is not None:
            await self._publish(policy)

    async def publish_again(self) -> None:
        """Write the conditions that differ for what they depend on, or that could not be written."""
        asked = list(self.faults.over(self.inputs.intent.policies, _cause))
        causes = (self.inputs.classes, [cause for _, cause in asked])
        if causes == self._published:
            return
        self._published = causes
        for policy, _ in asked:
            with self.faults.of(of_subject(policy)):
                await self._publish(policy)

    async def _publish(self, policy: PolicyObject) -> None:
        known = policy.status.get("conditions") or ()
        verdicts = {READY: self._verdict(policy)}
        if self._is_followed(policy) and _is_searched(policy):
            asked = self.faults.over(self.inputs.intent.policies, self._conflicts_of_followed)
            told = {other.name: found for other, found in asked if found is not None}
            verdicts[conflicts.CONFLICTED] = conflicts.verdict(policy.name, told)
        await self._write(policy.name, policy.generation, known, verdicts)

    def _is_followed(self, policy: PolicyObject) -> bool:
        return not policy.spec.schedule.suspend and self._verdict(policy)[0] == "True"

    def _conflicts_of_followed(self, policy: PolicyObject) -> conflicts.Conflicts | None:
        return conflicts.of_policy(policy) if self._is_followed(policy) else None

    def _verdict(self, policy: PolicyObject) -> conflicts.ConditionFields:
        """Return the condition Ready of a policy that could be read."""
        if not self.follows:
            return "False", "NotFollowed", _NOT_FOLLOWED
        try:
            settings = self.settings(policy)
        except InvalidPolicy as error:
            return "False", "InvalidPolicy", str(error)
        effective = ", ".join(settings.protections.effective) or "none"
        return "True", "Valid", f"protections in effect: {effective}"

    async def _write(
        self,
        name: str,
        generation: int | None,
        known: Sequence[Mapping[str, Any]],
        verdicts: Mapping[str, conflicts.ConditionFields],
    ) -> None:
        before = {
            one.get("type"): (one.get("observedGeneration"), one.get("status"), one.get("message"))
            for one in known
        }
        if before == {kind: (generation, status, message) for kind, (status, _, message) in verdicts.items()}:
            return
        conditions: list[dict[str, Any]] = [
            {"type": kind, "status": status, "reason": reason, "message": message}
            for kind, (status, reason, message) in verdicts.items()
        ]
        if generation is not None:
            for condition in conditions:
                condition["observedGeneration"] = generation
        stamp(conditions, transitions(known), timestamp.format(datetime.fromtimestamp(self.wall(), UTC)))
        patch = {"status": {"observedGeneration": generation, "conditions": conditions}}
        try:
            body = await self.client.patch(REBALANCE_POLICIES, name, patch, subresource="status")
        except (NotFound, Conflict):
            return
        except APIError as error:
            # Invalid: the policy is older than the rule that it breaks; another try would change nothing.
            if not isinstance(error, Invalid):
                self._published = None
            _log.warning("could not write the conditions of policy %s: %s", name, error)
            return
        self.inputs.intent.take_own_policy(body)


def _cause(policy: PolicyObject) -> tuple[Any, ...]:
    """Return the parts of a policy that conditions depend on."""
    return policy.edition, policy.status.get("conflicts"), _is_searched(policy)


def _is_searched(policy: PolicyObject) -> bool:
    """Return whether plans were searched since the policy came, so that conflicts are known."""
    return bool(policy.status.get("lastSearch"))
