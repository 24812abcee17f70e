"""Reports, object by object, on what people ask for."""

from typing import Any

from numazones_client import Resource
from numazones_client.resources import REBALANCE_POLICIES
from numazones_operator.rebalance.intent import Intent


def policy(version: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "p", "uid": "u", "resourceVersion": version, "generation": int(version)}
    return {"metadata": metadata, "spec": {"mode": "Auto", **spec}}


async def test_policy_that_becomes_unreadable_is_removed_with_its_report() -> None:
    intent = Intent(None)  # type: ignore[arg-type]
    assert await intent.take_policy(policy("1")) == ""
    assert intent.policies.get("p") is not None
    intent.changed.clear()
    why = await intent.take_policy(policy("2", cooldown="-1s"))
    assert "spec.cooldown" in why
    assert intent.policies.get("p") is None
    assert intent.changed.is_set()


class Listing:
    """Stands in for the client: lists what is there."""

    def __init__(self, *bodies: dict[str, Any]) -> None:
        self._bodies = {REBALANCE_POLICIES: bodies}

    async def list(self, resource: Resource) -> list[dict[str, Any]]:
        return list(self._bodies.get(resource, ()))


async def test_late_event_of_a_deleted_policy_spares_its_namesake() -> None:
    old, new = policy("1"), policy("3")
    new["metadata"]["uid"] = "another"
    intent = Intent(Listing(new))  # type: ignore[arg-type]
    await intent.take_policy(old)
    await intent.take_policy(new)
    await intent.drop_policy(old)
    assert [item.uid for item in intent.policies] == ["another"]
    await intent.take_policy(old)  # kopf's workers, one per object, keep no common order
    await intent.drop_policy(old)
    assert [item.uid for item in intent.policies] == ["another"]


async def test_late_event_of_a_deleted_namespace_spares_its_namesake() -> None:
    intent = Intent(None)  # type: ignore[arg-type]
    old, new = ({"metadata": {"name": "team", "uid": uid}} for uid in ("old", "new"))
    await intent.take_namespace(old)
    await intent.take_namespace(new)
    await intent.drop_namespace(old)
    assert [item.uid for item in intent.namespaces] == ["new"]
    await intent.drop_namespace(new)
    assert not list(intent.namespaces)
