"""Choose CPUs as the static CPU Manager does: packed, spread or distributed, as its options say."""

from numazones.cpuset import CPUSet
from numazones.kubelet.cpu_distribution import take_distributed
from numazones.kubelet.cpu_packing import PackingStrategy, take_packed
from numazones.kubelet.cpu_topology import CPUTopology


def take(
    topology: CPUTopology, strategy: PackingStrategy, available: CPUSet, count: int, *, width: int = 0
) -> CPUSet:
    """Choose ``count`` of the available CPUs.

    ``width``: the number of NUMA nodes that the Topology Manager chose; 0: none.

    Raises:
        Rejection: there are not enough, or the distribution miscounts.
        KubeletHang: the distribution would never end.
    """
    if strategy.distributed and count % strategy.group == 0:
        return take_distributed(topology, strategy, available, count, width=width)
    return take_packed(topology, strategy, available, count)
