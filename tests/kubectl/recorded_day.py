"""A recorded day as ``replay`` reads it: the sample of one node that is kept as a vector of conformance."""

import gzip
import json
import shutil
from pathlib import Path

from tests.places import DATA


def recorded_day(folder: Path) -> Path:
    """Write the project's own sample of one node into a folder, as a recorded cluster."""
    day = json.loads(gzip.decompress((DATA / "conformance/recorded-day.json.gz").read_bytes()))
    own = folder / day["node"]
    shutil.copytree(DATA / "recordings/one-node" / day["node"], own)
    (own / "device_plugins.json").write_text(json.dumps(day["plugins"]))
    lines = "".join(f"{json.dumps(operation)}\n" for operation in day["operations"])
    (folder / "replay.jsonl").write_text(lines)
    return folder
