"""Whether a policy can be followed: its settings, and its condition Ready, which nobody else writes.

``handlers.policy_changed`` has the condition published with each change of the policy. It depends on priority
classes, too, of which kopf is not told: ``publish_again`` repeats what has changed with them.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from numazones import duration, timestamp
from numazones.api.conditions import stamp, transitions
from numazones.errors import NumazonesError
from numazones.rebalance.custom_resources import policy_of, standing_goals
from numazones.rebalance.policy import InvalidPolicy, Policy
from numazones_client import APIError, Client, Conflict, NotFound
from numazones_client.resources import REBALANCE_POLICIES
from numazones_operator.rebalance.inputs import Inputs
from numazones_operator.rebalance.objects import PolicyObject

_NOT_FOLLOWED = "the operator runs with --no-rebalance, so it makes no plans"

_log = logging.getLogger(__name__)


class Readiness:
    """The settings of policies, and the one writer of their condition Ready."""

    def __init__(
        self,
        client: Client,
        inputs: Inputs,
        *,
        follows: bool = True,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``follows``: whether this operator follows policies at all."""
        self._client = client
        self._inputs = inputs
        self._follows = follows
        self._wall = wall
        self._classes: Mapping[str, int] | None = None
        """Priority classes when conditions were published last; None: a condition was not written."""

    def settings(self, policy: PolicyObject) -> Policy:
        """Return the settings of a policy.

        Raises:
            InvalidPolicy: it makes no sense; the message says why.
        """
        try:
            settings = policy_of(policy.spec, self._inputs.classes)
            tuple(standing_goals(policy.spec.goals))
            duration.parse(policy.spec.search_time)
        except (NumazonesError, ValueError) as error:
            raise InvalidPolicy(str(error)) from error
        return settings

    async def publish(self, body: Mapping[str, Any], problem: str = "") -> None:
        """Write the condition of a policy where it differs; ``problem``: why it could not even be read."""
        metadata = body["metadata"]
        if problem:
            await self._write(
                metadata["name"],
                metadata.get("generation"),
                (body.get("status") or {}).get("conditions") or (),
                ("False", "Unreadable", problem),
            )
            return
        policy = self._inputs.intent.policies.get(metadata["name"])
        if policy is not None:
            await self._publish(policy)

    async def publish_again(self) -> None:
        """Write the conditions that differ because priority classes do, or that could not be written."""
        classes = self._inputs.classes
        if classes == self._classes:
            return
        self._classes = classes
        for policy in list(self._inputs.intent.policies):
            await self._publish(policy)

    async def _publish(self, policy: PolicyObject) -> None:
        known = policy.status.get("conditions") or ()
        await self._write(policy.name, policy.generation, known, self._verdict(policy))

    def _verdict(self, policy: PolicyObject) -> tuple[str, str, str]:
        """Return status, reason and message of a policy that could be read."""
        if not self._follows:
            return "False", "NotFollowed", _NOT_FOLLOWED
        try:
            settings = self.settings(policy)
        except InvalidPolicy as error:
            return "False", "InvalidPolicy", str(error)
        effective = ", ".join(settings.protections.effective) or "none"
        return "True", "Valid", f"protections in force: {effective}"

    async def _write(
        self,
        name: str,
        generation: int | None,
        known: Sequence[Mapping[str, Any]],
        verdict: tuple[str, str, str],
    ) -> None:
        status, reason, message = verdict
        before = next((one for one in known if one.get("type") == "Ready"), {})
        if (before.get("observedGeneration"), before.get("status"), before.get("message")) == (
            generation,
            status,
            message,
        ):
            return
        condition: dict[str, Any] = {"type": "Ready", "status": status, "reason": reason, "message": message}
        if generation is not None:
            condition["observedGeneration"] = generation
        stamp([condition], transitions(known), timestamp.format(datetime.fromtimestamp(self._wall(), UTC)))
        patch = {"status": {"observedGeneration": generation, "conditions": [condition]}}
        try:
            body = await self._client.patch(REBALANCE_POLICIES, name, patch, subresource="status")
        except (NotFound, Conflict):
            return
        except APIError as error:
            self._classes = None
            _log.warning("the condition Ready of policy %s was not written: %s", name, error)
            return
        self._inputs.intent.take_own_policy(body)
