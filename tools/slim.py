"""Remove from a demo's environment what is large and never read.

    .venv/bin/python -m tools.slim

kubernetes-validate brings the schemas of a dozen releases, twice; the simulator reads one file of them.
``tools/make-venv`` installs the package again when the whole environment is made.
"""

from importlib.resources import files
from pathlib import Path

from numazones_apiserver import definitions


def main() -> None:
    """Keep the one file that is read."""
    read = Path(str(definitions.file()))
    for path in sorted(
        Path(str(files("kubernetes_validate") / "kubernetes-json-schema")).rglob("*"), reverse=True
    ):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path != read:
            path.unlink()


if __name__ == "__main__":
    main()
