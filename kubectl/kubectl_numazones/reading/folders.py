"""Files of a folder that hold objects: dumps, a must-gather, ``kubectl cluster-info dump``.

A must-gather has a folder per image, and in it one per kind: ``cluster-scoped-resources/GROUP/PLURAL`` and
``namespaces/NAMESPACE/GROUP/PLURAL``, with a file per object or a list beside; the core group is ``core``.
Of its thousands of files only those of kinds that commands look at are read. ``cluster-info dump`` writes
the nodes at its top, and a folder per namespace with a list per kind.
"""

from collections.abc import Iterator
from pathlib import Path

from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.kinds import DOCTORS
from numazones_client.resources import DEFINITIONS, EVENTS, Resource

SUFFIXES = (".json", ".yaml", ".yml")
_CLUSTER_WIDE, _NAMESPACES = "cluster-scoped-resources", "namespaces"


def files_of(path: Path) -> list[Path]:
    """Return the files of a folder that hold objects, in order; a file stands for itself.

    Raises:
        BadDump: it holds none, or cannot be read.
    """
    try:
        if not path.is_dir():
            return [path]
        gathered = [root for root in (path, *_folders(path)) if _is_gathered(root)]
        found = [file for root in gathered for file in _gathered(root)]
        if not gathered:
            found = _files(path)
            if any(file.stem == "nodes" for file in found):
                found += [file for folder in _folders(path) for file in _files(folder)]
    except OSError as error:
        raise BadDump(f"{path}: {error.strerror or error}") from error
    if not found:
        what = "files that commands read" if gathered else "files"
        raise BadDump(
            f"{path} contains no {', '.join(SUFFIXES)} {what}; use a dump that kubectl get -o json wrote, or "
            "the folder of a must-gather or of kubectl cluster-info dump"
        )
    return found


def _files(folder: Path) -> list[Path]:
    # A link that leads nowhere is named when it is read: to pass over it would leave objects out.
    return sorted(
        file
        for file in folder.iterdir()
        if file.suffix in SUFFIXES and (file.is_file() or (file.is_symlink() and not file.is_dir()))
    )


def _folders(path: Path) -> list[Path]:
    return sorted(folder for folder in path.iterdir() if folder.is_dir())


def _is_gathered(root: Path) -> bool:
    return (root / _CLUSTER_WIDE).is_dir() or (root / _NAMESPACES).is_dir()


def _gathered(root: Path) -> Iterator[Path]:
    """Yield the files of a must-gather's image."""
    namespaces = _folders(root / _NAMESPACES) if (root / _NAMESPACES).is_dir() else []
    for resource in (*(kind.resource for kind in DOCTORS), DEFINITIONS, EVENTS):
        for folder in namespaces if resource.namespaced else [root / _CLUSTER_WIDE]:
            yield from _of_kind(folder, resource)
    for folder in namespaces:
        yield from (file for file in _files(folder) if file.stem == folder.name)
        if not list(_of_kind(folder, Resource("", "v1", "pods"))) and (folder / "pods").is_dir():
            yield from (file for pod in _folders(folder / "pods") for file in _files(pod))


def _of_kind(folder: Path, resource: Resource) -> Iterator[Path]:
    group = folder / (resource.group or "core")
    listed = [file for suffix in SUFFIXES if (file := group / f"{resource.plural}{suffix}").is_file()]
    yield from listed
    if not listed and (group / resource.plural).is_dir():
        yield from _files(group / resource.plural)
