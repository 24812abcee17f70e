"""Since when conditions have their status."""

from numazones.api.meta import stamp, transitions


def test_the_time_changes_with_the_status_alone() -> None:
    before = transitions(
        [
            {"type": "Ready", "status": "True", "reason": "A", "lastTransitionTime": "old"},
            {"type": "Complete", "status": "False", "lastTransitionTime": "old"},
            {"type": "Fresh", "status": "True"},
        ]
    )
    after = [
        {"type": "Ready", "status": "True", "reason": "B"},
        {"type": "Complete", "status": "True"},
        {"type": "Fresh", "status": "True"},
        {"type": "New", "status": "Unknown"},
    ]
    stamp(after, before, "now")
    assert [condition["lastTransitionTime"] for condition in after] == ["old", "now", "now", "now"]
