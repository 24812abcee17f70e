"""Operations: whether exporters and operator do their work, how late, and what they cost."""

from tools.dashboards.parts import dashboard, figure, graph, listing, quantiles

OPERATOR, EXPORTER = "numazones_operator", "numazones_exporter"
WRITES = f"{OPERATOR}_api_writes_total"
NO_EXTENDER = "no scheduler calls an extender"
TROUBLE = {
    "sampled": "sampled_requests",
    "tried again": "repeated_requests",
    "too late": "unread_answers",
    "refused at bind": "bind_conflicts",
}
"""What goes wrong → the counter of it."""


def per_second(counter: str, by: str) -> str:
    """Return the rate of a counter."""
    return f"sum by ({by}) (rate({counter}{{CLUSTER}}[$__rate_interval]))"


DASHBOARD = dashboard(
    "operations",
    "operations",
    "Whether exporters and operator work, how late they are, and what they cost.",
    variables=("cluster", "node"),
    rows=[
        (
            "Now",
            [
                figure(
                    "Leaders",
                    "Replicas of the operator that write; there must be exactly one.",
                    f"sum({OPERATOR}_leader{{CLUSTER}})",
                    limits=(1, 2),
                    colors=("red", "green", "red"),
                    runbook="NumazonesNoLeader",
                ),
                figure("Replicas", "Operators that are scraped.", f"count({OPERATOR}_build_info{{CLUSTER}})"),
                figure(
                    "Exporters", "Exporters that are scraped.", f"count({EXPORTER}_build_info{{CLUSTER}})"
                ),
                figure(
                    "Nodes without NUMAZones",
                    "Nodes without published NUMAZones.",
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
                    "Writes that fail",
                    "Share of the operator's writes to the API server.",
                    f'(sum(rate({WRITES}{{result!="ok",CLUSTER}}[10m])) or 0 * sum(rate({WRITES}{{CLUSTER}}[10m])))'
                    f" / (sum(rate({WRITES}{{CLUSTER}}[10m])) > 0)",
                    unit="percentunit",
                    limits=(0.02, 0.1),
                    empty="nothing was written",
                    runbook="NumazonesWritesFail",
                ),
            ],
        ),
        (
            "Operator",
            [
                graph(
                    "Lag of predictions",
                    "From seeing a change to publishing the prediction for it.",
                    quantiles(f"{OPERATOR}_lag_seconds"),
                    unit="s",
                    limits=(1, 5),
                    runbook="NumazonesPredictionsLate",
                ),
                graph(
                    "Queues",
                    "Changes to process, and objects to write.",
                    {"{{queue}}": f"sum by (queue) ({OPERATOR}_queue_depth{{CLUSTER}})"},
                    runbook="NumazonesPredictionsLate",
                ),
                graph(
                    "Time to update all predictions",
                    "After one batch of changes.",
                    quantiles(f"{OPERATOR}_compute_duration_seconds"),
                    unit="s",
                ),
                graph(
                    "Leaders over time",
                    "A gap is a time without a leader.",
                    {"leaders": f"sum({OPERATOR}_leader{{CLUSTER}})"},
                    runbook="NumazonesSeveralLeaders",
                ),
            ],
        ),
        (
            "Exporters",
            [
                graph(
                    "Time since NUMAZones were confirmed as published",
                    "By node. It grows up to the interval (60 s) if nothing changes.",
                    {
                        "{{node}}": f"max by (node) (time() - {EXPORTER}_last_publish_timestamp_seconds{{NODE}})"
                    },
                    unit="s",
                    limits=(120, 300),
                    runbook="NumazonesExporterCannotPublish",
                ),
                graph(
                    "Time to read a node",
                    "One reading of all sources.",
                    quantiles(f"{EXPORTER}_scan_duration_seconds"),
                    unit="s",
                ),
                graph(
                    "Sources that could not be read",
                    "Failed readings by source.",
                    {"{{source}}": f"60 * {per_second(f'{EXPORTER}_source_errors_total', 'source')}"},
                    unit="cpm",
                    runbook="NumazonesExporterSourceFails",
                ),
                graph(
                    "Why nodes were read",
                    "Readings by reason.",
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
                    "Nodes that filter ruled out, by reason.",
                    {"{{reason}}": f"60 * {per_second('numazones_extender_rejected_nodes_total', 'reason')}"},
                    unit="cpm",
                    empty=NO_EXTENDER,
                ),
                graph(
                    "Trouble between scheduler and extender",
                    "Requests with only a sample of the nodes, pods that are retried again and again, "
                    "late responses, refused bindings.",
                    {
                        name: f"60 * sum(rate(numazones_extender_{metric}_total{{CLUSTER}}[$__rate_interval]))"
                        for name, metric in TROUBLE.items()
                    },
                    unit="cpm",
                    runbook="NumazonesPodsSpin",
                ),
                graph(
                    "Pods on their way",
                    "Room is held for pods released from the gate, being bound, or nominated; others wait for a scheduler.",
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
                    "Writes of the operator",
                    "By resource and result: ok, or the HTTP status of the failure.",
                    {
                        "{{resource}}: {{result}}": per_second(
                            f"{OPERATOR}_api_writes_total", "resource, result"
                        )
                    },
                    unit="wps",
                    runbook="NumazonesWritesFail",
                ),
                graph(
                    "Writes of all exporters",
                    "By kind and result.",
                    {"{{kind}}: {{result}}": per_second(f"{EXPORTER}_api_writes_total", "kind, result")},
                    unit="wps",
                ),
                graph(
                    "Watches that ended",
                    "Ended on time, or broken, expired, rejected, unreachable.",
                    {
                        "{{resource}}: {{reason}}": f"60 * {per_second(f'{OPERATOR}_watch_restarts_total', 'resource, reason')}"
                    },
                    unit="cpm",
                    empty="no watch has ended since the operator began",
                    runbook="NumazonesWatchesFail",
                ),
                graph(
                    "Mean time to list a resource, and dropped events",
                    "Listing time by resource, since the start; and events that the rate limit dropped, "
                    "per second.",
                    {
                        "list of {{resource}} (s)": f"sum by (resource) ({OPERATOR}_list_duration_seconds_sum{{CLUSTER}})"
                        f" / (sum by (resource) ({OPERATOR}_list_duration_seconds_count{{CLUSTER}}) > 0)",
                        "events dropped (/s)": f"sum(rate({OPERATOR}_events_dropped_total{{CLUSTER}}[$__rate_interval]))",
                    },
                ),
            ],
        ),
        (
            "Cost",
            [
                graph(
                    "CPU",
                    "Of each operator, and of the exporters: the mean and the busiest.",
                    {
                        "operator {{instance}}": f"rate({OPERATOR}_process_cpu_seconds_total{{CLUSTER}}[$__rate_interval])",
                        "exporters, mean": f"avg(rate({EXPORTER}_process_cpu_seconds_total{{CLUSTER}}[$__rate_interval]))",
                        "exporters, most": f"max(rate({EXPORTER}_process_cpu_seconds_total{{CLUSTER}}[$__rate_interval]))",
                    },
                    unit="cores",
                ),
                graph(
                    "Memory",
                    "Resident, of each operator, and of the exporters: the mean and the largest.",
                    {
                        "operator {{instance}}": f"{OPERATOR}_process_resident_memory_bytes{{CLUSTER}}",
                        "exporters, mean": f"avg({EXPORTER}_process_resident_memory_bytes{{CLUSTER}})",
                        "exporters, most": f"max({EXPORTER}_process_resident_memory_bytes{{CLUSTER}})",
                    },
                    unit="bytes",
                ),
                listing(
                    "Versions",
                    "What runs where.",
                    {
                        "Programs": f'count by (version, program) (label_replace({OPERATOR}_build_info{{CLUSTER}}, "program", "operator", "", "")'
                        f' or label_replace({EXPORTER}_build_info{{CLUSTER}}, "program", "exporter", "", ""))'
                    },
                ),
            ],
        ),
    ],
)
