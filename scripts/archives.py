"""Archives that are alike byte for byte whenever, wherever and by whomever they are packed."""

import gzip
import tarfile
from collections.abc import Collection, Mapping
from io import BytesIO

MOMENT = 1767225600
"""2026-01-01: when everything in an archive was changed."""


def packed(files: Mapping[str, bytes], programs: Collection[str] = ()) -> bytes:
    """A gzipped tar of plain files, nobody's and in the order of their names; programs can be run."""
    made = BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=made, mode="wb", compresslevel=6, mtime=MOMENT) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), MOMENT
            entry.mode = 0o755 if name in programs else 0o644
            tar.addfile(entry, BytesIO(data))
    return made.getvalue()
