"""One node, or some: what each NUMA node has, has given away and has left."""

from grafana_foundation_sdk.models.dashboard import FieldColorModeId

from tools.dashboards.marks import EVICTIONS, PLANS
from tools.dashboards.parts import dashboard, figure, graph, heat_map, listing


def use(resource: str) -> str:
    """Share of what pods can have that is assigned."""
    assigned, allocatable = (
        f"sum by (node, numa_node, resource) (numazones_zone_{amount}{{{resource},ZONE}})"
        for amount in ("assigned", "allocatable")
    )
    return f"{assigned} / ({allocatable} > 0)"


ZONE = "{{node}} / {{numa_node}}"
CPU = 'resource="cpu"'
MEMORY = 'resource="memory"'
HUGEPAGES = 'resource=~"hugepages-.+"'
DEVICES = 'unit="integer"'

BUSY = (
    "1 - sum by (node, numa_node, kind)"
    ' (rate(numazones_numa_cpu_seconds_total{mode="idle",ZONE}[$__rate_interval]))'
    " / (sum by (node, numa_node, kind)"
    " (rate(numazones_numa_cpu_seconds_total{ZONE}[$__rate_interval])) > 0)"
)

DASHBOARD = dashboard(
    "node",
    "NUMA nodes",
    "Capacity, use and free resources of each NUMA node, as its exporter reports them.",
    variables=("cluster", "node", "zone"),
    marks=(PLANS, EVICTIONS),
    rows=[
        (
            "CPUs",
            [
                figure("Nodes", "Selected nodes.", "count(count by (node) (numazones_zone_capacity{ZONE}))"),
                figure(
                    "Free exclusive CPUs",
                    "CPUs that the selected NUMA nodes could still give to containers exclusively.",
                    f"sum(numazones_zone_available{{{CPU},ZONE}})",
                    unit="cores",
                ),
                figure(
                    "Largest request",
                    "The most exclusive CPUs that one container could still get.",
                    "max(numazones_zone_largest_request_cpus{ZONE})",
                    unit="cores",
                ),
                figure(
                    "On whole cores",
                    "The same, but counting only whole physical cores.",
                    "max(numazones_zone_largest_request_full_core_cpus{ZONE})",
                    unit="cores",
                ),
                figure(
                    "Free memory",
                    "Memory that the Memory Manager could still give on the selected NUMA nodes.",
                    f"sum(numazones_zone_available{{{MEMORY},ZONE}})",
                    unit="bytes",
                ),
                figure(
                    "Oldest NUMAZones",
                    "Longest time since an exporter last confirmed that its NUMAZones are published.",
                    "max(time() - numazones_exporter_last_publish_timestamp_seconds{NODE})",
                    unit="s",
                    limits=(120, 300),
                    runbook="NumazonesExporterCannotPublish",
                ),
                heat_map(
                    "Heat map of NUMA nodes",
                    "Share of the allocatable exclusive CPUs that pods hold: green is free, red is full. "
                    "One row per NUMA node; choose the nodes above.",
                    {ZONE: use(CPU)},
                    colors=FieldColorModeId.CONTINUOUS_GR_YL_RD,
                    unit="percentunit",
                    top=1,
                    empty="the shown nodes give no CPUs exclusively",
                ),
                graph(
                    "Use of CPUs",
                    "Share of the allocatable exclusive CPUs that pods hold.",
                    {ZONE: use(CPU)},
                    unit="percentunit",
                    top=1,
                ),
                graph(
                    "Exclusive CPUs by NUMA node",
                    "CPUs that pods hold exclusively: packed on a few NUMA nodes, or spread over many.",
                    {ZONE: "sum by (node, numa_node) (cpu_manager_numa_allocation_spread{ZONE})"},
                    unit="cores",
                ),
                graph(
                    "Free exclusive CPUs by NUMA node",
                    "CPUs that each NUMA node could still give.",
                    {ZONE: f"sum by (node, numa_node) (numazones_zone_available{{{CPU},ZONE}})"},
                    unit="cores",
                ),
                graph(
                    "Difference from the kubelet's count",
                    "Exclusive CPUs as the operator counts them, minus "
                    "kubelet_cpu_manager_allocation_per_numa; 0 is right. NUMA nodes that the operator "
                    "counts as empty are left out: the kubelet keeps an old value for them.",
                    {
                        ZONE: "(max by (cluster, node, numa_node) (cpu_manager_numa_allocation_spread{ZONE}) > 0)"
                        " - max by (cluster, node, numa_node) (kubelet_cpu_manager_allocation_per_numa{ZONE})"
                    },
                    unit="cores",
                    empty="the kubelets are not scraped, or pods hold no exclusive CPUs",
                    runbook="NumazonesKubeletDisagrees",
                ),
            ],
        ),
        (
            "What is used",
            [
                graph(
                    "Held and used exclusive CPUs",
                    "Exclusive CPUs of containers, and how many of them are busy.",
                    {
                        f"{ZONE} held": 'sum by (node, numa_node) (numazones_numa_cpus{kind="exclusive",ZONE})',
                        f"{ZONE} used": "sum by (node, numa_node) (rate("
                        'numazones_numa_cpu_seconds_total{kind="exclusive",mode!="idle",ZONE}[$__rate_interval]))',
                    },
                    unit="cores",
                    empty="no container has CPUs to itself",
                ),
                graph(
                    "Busy CPUs by kind",
                    "Share of time that CPUs are not idle: exclusive CPUs, the shared pool, the reserved "
                    "CPUs.",
                    {f"{ZONE}: {{{{kind}}}}": BUSY},
                    unit="percentunit",
                    top=1,
                    runbook="NumazonesReservedCPUsSaturated",
                ),
                graph(
                    "Memory used",
                    "Memory of each NUMA node that is not free, huge pages included.",
                    {ZONE: "sum by (node, numa_node) (numazones_numa_memory_used_bytes{ZONE})"},
                    unit="bytes",
                ),
                graph(
                    "Interrupts on exclusive CPUs",
                    "Device interrupts per second, which an affinity can keep away: the ten worst.",
                    {
                        "{{node}} CPU {{cpu}}: {{description}}": "max by (node, cpu, description)"
                        ' (numazones_exclusive_cpu_interrupts_per_second{interrupt=~"[0-9]+",ZONE})'
                    },
                    empty="no device interrupts an exclusive CPU",
                    runbook="NumazonesExclusiveCPUsDisturbed",
                ),
            ],
        ),
        (
            "Memory, hugepages, devices",
            [
                graph(
                    "Use of memory",
                    "Share of the memory that pods hold. Empty for nodes whose Memory Manager policy is "
                    "None.",
                    {ZONE: use(MEMORY)},
                    unit="percentunit",
                    top=1,
                ),
                graph(
                    "Free memory",
                    "Memory that each NUMA node could still give.",
                    {ZONE: f"sum by (node, numa_node) (numazones_zone_available{{{MEMORY},ZONE}})"},
                    unit="bytes",
                ),
                graph(
                    "Use of hugepages",
                    "Share of the hugepages of each size that pods hold.",
                    {f"{ZONE}: {{{{resource}}}}": use(HUGEPAGES)},
                    unit="percentunit",
                    top=1,
                    empty="the shown nodes have no hugepages",
                ),
                graph(
                    "Free devices",
                    "Healthy devices that no pod holds; one that is close to several NUMA nodes counts on each.",
                    {
                        f"{ZONE}: {{{{resource}}}}": "sum by (node, numa_node, resource)"
                        f" (numazones_zone_available{{{DEVICES},ZONE}})"
                    },
                    empty="the shown nodes have no devices",
                ),
            ],
        ),
        (
            "All amounts",
            [
                listing(
                    f"Amounts of {name}",
                    "What the hardware has, what the kubelet reserves, what pods can have, what they "
                    "hold, and what is left.",
                    {
                        amount.capitalize(): "sum by (node, numa_node, resource)"
                        f" (numazones_zone_{amount}{{{selector},ZONE}})"
                        for amount in ("capacity", "reserved", "allocatable", "assigned", "available")
                    },
                    unit=unit,
                )
                for name, selector, unit in (
                    ("CPUs and devices", 'unit!="byte"', "short"),
                    ("memory and hugepages", 'unit="byte"', "bytes"),
                )
            ],
        ),
    ],
)
