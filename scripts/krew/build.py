"""Writes the krew archive of ``kubectl numazones`` and its manifest: what ``make plugin`` runs.

    python -m scripts.krew.build DIR --uri https://…/v0.2.0 --homepage https://…

The archive is for the platform and the Python that run this: it holds the project's wheel and copies of the
installed packages that the extra ``kubectl`` needs, some of them compiled. Nothing is downloaded. What pip
writes at installation (bytecode, scripts, records of them) is left out, and all times are one, so that equal
locks and sources give equal bytes. The fields of the manifest: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest
"""

import argparse
import gzip
import hashlib
import platform
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from io import BytesIO
from pathlib import Path
from string import Template

from hatchling.builders.wheel import WheelBuilder

from scripts.locked import needed

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYTHON = "{}.{}".format(*sys.version_info[:2])
_PROGRAM = "kubectl-numazones"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_OF_THE_INSTALLATION = {"INSTALLER", "RECORD", "REQUESTED", "direct_url.json"}
_MOMENT = 1767225600  # 2026-01-01: when files of the archive were changed


def target() -> tuple[str, str]:
    """Operating system and architecture of this Python, in krew's words.

    Raises:
        LookupError: krew has no word for it that we know.
    """
    if platform.machine() not in _ARCHITECTURES or sys.platform not in ("linux", "darwin"):
        raise LookupError(f"there is no krew archive for {sys.platform} on {platform.machine()}; use pipx")
    return sys.platform, _ARCHITECTURES[platform.machine()]


def version() -> str:
    """The project's version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def _project() -> Iterator[tuple[str, bytes]]:
    """Files of the project's wheel, built here."""
    with tempfile.TemporaryDirectory() as folder:
        (wheel,) = WheelBuilder(str(ROOT)).build(directory=folder, versions=["standard"])
        with zipfile.ZipFile(wheel) as content:
            for name in content.namelist():
                yield name, content.read(name)


def _installed(package: str) -> Iterator[tuple[str, bytes]]:
    """Files of an installed package, as they were in its wheel."""
    found = distribution(package)
    for file in found.files or ():
        if not {"..", "__pycache__"} & set(file.parts):
            yield file.as_posix(), file.read_binary()


def contents() -> Iterator[tuple[str, bytes]]:
    """Path and bytes of each file of the archive.

    Raises:
        importlib.metadata.PackageNotFoundError: a package is not installed (run ``make venv``).
    """
    yield _PROGRAM, (HERE / f"{_PROGRAM}.py").read_bytes()
    for name in ("LICENSE", "NOTICE"):
        yield name, (ROOT / name).read_bytes()
    for files in (_project(), *map(_installed, sorted(needed(["kubectl"])))):
        for name, data in files:
            if Path(name).name not in _OF_THE_INSTALLATION:
                yield f"python{PYTHON}/{name}", data


def archive() -> bytes:
    """The archive: a gzipped tar of plain files, since krew takes no links."""
    packed = BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=6, mtime=_MOMENT) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for name, data in sorted(contents()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), _MOMENT
            entry.mode = 0o755 if name == _PROGRAM else 0o644
            tar.addfile(entry, BytesIO(data))
    return packed.getvalue()


def write(folder: Path, uri: str, homepage: str) -> tuple[Path, Path]:
    """Write manifest and archive into a folder. ``uri`` is where the archive will be, without its name.

    Without it the manifest names the archive alone: krew needs both files then.

    Raises:
        LookupError: krew does not know this platform.
    """
    system, architecture = target()
    made = folder / f"{_PROGRAM}-{version()}-{system}-{architecture}-python{PYTHON}.tar.gz"
    data = archive()
    folder.mkdir(parents=True, exist_ok=True)
    made.write_bytes(data)
    libc = " with glibc" if system == "linux" else ""
    manifest = folder / "numazones.yaml"
    manifest.write_text(
        Template((HERE / "numazones.yaml.in").read_text()).substitute(
            version=version(),
            homepage=homepage,
            python=PYTHON,
            platform=f"{system}/{architecture}{libc}",
            os=system,
            arch=architecture,
            uri=f"{uri.rstrip('/')}/{made.name}" if uri else made.name,
            sha256=hashlib.sha256(data).hexdigest(),
        )
    )
    return manifest, made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where to write them")
    parser.add_argument("--uri", default="", help="where the release's files can be downloaded")
    parser.add_argument("--homepage", default="", help="where the project can be read about")
    options = parser.parse_args()
    for path in write(options.folder, options.uri, options.homepage):
        print(path)
