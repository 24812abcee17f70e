"""The cluster: how fragmented it is, which pods are blocked, how much room there is, how right predictions are."""

from dashboards.parts import bars, dashboard, figure, graph, listing

ACCURACY = "numazones_prediction_accuracy_total"
FREE = 'numazones_cluster_zone_available{resource="cpu",CLUSTER}'
GATED = "numazones_admission_gates_released_total"


def true_share(window: str, by: str = "") -> str:
    """Share of predictions that came true; neither side needs the other's series to exist."""
    right, all_of_them = (
        f"sum{by} (increase({ACCURACY}{{{wanted},CLUSTER}}[{window}]))"
        for wanted in ('accuracy="right"', 'accuracy!="unknown"')
    )
    return f"({right} or 0 * {all_of_them}) / ({all_of_them} > 0)"


DASHBOARD = dashboard(
    "cluster",
    "cluster",
    "How fragmented the cluster is, which pods are blocked and by what, how much room there is, and how right the predictions are.",
    variables=("cluster", "namespace", "shape"),
    rows=[
        (
            "Now",
            [
                figure("Nodes", "Nodes that the operator knows.", "sum(numazones_nodes{CLUSTER})"),
                figure(
                    "Stale nodes",
                    "Nodes of which nothing certain is known; predictions for them are Unknown.",
                    "sum(numazones_stale_nodes{CLUSTER})",
                    limits=(1, 5),
                    runbook="NumazonesStaleNodes",
                ),
                figure(
                    "Blocked pods",
                    "Pods without a node that no node would admit.",
                    'sum(numazones_predictions{verdict="Inadmissible",CLUSTER})',
                    limits=(1, 10),
                    runbook="NumazonesPodsBlocked",
                ),
                figure(
                    "Unknown",
                    "Pods without a node for which nothing could be predicted.",
                    'sum(numazones_predictions{verdict="Unknown",CLUSTER})',
                    limits=(1, 10),
                ),
                figure(
                    "Gated pods",
                    "Pods that wait behind the scheduling gate numazones.io/admission.",
                    "sum(numazones_gated_pods{CLUSTER})",
                    runbook="NumazonesGateNotServed",
                ),
                figure(
                    "Predictions that came true",
                    "Share of the predictions of the shown time that came true.",
                    true_share("$__range"),
                    unit="percentunit",
                    limits=(0.95, 0.99),
                    colors=("red", "orange", "green"),
                    runbook="NumazonesPredictionsMiss",
                ),
            ],
        ),
        (
            "Room",
            [
                graph(
                    "Fragmentation by shape",
                    "Share of the free exclusive CPUs that no further pod of the shape could use.",
                    {"{{shape}}": "max by (shape) (numazones_fragmentation_ratio{SHAPE})"},
                    unit="percentunit",
                    limits=(0.5, 0.8),
                    top=1,
                    runbook="NumazonesFragmented",
                ),
                graph(
                    "Headroom by shape",
                    "How many further pods of the shape fit, each on one NUMA node.",
                    {"{{shape}}": "sum by (shape) (numazones_shape_fitting_pods{SHAPE})"},
                    unit="pods",
                ),
                graph(
                    "Free exclusive CPUs",
                    "All of them, and those on each node's emptiest NUMA node: what one pod there can have at most.",
                    {
                        "all": f"sum({FREE})",
                        "on the emptiest NUMA nodes": f"sum(max by (cluster, node) ({FREE}))",
                    },
                    unit="cores",
                ),
                listing(
                    "Where the free CPUs are",
                    "Free exclusive CPUs of each node, on its emptiest NUMA node, and the largest request that would still fit.",
                    {
                        "Free": f"sum by (node) ({FREE})",
                        "On one NUMA node": f"max by (node) ({FREE})",
                        "Largest request": "max by (node) (numazones_zone_largest_request_cpus{CLUSTER})",
                        "On whole cores": "max by (node) (numazones_zone_largest_request_full_core_cpus{CLUSTER})",
                    },
                ),
            ],
        ),
        (
            "Blocked pods",
            [
                graph(
                    "Blocked pods by reason",
                    "Pods that no node would take, by who stands in the way and the most important reason.",
                    {"{{source}}: {{reason}}": "sum by (source, reason) (numazones_blocked_pods{CLUSTER})"},
                    empty="no pod is blocked",
                    runbook="NumazonesPodsBlocked",
                ),
                listing(
                    "Blocked pods by owner",
                    "The owners with the most pods that no node would take.",
                    {
                        "Pods": "sum by (namespace, owner_kind, owner, reason) (numazones_owner_blocked_pods{NAMESPACE})"
                    },
                    empty="no pod is blocked",
                    runbook="NumazonesPodsBlocked",
                ),
                listing(
                    "Rejected pods by owner",
                    "Pods that kubelets rejected in the shown time. Many of one owner are a loop: its controller makes new ones.",
                    {
                        "Pods": "sum by (namespace, owner_kind, owner, reason)"
                        " (increase(numazones_owner_rejections_total{NAMESPACE}[$__range])) > 0"
                    },
                    empty="no pod was rejected",
                    runbook="NumazonesRejectionLoop",
                ),
                graph(
                    "Released gates",
                    "Gated pods that were released, by reason. A timeout means that nobody knew whether a node would admit them.",
                    {"{{reason}}": f"60 * sum by (reason) (rate({GATED}{{CLUSTER}}[$__rate_interval]))"},
                    unit="cpm",
                    runbook="NumazonesGateTimeouts",
                ),
            ],
        ),
        (
            "Accuracy",
            [
                graph(
                    "Predictions that came true, by model",
                    "Share within an hour, by who places pods on the node: the kubelet, Koordinator, or NRI's topology-aware policy.",
                    {"{{model}}": true_share("1h", " by (model)")},
                    unit="percentunit",
                    top=1,
                    runbook="NumazonesModelMisses",
                ),
                bars(
                    "Predictions by model and cause",
                    "In the shown time. Wrong by race: pods came or went meanwhile; by stale zones; or by the model, which is a fault.",
                    {
                        "{{model}}: {{accuracy}}": f"sum by (model, accuracy) (increase({ACCURACY}{{CLUSTER}}[$__range])) > 0"
                    },
                    runbook="NumazonesPredictionsMiss",
                ),
                graph(
                    "What was predicted, and what kubelets did",
                    "Pods that got a node, by prediction and outcome.",
                    {
                        "{{predicted}}: {{actual}}": "60 * sum by (predicted, actual)"
                        " (rate(numazones_prediction_outcomes_total{CLUSTER}[$__rate_interval]))"
                    },
                    unit="cpm",
                    width=24,
                ),
            ],
        ),
    ],
)
