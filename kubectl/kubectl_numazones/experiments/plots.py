"""A comparison as a picture: a panel per measure, a point per combination of settings with its interval.

Drawn by matplotlib, which the extra ``sweep`` brings, without a display. The same comparison gives the same
bytes: nothing in a file tells when or where it was drawn. Texts in SVGs stay texts.
"""

import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import Any

import click

from kubectl_numazones.experiments.experiment import label
from kubectl_numazones.reading.cluster import NotThere
from numazones.errors import NumazonesError
from numazones.whatif.experiment import Comparison, VariantFigures

_SUFFIXES = (".svg", ".png", ".pdf")
_DEFAULT = ("admitted", "largest pod", "stranded CPUs")
_TITLE_WIDTH = 36
_TITLES = {
    "stranded CPUs": "CPUs that are free, but stranded",
    "imbalance of those": "Most minus fewest CPUs of a pod on the NUMA nodes that it spans",
    "spread over NUMA nodes": "Most minus fewest CPUs allocated on a NUMA node of the machine",
}
"""What a table says by its rows."""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "numazones",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
}
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
"""Of Paul Tol, told apart by colour-blind eyes too."""


def check(path: Path) -> None:
    """Refuse what could not be drawn, before anything is computed.

    Raises:
        click.UsageError: the file's name has another suffix than pictures have.
        CannotDraw: matplotlib is missing.
    """
    if path.suffix not in _SUFFIXES:
        raise click.UsageError(f"--plot {path}: name a file that ends in {', '.join(_SUFFIXES)}")
    if find_spec("matplotlib") is None:
        raise CannotDraw("plots need matplotlib: in a checkout of numazones, pip install '.[sweep]'")


class CannotDraw(NumazonesError):
    """Plots cannot be drawn here; the message says what is missing."""


def draw(comparison: Comparison, measures: Sequence[str], *, suffix: str, title: str) -> bytes:
    """Return a picture in the format of a suffix; without measures the three that matter most.

    Raises:
        NotThere: there is no such measure; the message names those that there are.
    """
    from matplotlib import rc_context  # noqa: PLC0415 - an extra, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    chosen = _chosen_measures(comparison, measures)
    names = _names(comparison.variants)
    with rc_context(_STYLE):
        figure = Figure(figsize=(2.2 + 2.9 * len(chosen), 1.1 + 0.34 * len(names)), layout="constrained")
        panels = figure.subplots(1, len(chosen), sharey=True, squeeze=False)[0]
        for panel, measure in zip(panels, chosen, strict=True):
            _panel(panel, comparison, measure)
        panels[0].set_yticks(range(len(names)), names)
        panels[0].invert_yaxis()
        runs = f"{comparison.runs} runs, seed {comparison.seed}, means with 95 % intervals"
        figure.suptitle(f"{title}\n{runs}" if title else runs, fontsize=10)
        picture = io.BytesIO()
        dateless = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}[suffix]
        figure.savefig(picture, format=suffix.removeprefix("."), dpi=150, metadata=dateless)
    return picture.getvalue()


def _chosen_measures(comparison: Comparison, measures: Sequence[str]) -> list[str]:
    known = comparison.variants[0].measures
    unknown = [name for name in measures if name not in known]
    if unknown:
        raise NotThere(f"unknown measure {unknown[0]!r}; use one of {', '.join(known)}")
    return list(measures) or [name for name in _DEFAULT if name in known]


def _names(variants: Sequence[VariantFigures]) -> list[str]:
    """Return what distinguishes the combinations: the settings that vary between them."""
    keys = dict.fromkeys(
        key for variant in variants for key in variant.settings if not key.startswith("featureGates")
    )
    varied = [key for key in keys if len({variant.settings.get(key) for variant in variants}) > 1]
    return [
        "\n".join(f"{key.rpartition('.')[2]}={variant.settings.get(key) or '-'}" for key in varied)
        or "current settings"
        for variant in variants
    ]


def _panel(panel: Any, comparison: Comparison, measure: str) -> None:
    estimates = [variant.measures[measure] for variant in comparison.variants]
    places = range(len(estimates))
    means = [one.mean for one in estimates]
    halves = [(one.high - one.low) / 2 for one in estimates]
    colours = [_COLOURS[place % len(_COLOURS)] for place in places]
    panel.barh(places, means, xerr=halves, height=0.6, color=colours, ecolor="#222222", capsize=3)
    reach = max((one.high for one in estimates), default=0) or 1
    panel.set_xlim(0, 1.25 * reach)
    for place, one in zip(places, estimates, strict=True):
        panel.text(one.high + 0.03 * reach, place, f"{one.mean:.2f}", va="center")
    title = _TITLES.get(measure) or label(measure, comparison.shape).strip()
    panel.set_title(fill(title, _TITLE_WIDTH), fontsize=9)
    panel.grid(visible=False, axis="y")
