"""Rebalancing: plans, evictions, what they gained, what failed."""

from tools.dashboards.marks import EVICTIONS, PLANS
from tools.dashboards.parts import dashboard, figure, graph, listing, quantiles

NO_POLICY = "no RebalancePolicy exists"
NO_PLAN = "no plans were made"
RECOMMENDATIONS = "numazones_rebalance_recommendations_total"
EVICTED = "numazones_rebalance_pods_evicted_total"


def in_range(counter: str) -> str:
    """Return the increase of a counter in the shown time."""
    return f"sum(increase({counter}[$__range]))"


DASHBOARD = dashboard(
    "rebalancing",
    "rebalancing",
    "What RebalancePolicies planned, what was executed, what was gained, and what failed.",
    variables=("cluster", "namespace", "node"),
    marks=(PLANS, EVICTIONS),
    rows=[
        (
            "In the selected time range",
            [
                figure(
                    "Policies that are not followed",
                    "RebalancePolicies that the operator does not follow; their condition Ready says why.",
                    "count(numazones_rebalance_policy_ready{CLUSTER}) - sum(numazones_rebalance_policy_ready{CLUSTER})",
                    limits=(1,),
                    colors=("green", "red"),
                    empty=NO_POLICY,
                    runbook="NumazonesRebalancePolicyInvalid",
                ),
                figure(
                    "Active plans",
                    "Recommendations that are proposed, approved or running.",
                    "sum(numazones_rebalance_active_plans{CLUSTER})",
                    empty=NO_POLICY,
                    runbook="NumazonesPlanWaits",
                ),
                figure(
                    "Plans that succeeded",
                    "Plans that were completed and whose gain the NUMAZones confirm.",
                    in_range(f'{RECOMMENDATIONS}{{phase="Succeeded",CLUSTER}}'),
                    empty=NO_POLICY,
                ),
                figure(
                    "Plans that failed",
                    "Plans that were approved or started, but not completed.",
                    in_range(f'{RECOMMENDATIONS}{{phase="Failed",CLUSTER}}'),
                    limits=(1, 3),
                    empty=NO_POLICY,
                    runbook="NumazonesRebalanceFails",
                ),
                figure(
                    "Evicted pods",
                    "Evictions that the API server granted.",
                    in_range(f'{EVICTED}{{result="success",NAMESPACE}}'),
                    empty=NO_PLAN,
                ),
                figure(
                    "Gain",
                    "Results of finished plans: pods or shapes that now fit, pods moved off a node or NUMA "
                    "node, or pods that are now aligned.",
                    in_range("numazones_rebalance_gain_total{CLUSTER}"),
                    empty=NO_POLICY,
                ),
            ],
        ),
        (
            "Plans",
            [
                graph(
                    "Active plans by phase",
                    "Recommendations that have not ended. At most one is running.",
                    {
                        "{{policy}} ({{mode}}): {{phase}}": "sum by (policy, mode, phase) (numazones_rebalance_active_plans{CLUSTER})"
                    },
                    empty=NO_POLICY,
                    runbook="NumazonesRebalanceStuck",
                ),
                graph(
                    "Phases entered by plans",
                    "Number of recommendations that entered each phase, per interval.",
                    {
                        "{{policy}}: {{phase}}": f"sum by (policy, phase) (increase({RECOMMENDATIONS}{{CLUSTER}}[$__rate_interval]))"
                    },
                    empty=NO_POLICY,
                    runbook="NumazonesRebalanceFails",
                ),
                graph(
                    "Moves by result",
                    "Number of moves per interval.",
                    {
                        "{{policy}}: {{result}}": "sum by (policy, result)"
                        " (increase(numazones_rebalance_moves_total{CLUSTER}[$__rate_interval]))"
                    },
                    empty=NO_POLICY,
                ),
                graph(
                    "Gain so far",
                    "Gain of each policy's finished plans since the operator started, as confirmed by "
                    "NUMAZones.",
                    {"{{policy}}": "sum by (policy) (numazones_rebalance_gain_total{CLUSTER})"},
                    empty=NO_POLICY,
                ),
            ],
        ),
        (
            "Evictions",
            [
                graph(
                    "Evictions by result",
                    "Eviction requests per interval: granted, blocked by a PodDisruptionBudget (and "
                    "retried later), or failed.",
                    {"{{result}}": f"sum by (result) (increase({EVICTED}{{NAMESPACE}}[$__rate_interval]))"},
                    empty=NO_PLAN,
                    runbook="NumazonesEvictionsBlocked",
                ),
                listing(
                    "Evictions by namespace and node",
                    "Eviction requests in the selected time range.",
                    {
                        "Requests": "sum by (namespace, node, policy, result)"
                        f' (increase({EVICTED}{{NAMESPACE,node=~"$node"}}[$__range]))'
                    },
                    empty=NO_PLAN,
                ),
            ],
        ),
        (
            "Search",
            [
                graph(
                    "Duration of a search for a plan",
                    "Limited by the policy's searchTime.",
                    quantiles("numazones_rebalance_plan_duration_seconds"),
                    unit="s",
                    empty=NO_POLICY,
                ),
                graph(
                    "Searches",
                    "Searches per minute, by whether they found a plan.",
                    {
                        "found: {{found}}": "60 * sum by (found)"
                        " (rate(numazones_rebalance_plan_duration_seconds_count{CLUSTER}[$__rate_interval]))"
                    },
                    unit="cpm",
                    empty=NO_POLICY,
                ),
            ],
        ),
    ],
)
