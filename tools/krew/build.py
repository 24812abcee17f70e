"""Writes the krew archives of ``kubectl numazones`` and their manifest: what ``make plugin`` runs.

    python -m tools.krew.build DIR --uri https://…/v0.2.0 --homepage https://…

There is an archive for each operating system and architecture; it runs with every Python that the project
supports. Packages that are the same for all of them are in its folder ``packages``, compiled ones (pydantic
has no other) in a folder for each Python. pip downloads them as requirements.txt pins them, by hash, and
installs them from DIR/wheels alone; what is there already is not downloaded again. All times are one, so that
equal locks and sources give equal bytes. The fields of the manifest:
https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest
"""

import argparse
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from string import Template

from hatchling.builders.wheel import WheelBuilder

from tools.archives import packed
from tools.locked import DISTRIBUTIONS, ROOT, needed, version
from tools.targets import PYTHONS, TARGETS, Target
from tools.wheels import download, install

HERE = Path(__file__).parent
_PROGRAM = "kubectl-numazones"
_PURE = "packages"
_OF_THE_INSTALLATION = {"INSTALLER", "RECORD", "REQUESTED", "direct_url.json"}

Files = dict[str, bytes]


def contents(target: Target, wheels: Path, pythons: Sequence[str] = PYTHONS) -> Files:
    """Path and bytes of each file of the archive for a target.

    Raises:
        subprocess.CalledProcessError: a wheel is not there; pip said which.
    """
    files = {_PROGRAM: (HERE / f"{_PROGRAM}.py").read_bytes()}
    files |= {name: (ROOT / name).read_bytes() for name in ("LICENSE", "NOTICE")}
    own: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for source in (ROOT, DISTRIBUTIONS["numazones-models"]):
            own += WheelBuilder(str(source)).build(directory=folder, versions=["standard"])
        for python in pythons:
            names = needed(["kubectl"], environment=target.markers(python))
            site = Path(folder, python)
            install(site, names, target, python, wheels=wheels, further=own)
            files |= _placed(site, f"python{python}")
    return files


def _placed(site: Path, compiled: str) -> Files:
    """Return the files to install in a folder: a package with compiled parts goes into that folder."""
    files = {}
    for top in site.iterdir():
        inside = [path for path in (top, *top.rglob("*")) if path.is_file()]
        folder = compiled if any(".so" in path.suffixes for path in inside) else _PURE
        for path in inside:
            if top.name != "bin" and path.name not in _OF_THE_INSTALLATION:
                files[f"{folder}/{path.relative_to(site).as_posix()}"] = path.read_bytes()
    return files


def write(
    folder: Path,
    wheels: Path,
    uri: str,
    homepage: str,
    *,
    targets: Sequence[Target] = TARGETS,
    pythons: Sequence[str] = PYTHONS,
) -> tuple[Path, list[Path]]:
    """Write manifest and archives into a folder. ``uri`` is where the archives will be, without their names.

    Without it the manifest names the archives alone: krew needs both files then.

    Raises:
        subprocess.CalledProcessError: a wheel is not there; pip said which.
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
    wheels = options.folder / "wheels"
    for target in TARGETS:
        for python in PYTHONS:
            download(wheels, needed(["kubectl"], environment=target.markers(python)), target, python)
    manifest, made = write(options.folder, wheels, options.uri, options.homepage)
    for path in (manifest, *made):
        print(path)
