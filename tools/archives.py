"""Archives that are alike byte for byte whenever, wherever and by whomever they are packed.

    python -m tools.archives FOLDER TAR

packs the files of a folder.
"""

import argparse
import gzip
import tarfile
from collections.abc import Collection, Mapping
from io import BytesIO
from pathlib import Path

MOMENT = 1767225600
"""2026-01-01: when everything in an archive was changed."""


def tarred(files: Mapping[str, bytes], programs: Collection[str] = ()) -> bytes:
    """A tar of plain files, nobody's and in the order of their names; programs can be run."""
    made = BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), MOMENT
            entry.mode = 0o755 if name in programs else 0o644
            tar.addfile(entry, BytesIO(data))
    return made.getvalue()


def packed(files: Mapping[str, bytes], programs: Collection[str] = ()) -> bytes:
    """The same, gzipped."""
    made = BytesIO()
    with gzip.GzipFile(filename="", fileobj=made, mode="wb", compresslevel=6, mtime=MOMENT) as zipped:
        zipped.write(tarred(files, programs))
    return made.getvalue()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("tar", type=Path)
    options = parser.parse_args()
    inside = (path for path in options.folder.rglob("*") if path.is_file())
    options.tar.write_bytes(
        tarred({path.relative_to(options.folder).as_posix(): path.read_bytes() for path in inside})
    )
