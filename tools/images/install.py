"""Runs while an image is built: installs the wheels beside it, so that equal wheels give equal files.

Of the console scripts those named in the file ``programs`` stay; those of libraries go. The argument is the
virtual environment whose Python runs this, where the base has no place of its own for packages.
"""

import compileall
import subprocess
import sys
from pathlib import Path
from py_compile import PycInvalidationMode

HERE = Path(__file__).parent
TARGET = Path(*sys.argv[1:2] or ["/usr/local"])
PROGRAMS = (HERE / "programs").read_text().split()

# pip runs from its own wheel, and in a process of its own: it blocks imports once it has installed something.
pip = [sys.executable, str(HERE / "pip.whl" / "pip"), "install", "--quiet", "--no-index", "--no-deps"]
pip += ["--no-compile", "--no-cache-dir", "--root-user-action=ignore", "--disable-pip-version-check"]
subprocess.run([*pip, *map(str, sorted(HERE.glob("*-*.whl")))], check=True)
for script in (TARGET / "bin").iterdir():
    if script.name not in PROGRAMS and not script.is_symlink():  # the environment's Python is one
        script.unlink()
(site,) = TARGET.glob("lib/python3*/*-packages")
sys.path.insert(0, str(site))
# The schemas of the newest dozen of Kubernetes releases, once more for each kind: one file of them is read.
schemas = site / "kubernetes_validate/kubernetes-json-schema"
if schemas.is_dir():
    from numazones_apiserver import definitions

    read = definitions.file()
    for path in sorted(schemas.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif not path.samefile(read):
            path.unlink()
# Extensions of CEL, seven megabytes each: Kubernetes has half of them.
extensions = site / "cel_expr_python/ext"
if extensions.is_dir():
    from numazones.apimachinery.cel.environment import Environment

    Environment({}).compile("true")  # loads what it needs

    loaded = {getattr(module, "__file__", None) for module in sys.modules.values()}
    for path in extensions.glob("*.so"):
        if str(path) not in loaded:
            path.unlink()
# Bytecode that is taken for what it is, whatever the times of files: nothing is written on a read-only root.
if not compileall.compile_dir(site, quiet=1, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH):
    sys.exit(f"{site} could not be compiled")
