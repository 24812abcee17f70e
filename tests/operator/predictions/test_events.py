"""Which changes of a verdict become events on a pod, and when."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from numazones.cluster import ClusterPod
from numazones.prediction import Candidate, Prediction
from numazones_operator.metrics.registry import Metrics
from numazones_operator.predictions.events import Announcements
from tests.operator.closed_loop import pod_body

POD = ClusterPod.from_api({**pod_body("a"), "spec": {**pod_body("a")["spec"], "nodeName": "n"}})
MINUTE = 60.0


class Told:
    """Announcements whose clock is moved by hand, and what they queue."""

    def __init__(self, rate: float = 100.0) -> None:
        self.now = 1000.0
        self.metrics = Metrics(CollectorRegistry())
        self.announcements = Announcements(
            None,  # type: ignore[arg-type]
            identity="test",
            rate=rate,
            interval=MINUTE,
            metrics=self.metrics,
            clock=lambda: self.now,
        )
        self.before = ""

    def verdict(self, verdict: str, *, after: float = 0.0) -> None:
        self.wait(after)
        best = (Candidate("n", (0,), 100, 0),) if verdict == "Admissible" else ()
        self.announcements.verdict(POD, Prediction(verdict, 1, candidates=best), before=self.before)
        self.before = verdict

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.announcements.release()

    @property
    def reasons(self) -> list[str]:
        queue: Any = self.announcements._queue
        return [body["reason"] for body in list(queue._queue)]


@pytest.mark.parametrize(("first", "events"), [("Admissible", 0), ("Unknown", 0), ("Inadmissible", 1)])
def test_a_first_verdict_is_told_only_if_it_is_bad_news(first: str, events: int) -> None:
    told = Told()
    told.verdict(first)
    told.wait(10 * MINUTE)
    assert len(told.reasons) == events


def test_good_news_is_told_at_once_however_soon_it_comes() -> None:
    told = Told()
    told.verdict("Inadmissible")
    told.verdict("Admissible", after=1)
    assert told.reasons == ["AdmissionImpossible", "AdmissionPossible"]


def test_bad_news_that_is_over_before_its_time_is_not_told() -> None:
    told = Told()
    told.verdict("Inadmissible")
    told.verdict("Admissible", after=1)
    told.verdict("Inadmissible", after=1)
    told.verdict("Admissible", after=1)
    told.wait(2 * MINUTE)
    assert told.reasons == ["AdmissionImpossible", "AdmissionPossible"]


def test_bad_news_that_lasts_is_told_when_its_time_has_come() -> None:
    told = Told()
    told.verdict("Inadmissible")
    told.verdict("Admissible", after=1)
    told.verdict("Inadmissible", after=1)
    told.wait(MINUTE - 3)
    assert len(told.reasons) == 2
    told.wait(1)
    assert told.reasons[2:] == ["AdmissionImpossible"]


def test_a_node_that_is_unknown_for_seconds_disturbs_nobody() -> None:
    told = Told()
    told.before = "Admissible"
    told.verdict("Unknown")
    told.verdict("Admissible", after=4)
    told.wait(2 * MINUTE)
    assert not told.reasons
    told.verdict("Unknown")
    told.wait(30)
    assert told.reasons == ["AdmissionUnknown"]


def test_the_last_event_on_a_running_pod_is_not_that_it_is_impossible() -> None:
    told = Told()
    told.verdict("Inadmissible")
    told.announcements.admitted(POD)
    told.announcements.admitted(POD)
    assert told.reasons == ["AdmissionImpossible", "Admitted"]


def test_a_pod_that_was_told_nothing_bad_is_not_told_that_it_runs() -> None:
    told = Told()
    told.verdict("Admissible")
    told.announcements.admitted(POD)
    assert not told.reasons


def test_beyond_the_rate_events_are_dropped_and_counted() -> None:
    told = Told(rate=0.1)
    told.verdict("Inadmissible")
    for _ in range(3):
        told.announcements.tell(POD, kind="Normal", reason="R", message="m")
    assert told.reasons == ["AdmissionImpossible"]
    assert told.metrics.events_dropped._value.get() == 3
