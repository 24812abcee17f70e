"""From one observation to the node's zones: pure, deterministic, independent of time.

The same observation always gives the same objects in the same order, and all zones of a node carry one
snapshot id that is derived from their content, so that nothing is written when nothing changed.
"""

from numazones.api.numazone import NUMAZone
from numazones_exporter.observation import Observation


def build(observation: Observation) -> list[NUMAZone]:
    """Describe every NUMA node of the observed machine, ascending by NUMA id.

    The list is empty when the hardware could not be read; conditions carry no transition times.
    """
    raise NotImplementedError
