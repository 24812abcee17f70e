"""``--once``: read the node, print its zones, say on stderr what could not be read."""

import json
from typing import TextIO

from numazones.api.numazone import NUMAZone
from numazones_exporter import table, zones
from numazones_exporter.observation import Observation
from numazones_exporter.options import Options, Output
from numazones_exporter.sources import Sources, observe


async def run(options: Options, *, out: TextIO, err: TextIO) -> int:
    """Print the zones as ``options.output`` asks; the exit status is 1 where there are none to print."""
    sources = Sources(options)
    try:
        observation = await observe(sources)
    finally:
        await sources.close()
    err.writelines(
        f"numazones-exporter: {problem.source}: {problem.message}\n" for problem in observation.problems
    )
    found = zones.build(observation)
    err.writelines(f"numazones-exporter: {message}\n" for message in _judgements(observation, found))
    if not found:
        return 1
    out.write(render(found, options.output))
    return 0


def _judgements(observation: Observation, found: list[NUMAZone]) -> list[str]:
    """What the zones' conditions say beyond the problems of single sources; it is the same on all zones."""
    said = {problem.message for problem in observation.problems}
    status = found[0].status if found else None
    conditions = status.conditions if status is not None else ()
    return [
        f"{condition.type} is {condition.status} ({condition.reason}): {condition.message}"
        for condition in conditions
        if condition.status != "True" and condition.message not in said
    ]


def render(found: list[NUMAZone], output: Output) -> str:
    """Write zones as a table, or as a Kubernetes List in JSON or YAML."""
    if output == "table":
        return table.render(found)
    document = {"apiVersion": "v1", "kind": "List", "items": [zone.to_api() for zone in found]}
    if output == "json":
        return json.dumps(document, indent=2) + "\n"
    import yaml  # noqa: PLC0415 - only this output needs it

    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
