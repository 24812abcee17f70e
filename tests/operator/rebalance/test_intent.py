"""What people ask for, as it is reported object by object."""

from typing import Any

from numazones_operator.rebalance.intent import Intent


def policy(version: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "p", "uid": "u", "resourceVersion": version, "generation": int(version)}
    return {"metadata": metadata, "spec": {"mode": "Auto", **spec}}


async def test_a_policy_that_cannot_be_read_any_more_is_gone_with_the_report_of_it() -> None:
    intent = Intent(None)  # type: ignore[arg-type]
    assert await intent.take_policy(policy("1")) == ""
    assert intent.policies.get("p") is not None
    intent.changed.clear()
    why = await intent.take_policy(policy("2", cooldown="-1s"))
    assert "spec.cooldown" in why
    assert intent.policies.get("p") is None
    assert intent.changed.is_set()
