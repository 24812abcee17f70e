"""A policy from before the API server refused what it says."""

import logging
from typing import Any

import pytest

from numazones_client import Client, ClusterConfig, Invalid
from numazones_client.errors import Request
from numazones_operator.rebalance.inputs import Inputs
from numazones_operator.rebalance.intent import Intent
from numazones_operator.rebalance.readiness import Readiness
from tests.operator.rebalance.offline_execution import policy_manifest

BELOW_ZERO = {"shapes": [{"name": "large", "resources": {"cpu": "-3"}}]}


class StoredClient(Client):
    """Notes the conditions that are written; an old API server refuses them with the whole object."""

    def __init__(self, *, refuses: bool) -> None:
        super().__init__(ClusterConfig(server="http://127.0.0.1:1"))
        self.refuses = refuses
        self.written: list[dict[str, Any]] = []

    async def patch(self, resource: Any, name: str, body: Any, **options: Any) -> dict[str, Any]:
        assert (name, options) == ("p", {"subresource": "status"})
        self.written += body["status"]["conditions"]
        if self.refuses:
            raise Invalid(Request("PATCH", str(resource)), "resources.cpu: Invalid value")
        return {**policy_manifest(goals=BELOW_ZERO), "kind": "RebalancePolicy", **body}


@pytest.mark.parametrize("refuses", [False, True])
async def test_stored_policy_with_negative_value_reports_not_ready_once(
    *, refuses: bool, caplog: pytest.LogCaptureFixture
) -> None:
    client = StoredClient(refuses=refuses)
    intent = Intent(client)
    await intent.take_policy(policy_manifest(goals=BELOW_ZERO))
    readiness = Readiness(client, Inputs(intent))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await readiness.publish_again()
    (condition,) = client.written
    assert (condition["status"], condition["reason"]) == ("False", "InvalidPolicy")
    assert "invalid quantity '-3' for cpu" in condition["message"]
    assert len(caplog.records) == refuses
