"""Operations: whether exporters and operator do their work, how late, and what they cost."""

from tools.dashboards.parts import dashboard, figure, graph, listing, quantiles

OPERATOR, EXPORTER = "numazones_operator", "numazones_exporter"
WRITES = f"{OPERATOR}_api_writes_total"
NO_EXTENDER = "no scheduler calls an extender"
TROUBLE = {
    "sampled": "sampled_requests",
    "retried": "repeated_requests",
    "too late": "unread_answers",
    "bind refused": "bind_conflicts",
}
"""What goes wrong → the counter of it."""


def per_second(counter: str, by: str) -> str:
    """Return the rate of a counter."""
    return f"sum by ({by}) (rate({counter}{{CLUSTER}}[$__rate_interval]))"


DASHBOARD = dashboard(
    "operations",
    "operations",
    "Health, latency and resource usage of the exporters and the operator.",
    variables=("cluster", "node"),
    rows=[
        (
            "Now",
            [
                figure(
                    "Leaders",
                    "Operator replicas that are the leader; there must be exactly one.",
                    f"sum({OPERATOR}_leader{{CLUSTER}})",
                    limits=(1, 2),
                    colors=("red", "green", "red"),
                    runbook="NumazonesNoLeader",
                ),
                figure(
                    "Replicas",
                    "Operator replicas that Prometheus scrapes.",
                    f"count({OPERATOR}_build_info{{CLUSTER}})",
                ),
                figure(
                    "Exporters",
                    "Exporters that Prometheus scrapes.",
                    f"count({EXPORTER}_build_info{{CLUSTER}})",
                ),
                figure(
                    "Nodes without NUMAZones",
                    "Nodes for which no NUMAZones are published.",
                    'sum(numazones_stale_nodes{reason="NoZones",CLUSTER})',
                    limits=(1, 5),
                    runbook="NumazonesStaleNodes",
                ),
                figure(
                    "Oldest NUMAZones",
                    "Longest time since an exporter last confirmed that its NUMAZones are published.",
                    f"max(time() - {EXPORTER}_last_publish_timestamp_seconds{{CLUSTER}})",
                    unit="s",
                    limits=(120, 300),
                    runbook="NumazonesExporterCannotPublish",
                ),
                figure(
                    "Failed writes",
                    "Share of the operator's writes to the API server that failed.",
                    f'(sum(rate({WRITES}{{result!="ok",CLUSTER}}[10m])) or 0 * sum(rate({WRITES}{{CLUSTER}}[10m])))'
                    f" / (sum(rate({WRITES}{{CLUSTER}}[10m])) > 0)",
                    unit="percentunit",
                    limits=(0.02, 0.1),
                    empty="no writes",
                    runbook="NumazonesWritesFail",
                ),
            ],
        ),
        (
            "Operator",
            [
                graph(
                    "Prediction lag",
                    "Time between observing a change and publishing the resulting prediction.",
                    quantiles(f"{OPERATOR}_lag_seconds"),
                    unit="s",
                    limits=(1, 5),
                    runbook="NumazonesPredictionsLate",
                ),
                graph(
                    "Queues",
                    "Number of changes to process and of objects to write.",
                    {"{{queue}}": f"sum by (queue) ({OPERATOR}_queue_depth{{CLUSTER}})"},
                    runbook="NumazonesPredictionsLate",
                ),
                graph(
                    "Time to update all predictions",
                    "Time to update all predictions after a batch of changes.",
                    quantiles(f"{OPERATOR}_compute_duration_seconds"),
                    unit="s",
                ),
                graph(
                    "Leaders over time",
                    "A gap means that there was no leader.",
                    {"leaders": f"sum({OPERATOR}_leader{{CLUSTER}})"},
                    runbook="NumazonesSeveralLeaders",
                ),
            ],
        ),
        (
            "Exporters",
            [
                graph(
                    "Age of the NUMAZones by node",
                    "Time since the exporter last confirmed that its NUMAZones are published. It does "
                    "so after every change, and at least every 60 s (--interval).",
                    {
                        "{{node}}": f"max by (node) (time() - {EXPORTER}_last_publish_timestamp_seconds{{NODE}})"
                    },
                    unit="s",
                    limits=(120, 300),
                    runbook="NumazonesExporterCannotPublish",
                ),
                graph(
                    "Time to read a node",
                    "Time to read all sources once.",
                    quantiles(f"{EXPORTER}_scan_duration_seconds"),
                    unit="s",
                ),
                graph(
                    "Sources that could not be read",
                    "Failed reads by source.",
                    {"{{source}}": f"60 * {per_second(f'{EXPORTER}_source_errors_total', 'source')}"},
                    unit="cpm",
                    runbook="NumazonesExporterSourceFails",
                ),
                graph(
                    "Reads by trigger",
                    "Reads of nodes per minute, by the event that triggered them.",
                    {"{{reason}}": f"60 * {per_second(f'{EXPORTER}_wakeups_total', 'reason')}"},
                    unit="cpm",
                ),
            ],
        ),
        (
            "Scheduler extender",
            [
                graph(
                    "Time to respond to the scheduler",
                    "99th percentile by verb; the scheduler waits during filter, prioritize and preempt.",
                    {
                        "{{verb}}": "histogram_quantile(0.99, sum by (verb, le) (rate("
                        "numazones_extender_request_duration_seconds_bucket{CLUSTER}[$__rate_interval])))"
                    },
                    unit="s",
                    limits=(1, 3),
                    empty=NO_EXTENDER,
                    runbook="NumazonesExtenderSlow",
                ),
                graph(
                    "Nodes ruled out for the scheduler",
                    "Nodes that the extender ruled out in filter requests, by reason.",
                    {"{{reason}}": f"60 * {per_second('numazones_extender_rejected_nodes_total', 'reason')}"},
                    unit="cpm",
                    empty=NO_EXTENDER,
                ),
                graph(
                    "Problems between scheduler and extender",
                    "Requests with only a sample of the nodes, excess retries of a pod, late responses, "
                    "and refused bindings.",
                    {
                        name: f"60 * sum(rate(numazones_extender_{metric}_total{{CLUSTER}}[$__rate_interval]))"
                        for name, metric in TROUBLE.items()
                    },
                    unit="cpm",
                    runbook="NumazonesPodsSpin",
                ),
                graph(
                    "Pods on their way to a node",
                    "Pods that room is held for (released from the gate, being bound, or nominated) and "
                    "pods that are waiting for a scheduler.",
                    {
                        "room held": "sum(numazones_held_room_pods{CLUSTER})",
                        "waiting for {{scheduler}}": "sum by (scheduler) (numazones_waiting_pods{CLUSTER})",
                    },
                    runbook="NumazonesExtenderAbsent",
                ),
            ],
        ),
        (
            "API server",
            [
                graph(
                    "Operator writes",
                    "Writes by resource and result: ok, or the HTTP status of the failure.",
                    {
                        "{{resource}}: {{result}}": per_second(
                            f"{OPERATOR}_api_writes_total", "resource, result"
                        )
                    },
                    unit="wps",
                    runbook="NumazonesWritesFail",
                ),
                graph(
                    "Exporter writes",
                    "Writes of all exporters, by kind and result.",
                    {"{{kind}}: {{result}}": per_second(f"{EXPORTER}_api_writes_total", "kind, result")},
                    unit="wps",
                ),
                graph(
                    "Watches that ended",
                    "By resource and reason: ended on time, broken, expired, rejected or unreachable.",
                    {
                        "{{resource}}: {{reason}}": f"60 * {per_second(f'{OPERATOR}_watch_restarts_total', 'resource, reason')}"
                    },
                    unit="cpm",
                    empty="no watches have ended since the operator started",
                    runbook="NumazonesWatchesFail",
                ),
                graph(
                    "List duration and dropped events",
                    "Mean time to list a resource since the operator started, and events per second that "
                    "the rate limit dropped.",
                    {
                        "list of {{resource}} (s)": f"sum by (resource) ({OPERATOR}_list_duration_seconds_sum{{CLUSTER}})"
                        f" / (sum by (resource) ({OPERATOR}_list_duration_seconds_count{{CLUSTER}}) > 0)",
                        "events dropped (/s)": f"sum(rate({OPERATOR}_events_dropped_total{{CLUSTER}}[$__rate_interval]))",
                    },
                ),
            ],
        ),
        (
            "Resource usage",
            [
                graph(
                    "CPU",
                    "CPU usage of each operator replica, and the mean and maximum of the exporters.",
                    {
                        "operator {{instance}}": f"rate({OPERATOR}_process_cpu_seconds_total{{CLUSTER}}[$__rate_interval])",
                        "exporters, mean": f"avg(rate({EXPORTER}_process_cpu_seconds_total{{CLUSTER}}[$__rate_interval]))",
                        "exporters, maximum": f"max(rate({EXPORTER}_process_cpu_seconds_total{{CLUSTER}}[$__rate_interval]))",
                    },
                    unit="cores",
                ),
                graph(
                    "Memory",
                    "Resident memory of each operator replica, and the mean and maximum of the exporters.",
                    {
                        "operator {{instance}}": f"{OPERATOR}_process_resident_memory_bytes{{CLUSTER}}",
                        "exporters, mean": f"avg({EXPORTER}_process_resident_memory_bytes{{CLUSTER}})",
                        "exporters, maximum": f"max({EXPORTER}_process_resident_memory_bytes{{CLUSTER}})",
                    },
                    unit="bytes",
                ),
                listing(
                    "Versions",
                    "Number of running operators and exporters, by version.",
                    {
                        "Programs": f'count by (version, program) (label_replace({OPERATOR}_build_info{{CLUSTER}}, "program", "operator", "", "")'
                        f' or label_replace({EXPORTER}_build_info{{CLUSTER}}, "program", "exporter", "", ""))'
                    },
                ),
            ],
        ),
    ],
)
