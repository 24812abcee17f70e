"""Tests the tests: mutmut changes a module in small ways, and each change should make some test fail.

``make mutation MODULE=numazones/prediction/held_room.py``; without MODULE all modules of the table below.
Each module is changed in a copy of the checkout in ``.cache/mutation``; only the tests that the table names
run, since it is they that specify the module. mutmut itself is not part of the environment:
``tools/mutation.txt``. ``ARGS="--sample 150 --seed 25"`` tries a random part of a module's changes, the same
for the same seed; ``--tables`` leaves out the laws of Hypothesis, so that what is killed is the least that
the tests notice.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "mutation"
_KUBELET = (
    *(
        f"tests/numazones/kubelet/test_{name}.py"
        for name in (
            "admission",
            "most_allocated",
            "pod_level",
            "topology_manager",
            "cpu_manager",
            "memory_manager",
            "device_manager",
            "shared_cpus",
            "node",
            "cpu_assignment",
            "explanation",
            "restart",
            "readmission",
            "effort",
            "newer_releases",
        )
    ),
    # What real kubelets decided; all of it would take too long for each change.
    "tests/conformance/test_conformance.py::test_sampled_scenarios_agree_to_the_letter",
)
_EXECUTION = ("tests/operator/rebalance/test_steps.py", "tests/operator/rebalance/test_executor.py")
MODULES: dict[str, tuple[str, ...]] = {
    "numazones/kubelet/admission.py": _KUBELET,
    "numazones/kubelet/node_admission.py": ("tests/numazones/kubelet/test_node_admission.py",),
    "numazones/kubelet/topology_manager.py": _KUBELET,
    "numazones/kubelet/cpu_manager.py": _KUBELET,
    "numazones/kubelet/memory_manager.py": _KUBELET,
    "numazones/kubelet/device_manager.py": _KUBELET,
    "numazones/prediction/held_room.py": ("tests/numazones/prediction/test_held_room.py",),
    "operator/numazones_operator/prevention/held_room.py": ("tests/operator/prevention/test_held_room.py",),
    "numazones/rebalance/filter.py": ("tests/numazones/rebalance/test_filter.py",),
    "numazones/rebalance/protections.py": (
        "tests/numazones/rebalance/test_filter.py",
        "tests/numazones/rebalance/test_custom_resources.py",
    ),
    "numazones/rebalance/budgets.py": (
        "tests/numazones/rebalance/test_budgets.py",
        "tests/numazones/rebalance/test_filter.py",
    ),
    "numazones/rebalance/proof.py": (
        "tests/numazones/rebalance/test_proof.py",
        "tests/numazones/rebalance/test_align.py",
    ),
    "operator/numazones_operator/rebalance/steps.py": _EXECUTION,
    "operator/numazones_operator/rebalance/executor.py": _EXECUTION,
}
_SOURCES = (
    "numazones",
    "support",
    "exporter",
    "operator",
    "kubectl",
    "models",
    "lab",
)
_CONFIGURATION = """
[tool.mutmut]
source_paths = {sources}
only_mutate = ["{module}"]
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-p", "no:cacheprovider", "-p", "no:xdist", "-q", "-m", "{marks}"]
also_copy = ["."]
# A machine that is busy with other work takes its time, which is not to count as noticing a change.
timeout_constant = 20.0
"""
_RESULT = re.compile(r"^\s+(\S+): (.+)$", re.MULTILINE)
_KILLED = frozenset({"killed", "timeout", "segfault", "caught by type check"})


def prepare(tree: Path, module: str, tests: tuple[str, ...], marks: str) -> None:
    """Copy the checkout into a folder, and say there what mutmut is to do."""
    shutil.rmtree(tree, ignore_errors=True)
    _log(tree).unlink(missing_ok=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        source = ROOT / name
        if source.is_symlink() or source.is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, tree / name, follow_symlinks=False)
    folder, _, within = module.partition("/")
    if folder != "numazones":
        # mutmut takes the path of a module for its name, so its package moves to the top.
        package = within.partition("/")[0]
        (tree / folder / package).rename(tree / package)
        folder, module = package, within
    beside = sorted(path.name for path in tree.iterdir() if path.name not in {*_SOURCES, folder})
    others = [name for name in _SOURCES if name != folder]
    text = _CONFIGURATION.format(sources=[f"{folder}/"], module=module, tests=list(tests), marks=marks)
    text = text.replace('["."]', str([*beside, *others])).replace("'", '"')
    with (tree / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(text)


def run(module: str, tests: tuple[str, ...], *, marks: str, sample: int, seed: int) -> None:
    """Change a module in every way, or in ``sample`` ways, and run its tests; print what came of it."""
    tree = CACHE / module.removesuffix(".py").replace("/", ".")
    prepare(tree, module, tests, marks)
    chosen: list[str] = []
    if sample:
        # A pattern that fits nothing: mutmut writes down all changes before it notices.
        mutmut(tree, "run", "--max-children", "1", "none")
        names = sorted(results(tree))
        chosen = names if len(names) <= sample else random.Random(seed).sample(names, sample)
    # As patterns: mutmut stops at a name of its own that no test reaches.
    done = mutmut(tree, "run", "--max-children", "1", *(f"*{name}" for name in chosen))
    found = {name: kind for name, kind in results(tree).items() if not chosen or name in chosen}
    if done.returncode or not found:
        sys.exit(f"{module}: mutmut failed, see {_log(tree)}")
    kinds = Counter(found.values())
    killed = sum(kinds[kind] for kind in _KILLED)
    others = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()) if kind not in _KILLED)
    print(f"{module}: {killed} of {len(found)} killed, {killed / len(found):.1%}; {others}", flush=True)
    for name, kind in found.items():
        if kind not in _KILLED:
            print(f"  {kind}: (cd {tree.relative_to(ROOT)} && mutmut show {name})", flush=True)


def _log(tree: Path) -> Path:
    return tree.with_name(f"{tree.name}.log")


def mutmut(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run mutmut in a prepared folder; but for results, what it says goes into a log beside the folder."""
    path = os.pathsep.join((".", *_SOURCES))
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "80"}
    command = [str(Path(sys.executable).with_name("mutmut")), *arguments]
    if arguments[0] == "results":
        return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    with _log(tree).open("a", encoding="utf-8") as log:
        return subprocess.run(
            command, cwd=tree, env=environment, stdout=log, stderr=log, text=True, check=False
        )


def results(tree: Path) -> dict[str, str]:
    """Return what became of each change, by its name."""
    return dict(_RESULT.findall(mutmut(tree, "results", "--all", "true").stdout))


def main() -> None:
    """Run for the modules that are named, or for all."""
    arguments = argparse.ArgumentParser(prog="make mutation", description="Test the tests of some modules.")
    arguments.add_argument("modules", nargs="*", help="paths (default: all that the script names)")
    arguments.add_argument("--tests", nargs="*", help="run these instead of those that the script names")
    arguments.add_argument("--sample", type=int, default=0, help="try so many changes of each (default: all)")
    arguments.add_argument("--seed", type=int, default=25, help="which ones (default: 25)")
    arguments.add_argument("--tables", action="store_true", help="leave out the laws, which take a while")
    chosen = arguments.parse_args()
    marks = "not hypothesis" if chosen.tables else ""
    for module in chosen.modules or MODULES:
        tests = tuple(chosen.tests or MODULES.get(module, ()))
        if not tests:
            arguments.error(f"{module} is not among {', '.join(MODULES)}; name its tests with --tests")
        run(module, tests, marks=marks, sample=chosen.sample, seed=chosen.seed)


if __name__ == "__main__":
    main()
