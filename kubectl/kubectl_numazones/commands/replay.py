"""``replay``: history against model. Every difference is a defect, of the model or of what it was told."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import click

from kubectl_numazones.printing import screen
from kubectl_numazones.printing.output import Output, output_option
from kubectl_numazones.reading import recording
from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.cluster import NotThere, source_options
from kubectl_numazones.reading.event_loop import run_until_complete
from kubectl_numazones.reading.file_content import read_file
from kubectl_numazones.reading.files import objects_of_files
from kubectl_numazones.reading.source import Source, connect
from numazones.apimachinery.documents import OBJECT
from numazones.whatif.wrong_prediction import Answer, WrongPrediction, read, replay
from numazones.wording import pluralize
from numazones_client import NotFound
from numazones_client.resources import CONFIG_MAPS
from numazones_program.columns import Column

_NAME = "numazones-operator-misses"
"""Of the ConfigMap in which the operator keeps predictions that came out wrong."""
_NAMESPACE = "numazones-operator"
_EPILOG = """
\b
Examples:
  kubectl numazones replay recordings/one-node
  kubectl numazones replay 20260131T120000Z-team.web-1.json.gz    a miss that the operator recorded
  kubectl numazones replay miss.json.gz                           the same, from a file
"""


@dataclass(frozen=True, slots=True)
class Difference:
    """A pod for which the kubelet and the model disagree."""

    node: Annotated[str, "Node of the kubelet that decided."]
    pod: Annotated[str, "NAMESPACE/NAME."]
    differences: Annotated[tuple[str, ...], "What the kubelet did, and what the model predicts."]


@dataclass(frozen=True, slots=True)
class RejectedAtRestart:
    """A running pod that its kubelet would reject if it restarted."""

    node: Annotated[str, "Node of the pod."]
    pod: Annotated[str, "NAMESPACE/NAME."]
    reason: Annotated[str, "Message that the kubelet would give."]


@dataclass(frozen=True, slots=True)
class ReplayDocument:
    """``replay``: a recorded history, compared with the model."""

    outcomes: Annotated[int, "Number of kubelet decisions that were compared."]
    agree: Annotated[int, "Number of decisions in which the model agrees."]
    outside: Annotated[
        int,
        "Number of outcomes that were left out, because they were decided by something that the model "
        "does not cover.",
    ]
    differ: Annotated[list[Difference], "Decisions in which the model differs."]
    rejected_at_restart: Annotated[list[RejectedAtRestart], "Pods that a restart of their kubelet would end."]


@click.command("replay", epilog=_EPILOG)
@click.argument("name", metavar="RECORDING|MISS")
@output_option()
@source_options
def command(source: Source, name: str, output: Output) -> int:
    """Repeat the decision about each pod of a RECORDING, and compare it with what the kubelet did.

    Compares verdict, reason and message, CPUs, memory blocks and devices. Pods that no kubelet decided about,
    such as those without a node, are left out. A MISS is one wrong prediction: a file, or a key of the
    operator's ConfigMap numazones-operator-misses, in the cluster or in a dump. The exit code is 1 if
    anything differs.
    """
    if not Path(name).is_dir():
        return _replay_miss(name, source, output)
    report = recording.compare(Path(name))
    differ = report.differ
    agree = len(report.outcomes) - len(differ)
    if output.is_document:
        differences = [Difference(node, outcome.name, outcome.differences) for node, outcome in differ]
        ended = [RejectedAtRestart(node, one.name, one.at_restart) for node, one in report.at_restart]
        counts = (len(report.outcomes), agree, len(report.outside))
        output.write(ReplayDocument(*counts, differences, ended))
        return 1 if differ else 0
    for node, outcome in differ:
        for line in outcome.differences:
            screen.say(f"{outcome.name} on {node}: {line}")
    for node, outcome in report.at_restart:
        screen.say(
            f"{outcome.name} is running on {node}, but the kubelet would reject it after a restart, "
            "because its init containers would need resources that they have released: "
            f"{outcome.at_restart}"
        )
    when = " while it was recorded" if report.begins_with_pods else ""
    screen.say(
        f"{agree} of {pluralize(len(report.outcomes), 'decision')} agree; "
        f"{pluralize(len(report.outside), 'pod')} left out, because no kubelet decided{when}"
    )
    return 1 if differ else 0


def _replay_miss(name: str, source: Source, output: Output) -> int:
    miss = find_miss(name, source)
    now = replay(miss)
    differs = now.reason != miss.actual.reason
    pod = f"{miss.pod.pod.namespace}/{miss.pod.pod.name}"
    if output.is_document:
        difference = f"verdict: observed {_outcome_text(miss.actual)}, model {_outcome_text(now)}"
        found = [Difference(miss.node.name, pod, (difference,))] if differs else []
        output.write(ReplayDocument(1, int(not differs), 0, found, []))
        return int(differs)
    screen.say(f"{pod} on {miss.node.name}, {miss.time}")
    screen.print_table(
        _SAID,
        (
            (f"numazones {miss.version}", _outcome_text(miss.predicted)),
            ("the kubelet", _outcome_text(miss.actual)),
            ("the model now", _outcome_text(now)),
        ),
    )
    screen.echo("the model still differs: please report it" if differs else "the model agrees now")
    return int(differs)


_SAID: tuple[Column[tuple[str, str]], ...] = (
    Column("WHO", lambda row: row[0]),
    Column("SAID", lambda row: row[1]),
)


def _outcome_text(answer: Answer) -> str:
    return f"{answer.reason}: {answer.message}" if answer.message else answer.reason


def find_miss(name: str, source: Source) -> WrongPrediction:
    """Read a miss from a file of that name, else under that key in the operator's ConfigMap.

    Raises:
        BadDump: the file cannot be read, or the ConfigMap is damaged.
        NotThere: there is neither such a file nor such a key.
        numazones.whatif.wrong_prediction.InvalidRecord: it is none.
    """
    path = Path(name)
    if path.is_file():
        return read(read_file(path, OBJECT.size))
    namespace = source.namespace or _NAMESPACE
    kept = _in_files(source, namespace) if source.files else run_until_complete(_live(source, namespace))
    if name not in kept:
        known = ", ".join(sorted(kept)) or "none"
        raise NotThere(
            f"{name} is neither a file or directory nor a key of ConfigMap {namespace}/{_NAME} (keys: "
            f"{known})"
        )
    try:
        return read(base64.b64decode(str(kept[name]), validate=True))
    except binascii.Error as error:
        raise BadDump(f"ConfigMap {namespace}/{_NAME}, {name}: not base64: {error}") from error


def _in_files(source: Source, namespace: str) -> Mapping[str, Any]:
    for item in objects_of_files(source.files):
        metadata = item["metadata"]
        if item["kind"] == "ConfigMap" and (metadata.get("namespace"), metadata["name"]) == (
            namespace,
            _NAME,
        ):
            return item.get("binaryData") or {}
    raise NotThere(f"the dump contains no ConfigMap {namespace}/{_NAME}; add configmaps to kubectl get")


async def _live(source: Source, namespace: str) -> Mapping[str, Any]:
    async with await connect(source) as client:
        try:
            body = await client.get(CONFIG_MAPS, _NAME, namespace=namespace)
        except NotFound:
            return {}
    return body.get("binaryData") or {}
