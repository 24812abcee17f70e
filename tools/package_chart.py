"""Packs chart/ as ``helm package`` does, but equal sources give equal bytes: what ``make chart`` runs.

    python -m tools.package_chart DIR --registry registry.example/team

Helm puts the times of files into its archive. The links in ``manifests/chart/files`` are followed.
"""

import argparse
import os
from pathlib import Path

from tools.archives import packed
from tools.locked import ROOT, version

CHART = ROOT / "manifests" / "chart"


def contents(registry: str = "") -> dict[str, bytes]:
    """Path and bytes of each file of the archive; with a registry, its values take images from there."""
    ignored = {line for line in (CHART / ".helmignore").read_text().splitlines() if line and line[0] != "#"}
    files = {}
    for folder, _, names in os.walk(CHART, followlinks=True):
        for name in {*names} - ignored:
            path = Path(folder, name)
            files[f"numazones/{path.relative_to(CHART)}"] = path.read_bytes()
    if registry:
        values = files["numazones/values.yaml"]
        images = f"repository: {registry.rstrip('/').lower()}/numazones-".encode()
        files["numazones/values.yaml"] = values.replace(b"repository: numazones-", images)
    return files


def write(folder: Path, registry: str = "") -> Path:
    """Write the archive into a folder, named as Helm names it."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"numazones-{version()}.tgz"
    archive.write_bytes(packed(contents(registry)))
    return archive


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where to write it")
    parser.add_argument("--registry", default="", help="where the images are, such as ghcr.io/OWNER")
    options = parser.parse_args()
    print(write(options.folder, options.registry))
