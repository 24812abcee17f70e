"""Limits of a RebalancePolicy, apart from its other models, which most programs do without."""

from pydantic import Field

from numazones.api.meta import APIModel, optional


class EvictionLimits(APIModel):
    """Limits on the evictions of one plan; unlimited where absent."""

    total: int | None = optional(
        "Maximum number of evictions in total.", ge=0, alias="maxNoOfPodsToEvictTotal"
    )
    per_node: int | None = optional(
        "Maximum number of evictions from one node.", ge=0, alias="maxNoOfPodsToEvictPerNode"
    )
    per_namespace: int | None = optional(
        "Maximum number of evictions in one namespace.", ge=0, alias="maxNoOfPodsToEvictPerNamespace"
    )
    per_workload: int | None = optional(
        "Maximum number of evictions in one workload; if left out, it depends on the number of replicas.",
        ge=0,
        alias="maxNoOfPodsToEvictPerWorkload",
    )
    single_replicas: bool = Field(
        default=False,
        alias="evictSingleReplicas",
        description="Whether the only replica of a workload may be moved.",
    )
