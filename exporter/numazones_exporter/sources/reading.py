"""One reading of the node: every source asked once, in an order that keeps the answers consistent.

State files first, then podresources, then the pods: a pod that a state file mentions was created before
the file was written, so it is in the later answers unless it has ended meanwhile. Asked the other way
round, a pod admitted in between would look as if it had ended.
"""

from numazones_exporter.observation import Observation
from numazones_exporter.options import Options


class Sources:
    """One reader per source, with whatever each keeps between readings (connections, CPU topology)."""

    def __init__(self, options: Options) -> None:
        """Build the readers; nothing is read or connected to yet.

        Raises:
            InvalidOptions: an endpoint in the options is none of the known forms.
        """
        self.options = options

    async def close(self) -> None:
        """Close every connection."""
        raise NotImplementedError


async def observe(sources: Sources) -> Observation:
    """Read the node once; never raises for a bad source, which becomes a ``Problem`` instead."""
    raise NotImplementedError
