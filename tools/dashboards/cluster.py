"""The cluster: how fragmented it is, which pods are blocked, how much room there is, how right predictions are."""

from grafana_foundation_sdk.models.dashboard import FieldColorModeId

from tools.dashboards.marks import EVICTIONS, PLANS
from tools.dashboards.parts import bars, dashboard, figure, graph, heat_map, listing

ACCURACY = "numazones_prediction_accuracy_total"
FREE = 'numazones_cluster_zone_available{resource="cpu",CLUSTER}'
GATED = "numazones_admission_gates_released_total"
USE = " / ".join(
    f'(sum by (cluster, node, numa_node) (numazones_cluster_zone_{amount}{{resource="cpu",CLUSTER}}){more})'
    for amount, more in (("assigned", ""), ("allocatable", " > 0"))
)
BANDS = {
    "full": ">= 1",
    "three quarters to full": ">= 0.75 < 1",
    "half to three quarters": ">= 0.5 < 0.75",
    "a quarter to half": ">= 0.25 < 0.5",
    "up to a quarter": "> 0 < 0.25",
    "empty": "== 0",
}
"""How full NUMA nodes are, the fullest first."""
DEVICES = 'unit="integer",CLUSTER'
OWNER = "(namespace, owner_kind, owner)"
NAMED = 'owner!="(others)",NAMESPACE'


def true_share(window: str, by: str = "") -> str:
    """Share of predictions that came true; neither side needs the other's series to exist."""
    right, all_of_them = (
        f"sum{by} (increase({ACCURACY}{{{wanted},CLUSTER}}[{window}]))"
        for wanted in ('accuracy="right"', 'accuracy!="unknown"')
    )
    return f"({right} or 0 * {all_of_them}) / ({all_of_them} > 0)"


def remote_share(amounts: str) -> str:
    """Share of an amount that is on another NUMA node than where it is used."""
    return f'sum({amounts}{{placement="remote",CLUSTER}}) / (sum({amounts}{{CLUSTER}}) > 0)'


DASHBOARD = dashboard(
    "cluster",
    "cluster",
    "How fragmented the cluster is, which pods are blocked and why, how much room there is, and how "
    "accurate predictions are.",
    variables=("cluster", "namespace", "shape"),
    marks=(PLANS, EVICTIONS),
    rows=[
        (
            "Now",
            [
                figure("Nodes", "Nodes known to the operator.", "sum(numazones_nodes{CLUSTER})"),
                figure(
                    "Stale nodes",
                    "Nodes whose state is uncertain; predictions for them are Unknown.",
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
                    "Unknown verdicts",
                    "Pods without a node whose admission could not be predicted.",
                    'sum(numazones_predictions{verdict="Unknown",CLUSTER})',
                    limits=(1, 10),
                ),
                figure(
                    "Gated pods",
                    "Pods waiting behind the scheduling gate numazones.io/admission.",
                    "sum(numazones_gated_pods{CLUSTER})",
                    runbook="NumazonesGateNotServed",
                ),
                figure(
                    "Correct predictions",
                    "Share of the predictions in the selected time range that were correct.",
                    true_share("$__range"),
                    unit="percentunit",
                    limits=(0.95, 0.99),
                    colors=("red", "orange", "green"),
                    runbook="NumazonesPredictionsMiss",
                ),
            ],
        ),
        (
            "Free capacity",
            [
                graph(
                    "Fragmentation by shape",
                    "Share of the free exclusive CPUs that additional pods of the shape could not use.",
                    {"{{shape}}": "max by (shape) (numazones_fragmentation_ratio{SHAPE})"},
                    unit="percentunit",
                    limits=(0.5, 0.8),
                    top=1,
                    runbook="NumazonesFragmented",
                ),
                graph(
                    "Headroom by shape",
                    "Number of additional pods of the shape that would be admitted, as counted by "
                    "`kubectl numazones fit SHAPE`.",
                    {"{{shape}}": "sum by (shape) (numazones_shape_fitting_pods{SHAPE})"},
                    unit="pods",
                ),
                graph(
                    "Free exclusive CPUs",
                    "All free exclusive CPUs, and only those on the emptiest NUMA node of each node, which one "
                    "pod per node can get without spanning NUMA nodes.",
                    {
                        "all": f"sum({FREE})",
                        "on the emptiest NUMA nodes": f"sum(max by (cluster, node) ({FREE}))",
                    },
                    unit="cores",
                ),
                listing(
                    "Free CPUs by node",
                    "Free exclusive CPUs of each node, in total and on its emptiest NUMA node, and the "
                    "largest request that would still fit.",
                    {
                        "Free": f"sum by (node) ({FREE})",
                        "On one NUMA node": f"max by (node) ({FREE})",
                        "Largest request": "max by (node) (numazones_zone_largest_request_cpus{CLUSTER})",
                        "In whole cores": "max by (node) (numazones_zone_largest_request_full_core_cpus{CLUSTER})",
                    },
                ),
            ],
        ),
        (
            "NUMA nodes and devices",
            [
                heat_map(
                    "NUMA nodes by share of CPUs held",
                    "Number of NUMA nodes by the share of their CPUs that pods hold; darker means more "
                    'NUMA nodes. The dashboard "NUMA nodes" shows one row for each of them.',
                    {name: f"count({USE} {band}) or vector(0)" for name, band in BANDS.items()},
                    colors=FieldColorModeId.CONTINUOUS_BLUES,
                ),
                graph(
                    "Free devices by resource",
                    "Healthy devices that no pod holds; a device close to several NUMA nodes is counted "
                    "on each of them.",
                    {"{{resource}}": f"sum by (resource) (numazones_cluster_zone_available{{{DEVICES}}})"},
                    empty="no devices",
                ),
                graph(
                    "Free devices on NUMA nodes without free CPUs",
                    "Free devices on NUMA nodes that have no exclusive CPUs left, so aligned pods cannot "
                    "use them.",
                    {
                        "{{resource}}": f"sum by (resource) (numazones_cluster_zone_available{{{DEVICES}}}"
                        f" * on (cluster, node, numa_node) group_left () (sum by (cluster, node, numa_node) ({FREE}) == bool 0))"
                    },
                    empty="no devices",
                ),
                listing(
                    "Devices by node",
                    "Numbers of healthy, held and free devices.",
                    {
                        name: f"sum by (node, resource) (numazones_cluster_zone_{amount}{{{DEVICES}}})"
                        for name, amount in (
                            ("Healthy", "allocatable"),
                            ("Held", "assigned"),
                            ("Free", "available"),
                        )
                    },
                    width=24,
                    empty="no devices",
                ),
            ],
        ),
        (
            "Alignment",
            [
                graph(
                    "Pods by alignment",
                    "Pods with exclusive CPUs, memory or devices: aligned, spanning NUMA nodes, or remote "
                    "from a device or from memory.",
                    {"{{alignment}}": "sum by (alignment) (numazones_node_pods{CLUSTER})"},
                    unit="pods",
                    runbook="NumazonesOwnerMisaligned",
                ),
                graph(
                    "Share of remote CPUs and memory",
                    "Exclusive CPUs and assigned memory that are not on the NUMA node with most of their "
                    "container's resources, and resident memory on NUMA nodes where the pod has no CPU "
                    "(exporters with --cgroups).",
                    {
                        "CPUs": remote_share("numazones_owner_cpus"),
                        "assigned memory": remote_share("numazones_owner_promised_memory_bytes"),
                        "resident memory": remote_share("numazones_node_resident_memory_bytes"),
                    },
                    unit="percentunit",
                    top=1,
                    empty="no pod has exclusive CPUs or memory",
                ),
                listing(
                    "Owners of misaligned pods",
                    "Up to 50 owners: how many of their pods are not aligned, how many of these could be "
                    "aligned on their own nodes now, and how many CPUs are remote from the rest of their "
                    "container.",
                    {
                        "Not aligned": f"sum by {OWNER} (numazones_owner_misaligned_pods{{{NAMED}}}) > 0",
                        "Alignable now": f'sum by {OWNER} (numazones_owner_misaligned_pods{{alignable="now",{NAMED}}})'
                        f" and sum by {OWNER} (numazones_owner_misaligned_pods{{{NAMED}}}) > 0",
                        "Remote CPUs": f'sum by {OWNER} (numazones_owner_cpus{{placement="remote",{NAMED}}})'
                        f" and sum by {OWNER} (numazones_owner_misaligned_pods{{{NAMED}}}) > 0",
                    },
                    width=24,
                    empty="all pods are aligned",
                    runbook="NumazonesOwnerMisaligned",
                ),
            ],
        ),
        (
            "Blocked pods",
            [
                listing(
                    "Longest-waiting pods",
                    "Up to 50 pods that no node would admit, with the most important reason and the "
                    "active plan that makes room.",
                    {
                        "Waiting": "sort_desc(time() - max by (namespace, pod, reason, recommendation)"
                        " (numazones_blocked_pod_created_timestamp_seconds{NAMESPACE}))"
                    },
                    unit="s",
                    width=24,
                    empty="no pods are blocked",
                    runbook="NumazonesPodsBlocked",
                ),
                graph(
                    "Blocked pods by reason",
                    "Pods that no node would admit, by the source of the rejection and the most important "
                    "reason.",
                    {"{{source}}: {{reason}}": "sum by (source, reason) (numazones_blocked_pods{CLUSTER})"},
                    empty="no pods are blocked",
                    runbook="NumazonesPodsBlocked",
                ),
                listing(
                    "Blocked pods by owner",
                    "Owners with the most pods that no node would admit.",
                    {
                        "Pods": "sum by (namespace, owner_kind, owner, reason) (numazones_owner_blocked_pods{NAMESPACE})"
                    },
                    empty="no pods are blocked",
                    runbook="NumazonesPodsBlocked",
                ),
                listing(
                    "Rejected pods by owner",
                    "Pods that kubelets rejected in the selected time range. Many pods of one owner "
                    "indicate a loop: its controller keeps creating new ones.",
                    {
                        "Pods": "sum by (namespace, owner_kind, owner, reason)"
                        " (increase(numazones_owner_rejections_total{NAMESPACE}[$__range])) > 0"
                    },
                    empty="no pods were rejected",
                    runbook="NumazonesRejectionLoop",
                ),
                graph(
                    "Pods released from the gate",
                    "Gated pods that were released, by reason. A timeout means that it was unknown whether a node would admit them.",
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
                    "Correct predictions by model",
                    "Share over the last hour, by the placement model of the node: the kubelet, "
                    "Koordinator, or NRI's topology-aware policy.",
                    {"{{model}}": true_share("1h", " by (model)")},
                    unit="percentunit",
                    top=1,
                    runbook="NumazonesModelMisses",
                ),
                bars(
                    "Predictions by model and accuracy",
                    "Predictions in the selected time range. Wrong ones have one of three causes: a race "
                    "(pods came or went in the meantime), stale NUMAZones, or a bug in the model.",
                    {
                        "{{model}}: {{accuracy}}": f"sum by (model, accuracy) (increase({ACCURACY}{{CLUSTER}}[$__range])) > 0"
                    },
                    runbook="NumazonesPredictionsMiss",
                ),
                graph(
                    "Predictions and kubelet decisions",
                    "Pods bound to a node, by prediction and outcome.",
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
