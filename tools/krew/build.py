"""Writes the krew archives of ``kubectl numazones`` and their manifest: what ``make plugin`` runs.

    python -m tools.krew.build DIR --uri https://…/v0.2.0 --homepage https://…

There is an archive for each operating system and architecture; it runs with every Python that the project
supports. Wheels that are the same for all of them are in its folder ``packages``, compiled ones (pydantic has
no other) in a folder for each Python. pip downloads them as requirements.txt pins them, by hash; what is in
DIR/wheels already is not downloaded again. All times are one, so that equal locks and sources give equal
bytes. The fields of the manifest: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest
"""

import argparse
import hashlib
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from string import Template

from hatchling.builders.wheel import WheelBuilder

from tools.archives import packed
from tools.locked import ROOT, needed, version
from tools.targets import PYTHONS, TARGETS, Target, chosen, is_pure
from tools.wheels import download, pinned

HERE = Path(__file__).parent
_PROGRAM = "kubectl-numazones"
_PURE = "packages"
_OF_THE_INSTALLATION = {"INSTALLER", "RECORD", "REQUESTED", "direct_url.json"}

Files = dict[str, bytes]


def downloaded(
    folder: Path, targets: Sequence[Target] = TARGETS, pythons: Sequence[str] = PYTHONS
) -> list[Path]:
    """Download the wheels that archives need.

    Raises:
        subprocess.CalledProcessError: pip could not, and said why.
    """
    for target in targets:
        for python in pythons:
            download(folder, needed(["kubectl"], environment=target.markers(python)), target, python)
    return pinned(folder)


def _content(wheel: Path) -> Files:
    """Files of a wheel, as they lie where Python imports from."""
    found = {}
    with zipfile.ZipFile(wheel) as content:
        for name in content.namelist():
            path = PurePosixPath(name)
            if path.parts[0].endswith(".data"):
                if path.parts[1] not in ("purelib", "platlib"):
                    continue  # scripts, headers, manual pages
                path = PurePosixPath(*path.parts[2:])
            if path.name not in _OF_THE_INSTALLATION and not name.endswith("/"):
                found[str(path)] = content.read(name)
    return found


def contents(target: Target, wheels: Sequence[Path], pythons: Sequence[str] = PYTHONS) -> Files:
    """Path and bytes of each file of the archive for a target.

    Raises:
        tools.targets.MissingWheel: a wheel is not there.
    """
    files = {_PROGRAM: (HERE / f"{_PROGRAM}.py").read_bytes()}
    files |= {name: (ROOT / name).read_bytes() for name in ("LICENSE", "NOTICE")}
    for folder, wheel in sorted({*_placed(target, wheels, pythons)}):
        files |= {f"{folder}/{name}": data for name, data in _content(wheel).items()}
    with tempfile.TemporaryDirectory() as folder:
        (own,) = WheelBuilder(str(ROOT)).build(directory=folder, versions=["standard"])
        files |= {f"{_PURE}/{name}": data for name, data in _content(Path(own)).items()}
    return files


def _placed(target: Target, wheels: Sequence[Path], pythons: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield (folder, wheel) of all that a target's Pythons need; a Python has its folder in any case."""
    for python in pythons:
        for package in needed(["kubectl"], environment=target.markers(python)):
            wheel = chosen(wheels, package, target, python)
            yield _PURE if is_pure(wheel) else f"python{python}", wheel


def write(
    folder: Path,
    wheels: Sequence[Path],
    uri: str,
    homepage: str,
    *,
    targets: Sequence[Target] = TARGETS,
    pythons: Sequence[str] = PYTHONS,
) -> tuple[Path, list[Path]]:
    """Write manifest and archives into a folder. ``uri`` is where the archives will be, without their names.

    Without it the manifest names the archives alone: krew needs both files then.

    Raises:
        tools.targets.MissingWheel: a wheel is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    template, platforms, made = _templates(), [], []
    for target in targets:
        path = folder / f"{_PROGRAM}-{version()}-{target}.tar.gz"
        data = packed(contents(target, wheels, pythons), programs={_PROGRAM})
        path.write_bytes(data)
        made.append(path)
        platforms.append(
            template["platform"].substitute(
                os=target.os,
                arch=target.arch,
                uri=f"{uri.rstrip('/')}/{path.name}" if uri else path.name,
                sha256=hashlib.sha256(data).hexdigest(),
            )
        )
    manifest = folder / "numazones.yaml"
    head = template["manifest"].substitute(
        version=version(), homepage=homepage, first=pythons[0], last=pythons[-1]
    )
    manifest.write_text(head + "".join(platforms))
    return manifest, made


def _templates() -> dict[str, Template]:
    """The parts of the manifest."""
    return {part: Template((HERE / f"{part}.yaml.in").read_text()) for part in ("manifest", "platform")}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where to write them")
    parser.add_argument("--uri", default="", help="where the release's files can be downloaded")
    parser.add_argument("--homepage", default="", help="where the project can be read about")
    options = parser.parse_args()
    found = downloaded(options.folder / "wheels")
    manifest, made = write(options.folder, found, options.uri, options.homepage)
    for path in (manifest, *made):
        print(path)
