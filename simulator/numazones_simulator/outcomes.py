"""Reads from the operator's metrics how often its predictions came true."""

import re
from collections.abc import Mapping

import aiohttp

from numazones.errors import NumazonesError

_SAMPLE = re.compile(r"numazones_prediction_outcomes_total\{([^}]*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_OK = 200

ADMISSIBLE, INADMISSIBLE, ADMITTED = "Admissible", "Inadmissible", "Admitted"

Outcomes = Mapping[tuple[str, str], int]
"""(predicted, actual) → pods."""


class NoMetrics(NumazonesError):
    """The operator's metrics cannot be read; the message names the address."""


async def fetch(address: str) -> Outcomes:
    """Return the outcomes that an operator has counted.

    Args:
        address: such as ``http://127.0.0.1:9407``.

    Raises:
        NoMetrics: nobody answers there.
    """
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{address}/metrics") as answer:
            text = await answer.text()
            if answer.status != _OK:
                raise NoMetrics(f"{address}/metrics answered with status {answer.status}")
    except aiohttp.ClientError as error:
        raise NoMetrics(f"{address}/metrics: {error}") from error
    return parse(text)


def parse(text: str) -> Outcomes:
    """Read the outcomes from metrics in text format."""
    found: dict[tuple[str, str], int] = {}
    for labels, value in _SAMPLE.findall(text):
        named = dict(_LABEL.findall(labels))
        found[named["predicted"], named["actual"]] = int(float(value))
    return found


def misses(outcomes: Outcomes) -> int:
    """How many definite predictions did not come true.

    That a pod was rejected for another reason than the predicted one shows in the operator's log only.
    """
    return sum(
        count
        for (predicted, actual), count in outcomes.items()
        if (predicted == ADMISSIBLE and actual != ADMITTED)
        or (predicted == INADMISSIBLE and actual == ADMITTED)
    )


def render(outcomes: Outcomes) -> str:
    """Lay the outcomes out as a table."""
    rows = [("PREDICTED", "KUBELET SAID", "PODS")]
    rows += [(predicted, actual, str(count)) for (predicted, actual), count in sorted(outcomes.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "".join(
        f"{first:<{widths[0]}}   {second:<{widths[1]}}   {third:>{widths[2]}}\n"
        for first, second, third in rows
    )
