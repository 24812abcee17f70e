"""A place on a node, as plans name it: a value that the commands and RebalanceRecommendation share."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from numazones.api.meta import ATOMIC, MAX_NAME, NUMAID, WIRE


@dataclass(frozen=True, slots=True)
class Place:
    """A place on a node."""

    __pydantic_config__ = WIRE
    node: Annotated[str, "Its name.", Field(max_length=MAX_NAME, description="Name of the node.")]
    numa_ids: Annotated[
        tuple[NUMAID, ...],
        "Ids of its NUMA nodes.",
        Field(max_length=1024, description="NUMA nodes.", json_schema_extra=ATOMIC),
    ] = ()

    def __str__(self) -> str:
        return f"{self.node} {','.join(map(str, self.numa_ids))}".strip()
