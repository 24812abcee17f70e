"""Common parts of the exporter, which serves a recorded node, and the plugin, which fetches it."""

import io
from collections.abc import Mapping

PATH = "/recording"
FACTS = "facts.json"
"""The file of the archive that tells what was read, beside the files themselves."""
SWITCHED_OFF = "recordings are switched off"
"""How the answer of an exporter begins that does not serve them."""


def archive_of(members: Mapping[str, bytes]) -> bytes:
    """Return files by their paths as a tar.gz archive; a path that ends with a slash is a directory."""
    import tarfile  # noqa: PLC0415 - in memory only where recordings are made

    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        for name, content in sorted(members.items()):
            member = tarfile.TarInfo(name.rstrip("/"))
            if name.endswith("/"):
                member.type, member.mode = tarfile.DIRTYPE, 0o755
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return written.getvalue()
