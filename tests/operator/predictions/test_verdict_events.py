"""Changes of a verdict that become events on a pod, and when."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from numazones.cluster.cluster import ClusterPod
from numazones.prediction.forecast import Candidate, NodeCounts, Prediction
from numazones_operator.events import NORMAL, EventPoster
from numazones_operator.faults import of_pod
from numazones_operator.metrics.registry import Metrics
from numazones_operator.predictions.verdict_events import VerdictEvents
from tests.operator.pods import pod_body

POD = ClusterPod.from_api({**pod_body("a"), "spec": {**pod_body("a")["spec"], "nodeName": "n"}})
MINUTE = 60.0


class Events:
    """VerdictEvents whose clock is moved by hand, and what they post."""

    def __init__(self, rate: float = 100.0) -> None:
        self.now = 1000.0
        self.metrics = Metrics(CollectorRegistry())
        self.poster = EventPoster(
            None,  # type: ignore[arg-type]
            identity="test",
            rate=rate,
            metrics=self.metrics,
            clock=lambda: self.now,
        )
        self.verdicts = VerdictEvents(self.poster, interval=MINUTE, clock=lambda: self.now)
        self.before = ""

    def verdict(self, verdict: str, *, after: float = 0.0) -> None:
        self.wait(after)
        best = (Candidate("n", (0,), score=100),) if verdict == "Admissible" else ()
        self.verdicts.take_verdict(
            POD, Prediction(verdict, NodeCounts(1), candidates=best), before=self.before
        )
        self.before = verdict

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.verdicts.post_due()

    @property
    def reasons(self) -> list[str]:
        queue: Any = self.poster._queue
        return [body["reason"] for body in list(queue._queue)]


@pytest.mark.parametrize(("first", "number"), [("Admissible", 0), ("Unknown", 0), ("Inadmissible", 1)])
def test_first_verdict_is_posted_only_if_no_node_admits(first: str, number: int) -> None:
    events = Events()
    events.verdict(first)
    events.wait(10 * MINUTE)
    assert len(events.reasons) == number


def test_change_for_the_better_is_posted_immediately() -> None:
    events = Events()
    events.verdict("Inadmissible")
    events.verdict("Admissible", after=1)
    assert events.reasons == ["AdmissionImpossible", "AdmissionPossible"]


def test_brief_change_for_the_worse_is_not_posted() -> None:
    events = Events()
    events.verdict("Inadmissible")
    events.verdict("Admissible", after=1)
    events.verdict("Inadmissible", after=1)
    events.verdict("Admissible", after=1)
    events.wait(2 * MINUTE)
    assert events.reasons == ["AdmissionImpossible", "AdmissionPossible"]


def test_lasting_change_for_the_worse_is_posted_when_due() -> None:
    events = Events()
    events.verdict("Inadmissible")
    events.verdict("Admissible", after=1)
    events.verdict("Inadmissible", after=1)
    events.wait(MINUTE - 3)
    assert len(events.reasons) == 2
    events.wait(1)
    assert events.reasons[2:] == ["AdmissionImpossible"]


def test_a_verdict_that_is_unknown_for_seconds_is_not_posted() -> None:
    events = Events()
    events.before = "Admissible"
    events.verdict("Unknown")
    events.verdict("Admissible", after=4)
    events.wait(2 * MINUTE)
    assert not events.reasons
    events.verdict("Unknown")
    events.wait(30)
    assert events.reasons == ["AdmissionUnknown"]


def test_last_event_on_a_running_pod_is_its_admission() -> None:
    events = Events()
    events.verdict("Inadmissible")
    events.verdicts.take_admission(POD)
    events.verdicts.take_admission(POD)
    assert events.reasons == ["AdmissionImpossible", "Admitted"]


def test_admission_is_posted_only_after_a_bad_verdict() -> None:
    events = Events()
    events.verdict("Admissible")
    events.verdicts.take_admission(POD)
    assert not events.reasons


def test_all_events_share_a_rate_and_excess_ones_are_counted() -> None:
    events = Events(rate=0.1)
    events.verdict("Inadmissible")
    for _ in range(3):
        events.poster.post(of_pod(POD), type=NORMAL, reason="R", message="m")
    assert events.reasons == ["AdmissionImpossible"]
    assert events.metrics.events_dropped._value.get() == 3
