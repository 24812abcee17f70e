"""Recorded nodes as the tests use them: where their files are, and the flags that point there."""

import json
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from numazones_exporter.main import main

SAMPLE = Path(__file__).parent / "data" / "recordings" / "one-node"
SHARED = "recordings/four-nodes"

MOMENTS = ("", "mid")


@dataclass(frozen=True)
class Recorded:
    """One recorded node at one moment."""

    name: str
    cluster: Path
    moment: str
    machine: Path
    """Where sys/ and proc/ were unpacked."""

    @property
    def directory(self) -> Path:
        """Return the directory that the whole recording shares."""
        return self.cluster / self.name

    @property
    def state(self) -> Path:
        """State files and podresources answers of the moment."""
        return self.directory / self.moment

    @property
    def pods(self) -> Path:
        return self.cluster / self.moment / "pods.json"

    def flags(self, **changes: str | None) -> list[str]:
        """Flags for --once; a change replaces a flag's value, None leaves the flag out."""
        values: dict[str, str | None] = {
            "sysfs": f"{self.machine}/sys",
            "procfs": f"{self.machine}/proc",
            "kubelet_dir": str(self.state),
            "podresources": f"replay:{self.state}",
            "kubelet_config": f"file:{self.directory}/kubelet-config.yaml",
            "pods": f"file:{self.pods}",
            "node_name": self.name,
            **changes,
        }
        pairs = ((f"--{name.replace('_', '-')}", value) for name, value in values.items())
        return [
            "--once",
            *(item for pair in pairs if pair[1] is not None for item in pair if item is not None),
        ]


def unpack(directory: Path, target: Path) -> Path:
    """Unpack a recording's sys.tar.gz."""
    with tarfile.open(directory / "sys.tar.gz") as archive:
        archive.extractall(target, filter="data")
    return target


@cache
def printed_zones(*flags: str) -> list[dict[str, Any]]:
    """Return the zones that ``numazones-exporter --once`` prints with these flags."""
    result = CliRunner().invoke(main, [*flags, "-o", "json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["apiVersion"], document["kind"]) == ("v1", "List")
    return list(document["items"])
