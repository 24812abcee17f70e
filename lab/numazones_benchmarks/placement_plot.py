"""The plot of ``placement.py``."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from numazones.prediction.node_choice import NodeChoice


def draw(found: Sequence[dict[str, Any]], file: Path, made: str) -> None:
    """Draw how many pods each way leaves out on each kind of machine; the same rows give the same bytes."""
    machines = list(dict.fromkeys(row["machines"] for row in found))
    width = 0.8 / len(NodeChoice)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "numazones", "font.size": 9}):
        figure = Figure(figsize=(9, 4.2), layout="constrained", facecolor="white")
        axes = figure.subplots()
        for number, (choice, colour) in enumerate(zip(NodeChoice, COLOURS, strict=True)):
            heights = [
                fmean(
                    row["left_out"]
                    for row in found
                    if (row["machines"], row["placement"]) == (name, choice.value)
                )
                for name in machines
            ]
            places = [place + (number - (len(NodeChoice) - 1) / 2) * width for place in range(len(machines))]
            axes.bar(places, heights, width, color=colour, label=choice.value)
        axes.set_xticks(range(len(machines)), [fill(name, 16) for name in machines])
        axes.set_xlabel("machines")
        axes.set_ylabel("pods left out (% of arrivals)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(title="placement", ncols=len(NodeChoice), loc="upper center", frameon=False)
        axes.margins(y=0.25)
        axes.set_title(f"Pods left out by each way of choosing nodes\n{made}", fontsize=10)
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


COLOURS = ("#bbbbbb", "#ccbb44", "#66ccee", "#228833", "#4477aa", "#ee6677", "#aa3377")
"""Of the ways; of Paul Tol, told apart by colour-blind eyes too."""
