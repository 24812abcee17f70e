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
                    "CPUs on the selected NUMA nodes that containers could still get exclusively.",
                    f"sum(numazones_zone_available{{{CPU},ZONE}})",
                    unit="cores",
                ),
                figure(
                    "Largest request",
                    "Largest number of exclusive CPUs that one container could still get.",
                    "max(numazones_zone_largest_request_cpus{ZONE})",
                    unit="cores",
                ),
                figure(
                    "Largest in whole cores",
                    "Largest number of exclusive CPUs that one container could still get as whole "
                    "physical cores.",
                    "max(numazones_zone_largest_request_full_core_cpus{ZONE})",
                    unit="cores",
                ),
                figure(
                    "Free memory",
                    "Memory on the selected NUMA nodes that the Memory Manager could still assign.",
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
                    "One row per NUMA node; select nodes above.",
                    {ZONE: use(CPU)},
                    colors=FieldColorModeId.CONTINUOUS_GR_YL_RD,
                    unit="percentunit",
                    top=1,
                    empty="the selected nodes have no exclusive CPUs",
                ),
                graph(
                    "Share of CPUs held",
                    "Share of the allocatable exclusive CPUs that pods hold.",
                    {ZONE: use(CPU)},
                    unit="percentunit",
                    top=1,
                ),
                graph(
                    "Exclusive CPUs by NUMA node",
                    "CPUs that pods hold exclusively, which shows whether they are packed on a few NUMA "
                    "nodes or spread over many.",
                    {ZONE: "sum by (node, numa_node) (cpu_manager_numa_allocation_spread{ZONE})"},
                    unit="cores",
                ),
                graph(
                    "Free exclusive CPUs by NUMA node",
                    "CPUs on each NUMA node that containers could still get exclusively.",
                    {ZONE: f"sum by (node, numa_node) (numazones_zone_available{{{CPU},ZONE}})"},
                    unit="cores",
                ),
                graph(
                    "Difference from the kubelet's count",
                    "Exclusive CPUs as counted by the operator, minus "
                    "kubelet_cpu_manager_allocation_per_numa; this should be 0. NUMA nodes that the "
                    "operator counts as empty are left out because the kubelet keeps an old value for "
                    "them.",
                    {
                        ZONE: "(max by (cluster, node, numa_node) (cpu_manager_numa_allocation_spread{ZONE}) > 0)"
                        " - max by (cluster, node, numa_node) (kubelet_cpu_manager_allocation_per_numa{ZONE})"
                    },
                    unit="cores",
                    empty="kubelets are not scraped, or pods hold no exclusive CPUs",
                    runbook="NumazonesKubeletDisagrees",
                ),
            ],
        ),
        (
            "Usage",
            [
                graph(
                    "Exclusive CPUs held and used",
                    "Exclusive CPUs that containers hold, and how many of them are busy.",
                    {
                        f"{ZONE} held": 'sum by (node, numa_node) (numazones_numa_cpus{kind="exclusive",ZONE})',
                        f"{ZONE} used": "sum by (node, numa_node) (rate("
                        'numazones_numa_cpu_seconds_total{kind="exclusive",mode!="idle",ZONE}[$__rate_interval]))',
                    },
                    unit="cores",
                    empty="no container has exclusive CPUs",
                ),
                graph(
                    "Busy CPUs by kind",
                    "Share of time that CPUs are busy: exclusive CPUs, the shared pool and reserved CPUs.",
                    {f"{ZONE}: {{{{kind}}}}": BUSY},
                    unit="percentunit",
                    top=1,
                    runbook="NumazonesReservedCPUsSaturated",
                ),
                graph(
                    "Memory used",
                    "Memory in use on each NUMA node, including huge pages.",
                    {ZONE: "sum by (node, numa_node) (numazones_numa_memory_used_bytes{ZONE})"},
                    unit="bytes",
                ),
                graph(
                    "Interrupts on exclusive CPUs",
                    "Device interrupts per second: the ten highest rates. Change the affinity of an "
                    "interrupt to keep it away from exclusive CPUs.",
                    {
                        "{{node}} CPU {{cpu}}: {{description}}": "max by (node, cpu, description)"
                        ' (numazones_exclusive_cpu_interrupts_per_second{interrupt=~"[0-9]+",ZONE})'
                    },
                    empty="no device interrupts on exclusive CPUs",
                    runbook="NumazonesExclusiveCPUsDisturbed",
                ),
            ],
        ),
        (
            "Memory, hugepages and devices",
            [
                graph(
                    "Share of memory held",
                    "Share of the allocatable memory that pods hold. Empty for nodes whose Memory Manager "
                    "policy is None.",
                    {ZONE: use(MEMORY)},
                    unit="percentunit",
                    top=1,
                ),
                graph(
                    "Free memory",
                    "Memory on each NUMA node that pods could still get.",
                    {ZONE: f"sum by (node, numa_node) (numazones_zone_available{{{MEMORY},ZONE}})"},
                    unit="bytes",
                ),
                graph(
                    "Share of hugepages held",
                    "Share of the allocatable hugepages of each size that pods hold.",
                    {f"{ZONE}: {{{{resource}}}}": use(HUGEPAGES)},
                    unit="percentunit",
                    top=1,
                    empty="the selected nodes have no hugepages",
                ),
                graph(
                    "Free devices",
                    "Healthy devices that no pod holds; a device close to several NUMA nodes is counted "
                    "on each of them.",
                    {
                        f"{ZONE}: {{{{resource}}}}": "sum by (node, numa_node, resource)"
                        f" (numazones_zone_available{{{DEVICES},ZONE}})"
                    },
                    empty="the selected nodes have no devices",
                ),
            ],
        ),
        (
            "Amounts by resource",
            [
                listing(
                    f"Amounts of {name}",
                    "What the hardware has, what the kubelet reserves, what pods can have, what pods "
                    "hold, and what is still available.",
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
