"""Reads from the operator's metrics how often its predictions came true."""

import re
from collections import Counter
from collections.abc import Mapping

from numazones.wording import pluralize
from numazones_program.columns import Column, plain
from numazones_simulator import operators

_SAMPLE = re.compile(r"^(numazones_prediction_\w+)\{([^}]*)\} (\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

_RIGHT, _NOT_MADE = "right", "unknown"
ADMISSIBLE, INADMISSIBLE, ADMITTED = "Admissible", "Inadmissible", "Admitted"

Outcomes = Mapping[tuple[str, str], int]
"""(predicted, actual) → pods."""


async def fetch(address: str) -> Outcomes:
    """Return the outcomes that an operator has counted.

    ``address``: such as ``http://127.0.0.1:9407``.

    Raises:
        NoAnswer: nobody answers there.
    """
    return parse(await operators.ask(f"{address}/metrics"))


async def fetch_models(address: str) -> Mapping[tuple[str, str], int]:
    """Return (model, accuracy) → pods, as an operator has counted them.

    Raises:
        NoAnswer: nobody answers there.
    """
    return _read(
        await operators.ask(f"{address}/metrics"), "numazones_prediction_accuracy_total", "model", "accuracy"
    )


def parse(text: str) -> Outcomes:
    """Read the outcomes from metrics in text format."""
    return _read(text, "numazones_prediction_outcomes_total", "predicted", "actual")


def _read(text: str, name: str, first: str, second: str) -> Mapping[tuple[str, str], int]:
    """Sum a metric's series by two of its labels."""
    found: Counter[tuple[str, str]] = Counter()
    for series, labels, value in _SAMPLE.findall(text):
        if series == name:
            named = dict(_LABEL.findall(labels))
            found[named[first], named[second]] += int(float(value))
    return found


def verdict(outcomes: Outcomes) -> str:
    """Say how many of the definite predictions came true; pods without a prediction do not count.

    That a pod was rejected for another reason than the predicted one shows in the operator's log only.
    """
    right = made = 0
    for (predicted, actual), count in outcomes.items():
        if predicted in {ADMISSIBLE, INADMISSIBLE}:
            made += count
            right += count if (predicted == ADMISSIBLE) == (actual == ADMITTED) else 0
    return f"{right} of {pluralize(made, 'prediction')} came true"


_OUTCOMES: tuple[Column[tuple[tuple[str, str], int]], ...] = (
    Column("PREDICTED", lambda item: item[0][0]),
    Column("KUBELET SAID", lambda item: item[0][1]),
    Column("PODS", lambda item: str(item[1]), right=True),
)
_MODELS: tuple[Column[tuple[str, int, int]], ...] = (
    Column("MODEL", lambda item: item[0]),
    Column("CAME TRUE", lambda item: str(item[1])),
    Column("OF", lambda item: str(item[2]), right=True),
)


def render(outcomes: Outcomes) -> str:
    """Lay the outcomes out as a table."""
    return plain(_OUTCOMES, sorted(outcomes.items()))


def render_models(judged: Mapping[tuple[str, str], int]) -> str:
    """Lay out how many predictions each model made, and how many were right, as a table."""
    made: Counter[str] = Counter()
    for (model, accuracy), count in judged.items():
        made[model] += count if accuracy != _NOT_MADE else 0
    rows = [(model, judged.get((model, _RIGHT), 0), count) for model, count in made.items() if count]
    return plain(_MODELS, rows)
