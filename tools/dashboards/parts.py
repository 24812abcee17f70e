"""Building blocks of the dashboards: panels of a few kinds, variables, links.

Queries use words in capitals for the labels that variables choose: ``CLUSTER``, and with it ``NAMESPACE``,
``NODE``, ``SHAPE`` and ``ZONE``. A panel that rightly shows nothing at times says why with ``empty``: Grafana
shows that text, and the tests, which ask a real Prometheus for every other panel's data, allow it to be empty.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    prometheus,
    stat,
    statushistory,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders.dashboard import (
    ConstantVariable,
    Dashboard,
    DashboardLink,
    DatasourceVariable,
    FieldColor,
    QueryVariable,
    Row,
    ThresholdsConfig,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.common import (
    BarGaugeDisplayMode,
    BigValueGraphMode,
    LegendDisplayMode,
    VisibilityMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    AnnotationQuery,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

TAG = "numazones"
RUNBOOKS = "https://numazones.example/runbooks"
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_CLUSTER = 'cluster=~"$cluster"'
_LABELS = {
    "NAMESPACE": f'{_CLUSTER},namespace=~"$namespace"',
    "ZONE": f'{_CLUSTER},node=~"$node",numa_node=~"$zone"',
    "NODE": f'{_CLUSTER},node=~"$node"',
    "SHAPE": f'{_CLUSTER},shape=~"$shape"',
    "CLUSTER": _CLUSTER,
}
_VARIABLES = {
    "cluster": ("Cluster", "label_values(numazones_nodes, cluster)"),
    "namespace": (
        "Namespace",
        'label_values({__name__=~"numazones_(owner_.+|rebalance_pods_evicted_total)",CLUSTER}, namespace)',
    ),
    "node": ("Node", "label_values(numazones_zone_capacity{CLUSTER}, node)"),
    "zone": ("NUMA node", "label_values(numazones_zone_capacity{NODE}, numa_node)"),
    "shape": ("Shape", "label_values(numazones_shape_fitting_pods{CLUSTER}, shape)"),
}
_NO_GOOD = ("green", "orange", "red")

Queries = dict[str, str]
"""Legend → query."""
Panel = stat.Panel | timeseries.Panel | table.Panel | bargauge.Panel | statushistory.Panel
P = TypeVar("P", stat.Panel, timeseries.Panel, table.Panel, bargauge.Panel, statushistory.Panel)


class _Marks(AnnotationQuery):
    """With what Grafana's data source for Prometheus reads, and the SDK's type has not."""

    format: Mapping[str, str]

    def to_json(self) -> dict[str, object]:
        """Return it as JSON."""
        return {**super().to_json(), **self.format}


class Marks(Builder[AnnotationQuery]):
    """Marks at the times at which a query has a value, on all graphs of a dashboard."""

    def __init__(self, name: str, query: str, *, color: str, title: str, text: str) -> None:
        """``title`` and ``text`` of a mark name labels of the query, as legends do."""
        self._marks = _Marks(name=name, datasource=_SOURCE, icon_color=color, expr=_filled(query))
        self._marks.format = {"titleFormat": title, "textFormat": text, "step": "60s"}

    def build(self) -> AnnotationQuery:
        """Return what the dashboard holds of them."""
        return self._marks


def dashboard(
    uid: str,
    title: str,
    description: str,
    *,
    variables: Sequence[str],
    rows: Iterable[tuple[str, Sequence[Panel]]],
    marks: Sequence[Marks] = (),
) -> Dashboard:
    """Put rows of panels together, with variables, marks, and links to the other dashboards and the runbooks."""
    board = (
        Dashboard(f"numazones / {title}")
        .uid(f"numazones-{uid}")
        .description(description)
        .tags([TAG, "numa"])
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .link(
            DashboardLink("numazones")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
        .link(DashboardLink("Runbooks").type(DashboardLinkType.LINK).url("${runbooks}/").target_blank(True))
        .with_variable(DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(ConstantVariable("runbooks").value(RUNBOOKS))
    )
    for name in variables:
        label, query = _VARIABLES[name]
        board.with_variable(
            QueryVariable(name)
            .label(label)
            .datasource(_SOURCE)
            .query({"query": _filled(query), "refId": name})
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(VariableSort.NUMERICAL_ASC if name == "zone" else VariableSort.ALPHABETICAL_ASC)
            .include_all(True)
            .multi(True)
            .all_value(".*")
        )
    for mark in marks:
        board.annotation(mark)
    number = 0
    for heading, panels in rows:
        board.with_row(Row(heading))
        for panel in panels:
            number += 1
            board.with_panel(panel.id(number))
    return board


def figure(
    title: str,
    description: str,
    query: str,
    *,
    unit: str = "short",
    limits: Sequence[float] = (),
    colors: Sequence[str] = _NO_GOOD,
    empty: str = "",
    runbook: str = "",
) -> stat.Panel:
    """One number; beyond each of the limits it takes the next color."""
    panel = _described(
        stat.Panel().height(4).span(4), title, description, unit, limits, colors, empty, runbook
    )
    panel.graph_mode(BigValueGraphMode.NONE).reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return panel.with_target(_target(query, title, instant=True))


def graph(
    title: str,
    description: str,
    queries: Queries,
    *,
    unit: str = "short",
    limits: Sequence[float] = (),
    top: float | None = None,
    width: int = 12,
    empty: str = "",
    runbook: str = "",
) -> timeseries.Panel:
    """Lines over time, with their last and highest values; they begin at 0 and may end at ``top``."""
    panel = _described(
        timeseries.Panel().height(8).span(width), title, description, unit, limits, _NO_GOOD, empty, runbook
    )
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.TABLE).show_legend(True)
    panel.min(0).fill_opacity(10).legend(legend.calcs(["lastNotNull", "max"]))
    if top is not None:
        panel.max(top)
    for name, query in queries.items():
        panel.with_target(_target(query, name))
    return _lettered(panel)


def bars(
    title: str, description: str, queries: Queries, *, unit: str = "short", empty: str = "", runbook: str = ""
) -> bargauge.Panel:
    """Numbers beside each other."""
    panel = _described(
        bargauge.Panel().height(8).span(12), title, description, unit, (), _NO_GOOD, empty, runbook
    )
    panel.orientation(VizOrientation.HORIZONTAL).display_mode(BarGaugeDisplayMode.BASIC).min(0)
    for name, query in queries.items():
        panel.with_target(_target(query, name, instant=True))
    return _lettered(panel)


def listing(
    title: str,
    description: str,
    queries: Queries,
    *,
    unit: str = "short",
    width: int = 12,
    empty: str = "",
    runbook: str = "",
) -> table.Panel:
    """A table with a column for each query and each label; a node's name leads to its dashboard."""
    panel = _described(
        table.Panel().height(8).span(width), title, description, unit, (), _NO_GOOD, empty, runbook
    )
    for letter, (name, query) in zip("ABCDEFGH", queries.items(), strict=False):
        panel.with_target(_target(query, name, instant=True).format(PromQueryFormat.TABLE))
        column = "Value" if len(queries) == 1 else f"Value #{letter}"
        panel.override_by_name(column, [DynamicConfigValue(id_val="displayName", value=name)])
    panel.show_header(True)
    link = {
        "title": "Show this node",
        "url": "/d/numazones-node?${cluster:queryparam}&var-node=${__value.text}",
    }
    panel.override_by_name("node", [DynamicConfigValue(id_val="links", value=[link])])
    panel.with_transformation(DataTransformerConfig(id_val="merge", options={}))
    hidden = {"excludeByName": {"Time": True}}
    panel.with_transformation(DataTransformerConfig(id_val="organize", options=hidden))
    return _lettered(panel)


def heat_map(
    title: str,
    description: str,
    queries: Queries,
    *,
    colors: FieldColorModeId,
    unit: str = "short",
    top: float | None = None,
    width: int = 24,
    empty: str = "",
) -> statushistory.Panel:
    """A row of cells over time for each series; from 0 to ``top``, or to the highest, they take their colors."""
    panel = _described(
        statushistory.Panel().height(9).span(width), title, description, unit, (), _NO_GOOD, empty, ""
    )
    panel.color_scheme(FieldColor().mode(colors)).min(0).row_height(0.9).max_data_points(60)
    panel.show_value(VisibilityMode.NEVER).fill_opacity(85).line_width(0)
    panel.legend(common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).show_legend(False))
    if top is not None:
        panel.max(top)
    for name, query in queries.items():
        panel.with_target(_target(query, name))
    return _lettered(panel)


def quantiles(histogram: str, *, by: str = "") -> Queries:
    """Median and 99th percentile of a histogram's recent observations."""
    labels = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    rate = f"sum by ({labels}) (rate({histogram}_bucket{{CLUSTER}}[$__rate_interval]))"
    return {f"p{share * 100:g}{legend}": f"histogram_quantile({share}, {rate})" for share in (0.5, 0.99)}


def _described(
    panel: P,
    title: str,
    description: str,
    unit: str,
    limits: Sequence[float],
    colors: Sequence[str],
    empty: str,
    runbook: str,
) -> P:
    steps = [
        Threshold(value=limit, color=color) for limit, color in zip((None, *limits), colors, strict=False)
    ]
    panel.title(title).description(description).unit(unit).datasource(_SOURCE)
    panel.thresholds(ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    if empty:
        panel.no_value(empty)
    if runbook:
        link = DashboardLink(f"Runbook: {runbook}").type(DashboardLinkType.LINK)
        panel.links([link.url(f"${{runbooks}}/#{runbook.lower()}").target_blank(True)])
    return panel


def _target(query: str, legend: str, *, instant: bool = False) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(_filled(query)).legend_format(legend).datasource(_SOURCE)
    return target.instant() if instant else target.range()


def _lettered(panel: P) -> P:
    for letter, target in zip("ABCDEFGH", panel.build().targets or (), strict=False):
        target.ref_id = letter  # type: ignore[attr-defined]
    return panel


def _filled(query: str) -> str:
    for word, labels in _LABELS.items():
        query = query.replace(word, labels)
    return query
