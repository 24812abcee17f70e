"""Waiting and rejected pods as a list: a line per owner, with the sentence that ``why`` says of one pod."""

from collections import Counter
from collections.abc import Sequence

from kubectl_numazones.printing import answers, screen
from kubectl_numazones.printing.output import Output
from kubectl_numazones.reading.cluster import ClusterView
from kubectl_numazones.reading.pod_reports import reports_about
from kubectl_numazones.reading.source import Source
from kubectl_numazones.stuck.outlooks import Outlooks
from kubectl_numazones.stuck.stuck_pod import Background, exit_code, is_running, now, runs
from kubectl_numazones.stuck.stuck_pods import Stuck
from numazones.cluster.cluster import ClusterPod
from numazones.prediction import doubts
from numazones.prediction.forecast import ADMISSIBLE, INADMISSIBLE, UNKNOWN, Prediction
from numazones.prediction.stuck import PodCounts
from numazones_program.columns import Column

_CODES = (answers.EXIT_CODES[INADMISSIBLE], answers.EXIT_CODES[UNKNOWN], answers.EXIT_CODES[ADMISSIBLE])
"""The worst first."""


def show(
    found: Sequence[Stuck],
    outlooks: Outlooks,
    source: Source,
    output: Output,
    *,
    everywhere: bool,
    counts: PodCounts | None,
    where: str = "",
) -> int:
    """Print the list; return the exit code, that of the worst.

    Args:
        found: the pods by owner.
        outlooks: of the cluster.
        source: where it was read from.
        output: the form.
        everywhere: whether pods of all namespaces are listed.
        counts: number of stuck pods; None where pods were named.
        where: the namespace that has none, for a list without pods.
    """
    seen = outlooks.seen
    said = reports_about([item.example for item in found if not is_running(item.example)], seen, source)
    items = [
        (item, Background.of(item.example, item.prediction, outlooks, said.get(item.example.uid, ())))
        for item in found
    ]
    if items:
        screen.warn_of(doubts.of_nodes(seen.situation.cluster.nodes.values()))
    if output.is_document:
        # Imported late: text does without all that planning needs.
        from kubectl_numazones.stuck.why_document import WhyListDocument, why_document  # noqa: PLC0415

        documents = [why_document(item, seen, background) for item, background in items]
        output.write(WhyListDocument(documents, counts))
    elif output.form == "name":
        for item, _ in items:
            for pod in item.pods:
                screen.echo(f"pod/{pod.name}")
    elif not items:
        screen.echo(f"No stuck pods{where}", err=True)
    else:
        _print(items, seen, everywhere=everywhere, wide=output.form == "wide")
        if counts is not None:
            screen.echo(counts.sentence, err=True)
    codes = {exit_code(item.example, item.prediction.verdict, background) for item, background in items}
    return next((code for code in _CODES if code in codes), 0)


def _print(
    items: Sequence[tuple[Stuck, Background]], seen: ClusterView, *, everywhere: bool, wide: bool
) -> None:
    by_namespace = everywhere or len({item.example.namespace for item, _ in items}) > 1
    namespace: Column[tuple[Stuck, Background]] = Column("NAMESPACE", lambda row: row[0].example.namespace)
    columns: tuple[Column[tuple[Stuck, Background]], ...] = (
        *((namespace,) if by_namespace else ()),
        Column("POD", lambda row: row[0].example.name),
        Column("STATUS", lambda row: _status(row[0])),
        Column("AGE", lambda row: screen.age(row[0].since, seen.situation.surroundings.now)),
        Column("VERDICT", lambda row: _unless_running(row[0], row[0].prediction.verdict), wide=True),
        Column("NODES", lambda row: _unless_running(row[0], _admitting(row[0].prediction)), wide=True),
        Column("WHY", lambda row: _why(*row, seen)),
    )
    screen.print_table(columns, items, wide=wide)


def _unless_running(item: Stuck, text: str) -> str:
    return "" if is_running(item.example) else text


def _admitting(prediction: Prediction) -> str:
    return f"{prediction.nodes.admissible}/{prediction.nodes.all}"


def _why(item: Stuck, background: Background, seen: ClusterView) -> str:
    if is_running(item.example) and not background.waits:
        return runs(item.example, seen)
    return now(item.prediction, background)


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
