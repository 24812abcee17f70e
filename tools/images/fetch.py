"""Runs while an image is built: downloads the wheels that programs need, exactly those in requirements.txt.

    python3 fetch.py FOLDER EXTRA…             wheels of extras of pyproject.toml, for install.py
    python3 fetch.py --install FOLDER PACKAGE  a virtual environment with a package of the lock

pip decides which packages of the lock an extra needs; the lock decides versions and hashes.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = {
    "exporter": "numazones-exporter",
    "operator": "numazones-operator",
    "kubectl": "kubectl-numazones",
}


def canonical(name: str) -> str:
    """Return a package's name as the lock spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def entries() -> dict[str, str]:
    """Return the lock's entries with their hashes, by name."""
    found = re.finditer(r"^(\S+?)==(?:.*\\\n)*.*\n", (HERE / "requirements.txt").read_text(), re.MULTILINE)
    return {canonical(entry[1]): entry[0] for entry in found}


def pip(program: str, *arguments: str) -> None:
    """Run pip, which is a wheel or the module."""
    command = [sys.executable, *program.split(), *arguments, "--quiet", "--disable-pip-version-check"]
    if subprocess.run(command, check=False).returncode:
        sys.exit(f"pip {arguments[0]} failed; PIP_INDEX_URL names another package index than PyPI")


def download(program: str, lock: str, folder: Path) -> None:
    """Download the wheels of some entries of the lock."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(lock)
        file.flush()
        pip(
            program,
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--require-hashes",
            "--dest",
            str(folder),
            "-r",
            file.name,
        )


def needed(program: str, wanted: list[str], lock: dict[str, str]) -> str:
    """Return the entries of the lock for some requirements and what they depend on."""
    with tempfile.TemporaryDirectory() as name:
        versions = Path(name) / "versions.txt"
        versions.write_text("".join(f"{entry.split()[0]}\n" for entry in lock.values()))
        report = Path(name) / "report.json"
        pip(
            program, "install", "--dry-run", "--ignore-installed", "--only-binary=:all:",
            "--constraint", str(versions), "--report", str(report), *wanted,
        )  # fmt: skip
        names = {canonical(item["metadata"]["name"]) for item in json.loads(report.read_text())["install"]}
    if missing := names - lock.keys():
        sys.exit(f"requirements.txt lacks {', '.join(sorted(missing))}; run make lock")
    return "".join(lock[name] for name in sorted(names))


def requirements(extras: list[str]) -> list[str]:
    """Return what extras list, without what only laptops need: a pod has a service account, no kubeconfig."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    declared = project["optional-dependencies"]
    found = {text for extra in extras for text in declared[extra]} - {*declared["kubeconfig"]}
    return [*project["dependencies"], *sorted(found)]


def main(folder: Path, wanted: list[str], *, install: bool) -> None:
    """Fill a folder with wheels, pip and the names of programs, or make an environment."""
    lock = entries()
    # The lock's pip: older ones resolve slowly.
    wheels = Path(tempfile.mkdtemp()) if install else folder
    download("-m pip", lock["pip"], wheels)
    (wheel,) = wheels.glob("pip-*.whl")
    own = wheel.rename(wheels / "pip.whl")
    program = str(own / "pip")
    download(program, needed(program, wanted if install else requirements(wanted), lock), wheels)
    if install:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        files = [str(path) for path in wheels.glob("*-*.whl")]
        command = [str(folder / "bin/python3"), program, "install", "--quiet", "--no-index", "--no-deps"]
        subprocess.run([*command, *files], check=True)
    else:
        (folder / "programs").write_text("".join(f"{PROGRAMS[extra]}\n" for extra in wanted))
        shutil.copy(HERE / "install.py", folder)


if __name__ == "__main__":
    options = [text for text in sys.argv[1:] if text != "--install"]
    main(Path(options[0]), options[1:], install="--install" in sys.argv)
