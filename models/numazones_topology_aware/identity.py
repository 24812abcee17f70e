"""What the topology-aware policy is called, and which objects it reads: what all its parts agree on."""

from numazones.placement.model import ObjectKind

NAME = "topology-aware"
DECIDER = "the NRI topology-aware policy"
SOURCE = "TopologyAware"
POLICIES = ObjectKind("TopologyAwarePolicy", "config.nri", "v1alpha1", "topologyawarepolicies")
