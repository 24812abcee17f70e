"""Names of the topology-aware policy and of the objects it reads, shared by all its parts."""

from numazones.placement.model import ObjectKind

NAME = "topology-aware"
DECIDER = "the NRI topology-aware policy"
SOURCE = "TopologyAware"
POLICIES = ObjectKind("TopologyAwarePolicy", "config.nri", "v1alpha1", "topologyawarepolicies")
