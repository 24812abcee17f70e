import pytest

from numazones_exporter.health import PUBLISH, SCAN, Health


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(60, clock=clock)


def test_a_new_exporter_is_healthy_and_not_ready(health: Health) -> None:
    assert health.problems() == []
    assert health.readiness_problems()


@pytest.mark.parametrize("step", [SCAN, PUBLISH])
def test_step_is_unhealthy_after_more_than_three_intervals_without_success(
    step: str, health: Health, clock: Clock
) -> None:
    other = PUBLISH if step == SCAN else SCAN
    health.record_failure(step, "kubelet.sock: no answer within 10 s")
    clock.now += 180
    health.record_success(other)
    assert health.problems() == []
    clock.now += 1
    assert health.problems() == [
        f"{step} has not succeeded for 181 s (limit 180 s): kubelet.sock: no answer within 10 s"
    ]


def test_a_success_makes_a_failing_step_healthy_again(health: Health, clock: Clock) -> None:
    health.record_failure(PUBLISH, "503")
    clock.now += 1000
    health.record_success(SCAN)
    health.record_success(PUBLISH)
    assert health.problems() == []


def test_a_hanging_step_fails_though_it_reported_no_error(health: Health, clock: Clock) -> None:
    clock.now += 181
    assert [problem.rpartition(": ")[2] for problem in health.problems()] == [
        "no attempt has finished; it is hanging or never started"
    ] * 2


def test_it_is_ready_after_the_first_publish_and_stays_so(health: Health) -> None:
    health.record_success(SCAN)
    assert health.readiness_problems() == ["the NUMAZones have not been published yet"]
    health.record_success(PUBLISH)
    health.record_failure(PUBLISH, "503")
    assert health.readiness_problems() == []
