import pytest

from numazones_simulator import outcomes
from numazones_simulator.operators import NoAnswer

METRICS = """\
# TYPE numazones_prediction_outcomes_total counter
numazones_prediction_outcomes_total{actual="Admitted",predicted="Admissible"} 293.0
numazones_prediction_outcomes_total{actual="TopologyAffinityError",predicted="Inadmissible"} 46.0
numazones_prediction_outcomes_total{actual="Admitted",predicted="Inadmissible"} 1.0
numazones_prediction_outcomes_total{actual="SMTAlignmentError",predicted="Admissible"} 2.0
numazones_prediction_outcomes_total{actual="Admitted",predicted="Unknown"} 5.0
numazones_something_else_total{actual="Admitted",predicted="Admissible"} 7.0
"""


def test_outcomes_are_read_and_those_that_came_true_counted() -> None:
    counted = outcomes.parse(METRICS)
    assert counted["Admissible", "Admitted"] == 293
    assert sum(counted.values()) == 347
    assert outcomes.verdict(counted) == "339 of 342 predictions came true"


def test_what_nothing_was_predicted_of_is_no_prediction() -> None:
    assert outcomes.verdict({("Unknown", "Admitted"): 4}) == "0 of 0 predictions came true"


def test_outcomes_are_laid_out() -> None:
    assert outcomes.render({("Inadmissible", "SMTAlignmentError"): 7, ("Admissible", "Admitted"): 120}) == (
        "PREDICTED      KUBELET SAID        PODS\n"
        "Admissible     Admitted             120\n"
        "Inadmissible   SMTAlignmentError      7\n"
    )


async def test_an_operator_that_does_not_answer_is_named() -> None:
    with pytest.raises(NoAnswer, match=r"http://127\.0\.0\.1:1/metrics"):
        await outcomes.fetch("http://127.0.0.1:1")
