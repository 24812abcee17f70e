"""``--once``: print the zones of one reading, and on stderr what could not be read."""

import json
from functools import partial
from typing import Any, TextIO

from numazones.api.numazone import NUMAZONE, NUMAZone
from numazones.apimachinery import jsonpath
from numazones.wording import visible
from numazones_exporter import zones
from numazones_exporter.observation import Observation
from numazones_exporter.options import Options, OutputFormat
from numazones_exporter.sources.reading import Sources, observe
from numazones_program.columns import Column, plain, shown


async def print_zones(options: Options, *, out: TextIO, err: TextIO) -> int:
    """Print the zones as ``options.output`` asks; the exit status is 1 where there are none to print."""
    sources = Sources(options)
    try:
        observation = await observe(sources)
    finally:
        await sources.close()
    snapshot = zones.snapshot_of(observation)
    found = [] if snapshot is None else zones.build(snapshot)
    err.writelines(
        f"numazones-exporter: {visible(line, lines=False)}\n" for line in _error_lines(observation, found)
    )
    if not found:
        return 1
    out.write(render(found, options.output))
    return 0


def _error_lines(observation: Observation, found: list[NUMAZone]) -> list[str]:
    """Return each problem once, then the zones' conditions that are not True."""
    sources: dict[str, list[str]] = {}
    for problem in zones.problems_of(observation):
        sources.setdefault(problem.message, []).append(problem.source)
    lines = [f"{', '.join(dict.fromkeys(names))}: {message}" for message, names in sources.items()]
    status = found[0].status if found else None
    conditions = status.conditions if status is not None else ()
    verdicts = [f"{item.type}={item.status} ({item.reason})" for item in conditions if item.status != "True"]
    return [*lines, f"conditions of the NUMAZones: {', '.join(verdicts)}"] if verdicts else lines


def render(found: list[NUMAZone], output: OutputFormat) -> str:
    """Write zones as a table, or as a Kubernetes List in JSON or YAML."""
    if output == "table":
        return plain(shown(_columns()), [zone.to_api() for zone in found])
    document = {"apiVersion": "v1", "kind": "List", "items": [zone.to_api() for zone in found]}
    if output == "json":
        return json.dumps(document, indent=2) + "\n"
    import yaml  # noqa: PLC0415 - only this output needs it

    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)


def _columns() -> list[Column[Any]]:
    """The columns that ``kubectl get numazones`` shows; of what was never published nobody knows the age."""
    return [
        Column("NAME", lambda document: document["metadata"]["name"]),
        *(
            Column(column.name.upper(), partial(_cell, column.json_path), wide=column.priority > 0)
            for column in NUMAZONE.columns
            if column.type != "date"
        ),
    ]


def _cell(path: str, document: Any) -> str:
    """Follow a printer column's path; of several results the first counts, and none is an empty cell."""
    found = jsonpath.find(document, path)
    return visible(str(found[0]), lines=False) if found else ""
