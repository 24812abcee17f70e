"""Pods that are stuck as a list: one line each, with the sentence that ``why`` says of the one."""

from collections import Counter
from collections.abc import Iterator, Sequence

from kubectl_numazones.printing import answers, screen
from kubectl_numazones.printing.output import Output
from kubectl_numazones.reading.cluster import Seen
from kubectl_numazones.reading.said import said_about
from kubectl_numazones.reading.source import Source
from kubectl_numazones.stuck.stuck_pod import Background, exit_code, is_running, now, runs
from kubectl_numazones.stuck.stuck_pods import Stuck
from numazones.cluster.cluster import ClusterPod
from numazones.prediction.forecast import ADMISSIBLE, INADMISSIBLE, UNKNOWN

_WIDE = ("VERDICT", "NODES")
_CODES = (answers.EXIT_CODES[INADMISSIBLE], answers.EXIT_CODES[UNKNOWN], answers.EXIT_CODES[ADMISSIBLE])
"""The worst first."""


def show(found: Sequence[Stuck], seen: Seen, source: Source, output: Output, *, everywhere: bool) -> int:
    """Print the list; return the exit code, that of the worst."""
    said = said_about([item.example for item in found if not is_running(item.example)], seen, source)
    items = [
        (item, Background.of(item.example, item.prediction, seen, said.get(item.example.uid, ())))
        for item in found
    ]
    if output.is_document:
        # Imported late: text does without all that planning needs.
        from kubectl_numazones.stuck.why_document import WhyListDocument, why_document  # noqa: PLC0415

        output.write(WhyListDocument([why_document(item, seen, background) for item, background in items]))
    elif output.form == "name":
        for item, _ in items:
            for pod in item.pods:
                screen.echo(f"pod/{pod.name}")
    elif not items:
        where = "" if everywhere else f" in namespace {seen.namespace}"
        screen.echo(f"no such pod{where} waits or was rejected", err=True)
    else:
        _print(items, seen, everywhere=everywhere, wide=output.form == "wide")
    codes = {exit_code(item.example, item.prediction.verdict, background) for item, background in items}
    return next((code for code in _CODES if code in codes), 0)


def _print(items: Sequence[tuple[Stuck, Background]], seen: Seen, *, everywhere: bool, wide: bool) -> None:
    where = everywhere or len({item.example.namespace for item, _ in items}) > 1
    columns = (*(("NAMESPACE",) if where else ()), "POD", "STATUS", "AGE", *(_WIDE if wide else ()), "WHY")
    rows = (tuple(_cells(item, background, seen, where=where, wide=wide)) for item, background in items)
    screen.print_table(columns, rows)


def _cells(item: Stuck, background: Background, seen: Seen, *, where: bool, wide: bool) -> Iterator[str]:
    pod, prediction = item.example, item.prediction
    if where:
        yield pod.namespace
    yield pod.name
    yield _status(item)
    yield screen.age(item.since, seen.situation.surroundings.now)
    if wide:
        told = (prediction.verdict, f"{prediction.nodes.admissible}/{prediction.nodes.all}")
        yield from ("", "") if is_running(pod) else told
    yield runs(pod, seen) if is_running(pod) and not background.waits else now(prediction, background)


def _status(item: Stuck) -> str:
    """Say what has become of the pods: what one did, or how many did what."""
    counts = Counter(map(_word, item.pods))
    if len(item.pods) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {word}" for word, count in counts.most_common())


def _word(pod: ClusterPod) -> str:
    if is_running(pod):
        return "running"
    if not pod.terminal:
        return "waiting"
    return "rejected" if pod.reason else "ended"
