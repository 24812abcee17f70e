"""Marks on the graphs of several dashboards: executed plans, and evicted pods."""

from tools.dashboards.parts import Marks

PLANS = Marks(
    "Plans",
    "sum by (policy, mode, phase)"
    ' (increase(numazones_rebalance_recommendations_total{phase=~"Executing|Succeeded|Failed",CLUSTER}[2m])) > 0',
    color="blue",
    title="{{policy}}: a plan entered phase {{phase}}",
    text="mode {{mode}}",
)
EVICTIONS = Marks(
    "Evictions",
    "sum by (policy, namespace, node)"
    ' (increase(numazones_rebalance_pods_evicted_total{result="success",CLUSTER}[2m])) > 0',
    color="orange",
    title="{{policy}}: pods were evicted",
    text="from namespace {{namespace}}, on node {{node}}",
)
