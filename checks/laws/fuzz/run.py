"""Fuzzes targets with atheris, guided by what each input reaches: ``make fuzz``.

A run starts from the target's seeds and kept inputs, and keeps in ``.cache/fuzz/NAME`` what reaches something
new, so that the next run goes on there. What breaks the law is shown and kept in ``.cache/fuzz/NAME.found``,
one input for each place in the program that raises, and the run goes on. Mend the program, and put the input
into ``checks/laws/fuzz/corpus/NAME``, where the tests read it again.
"""

import argparse
import hashlib
import logging
import re
import subprocess
import sys
import traceback
from pathlib import Path
from random import Random

from tests.places import ROOT

CACHE = ROOT / ".cache" / "fuzz"
_MOST_BYTES = 65_536
_MEGABYTES = 2048
_SECONDS_PER_INPUT = 60
_EXECUTED = re.compile(r"^stat::number_of_executed_units: (\d+)", re.MULTILINE)
_BRANCHES = re.compile(r"cov: (\d+)")
_PACKAGES = [
    *("numazones", "numazones_client", "numazones_exporter", "numazones_operator", "numazones_program"),
    *("numazones_koordinator", "numazones_topology_aware", "kubectl_numazones"),
]


class Findings:
    """The inputs that break a target's law, one for each place that raises."""

    def __init__(self, directory: Path) -> None:
        """Keep them in a folder, which is emptied."""
        self._directory = directory
        self._seen: set[str] = set()
        directory.mkdir(parents=True, exist_ok=True)
        for path in directory.iterdir():
            path.unlink()

    def add(self, data: bytes, error: Exception) -> None:
        """Keep an input, unless there is one of the same place."""
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__}-{Path(last.filename).stem}-{last.lineno}"
        if place in self._seen:
            return
        self._seen.add(place)
        path = self._directory / place
        path.write_bytes(data)
        print(f"FOUND {path.relative_to(ROOT)}: {error!r:.300}", flush=True)  # noqa: T201 - for people
        traceback.print_exception(error)


def fuzz(name: str, *, minutes: float, seed: int) -> None:
    """Fuzz one target in this process, which ends with it."""
    import atheris  # noqa: PLC0415 - not part of the environment, see requirements.txt

    logging.disable(logging.CRITICAL)
    with atheris.instrument_imports(include=_PACKAGES):
        from checks.laws.fuzz.all_targets import TARGETS  # noqa: PLC0415 - instrumented while it is imported
    from checks.laws.fuzz.mutation import mutate  # noqa: PLC0415

    target, corpus = TARGETS[name], CACHE / name
    corpus.mkdir(parents=True, exist_ok=True)
    for data in (*target.seeds(), *(path.read_bytes() for path in target.kept())):
        (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    findings = Findings(CACHE / f"{name}.found")

    def changed(data: bytes, most: int, number: int) -> bytes:
        def by_coverage(text: bytes, _draw: Random) -> bytes:
            mutated: bytes = atheris.Mutate(text, max(len(text) * 2, 64))
            return mutated

        return mutate(data, Random(number), by_coverage)[:most]

    def check(data: bytes) -> None:
        try:
            target.check(data)
        except Exception as error:  # noqa: BLE001 - any that is not documented is what is looked for
            findings.add(data, error)

    options = [
        sys.argv[0],
        f"-max_total_time={round(minutes * 60)}",
        f"-max_len={_MOST_BYTES}",
        f"-timeout={_SECONDS_PER_INPUT}",
        f"-report_slow_units={_SECONDS_PER_INPUT}",
        f"-rss_limit_mb={_MEGABYTES}",
        f"-artifact_prefix={CACHE / name}.found/",
        f"-seed={seed}",
        "-len_control=0",
        "-print_final_stats=1",
        str(corpus),
    ]
    atheris.Setup(options, check, custom_mutator=changed)
    atheris.Fuzz()


def fuzz_apart(name: str, *, minutes: float, seed: int) -> bool:
    """Fuzz one target in a process of its own; print what came of it and return whether nothing was found."""
    CACHE.mkdir(parents=True, exist_ok=True)
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "checks.laws.fuzz.run",
            "--here",
            name,
            f"--minutes={minutes}",
            f"--seed={seed}",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    said = ended.stdout + ended.stderr
    executed, branches = _EXECUTED.search(said), _BRANCHES.findall(said)
    found = sorted((CACHE / f"{name}.found").glob("*"))
    number = executed[1] if executed else "?"
    print(  # noqa: T201 - for people
        f"{name}: {number} executions, {branches[-1] if branches else '?'} branches, {len(found)} found",
        flush=True,
    )
    if found or ended.returncode:
        (CACHE / f"{name}.log").write_text(said)
        print(f"  see {(CACHE / f'{name}.log').relative_to(ROOT)}", *found, sep="\n  ", flush=True)  # noqa: T201
    return not found and not ended.returncode


def main() -> None:
    """Fuzz some targets, or all."""
    from checks.laws.fuzz.all_targets import TARGETS  # noqa: PLC0415 - a process that fuzzes instruments it first

    arguments = argparse.ArgumentParser(prog="make fuzz", description="Fuzz parsers of what others write.")
    arguments.add_argument("targets", nargs="*", help=f"some of {', '.join(TARGETS)} (default: all)")
    arguments.add_argument("--minutes", type=float, default=1.0, help="for each (default: %(default)s)")
    arguments.add_argument("--seed", type=int, default=0, help="of the random choices; 0: others each time")
    chosen = arguments.parse_args()
    unknown = set(chosen.targets) - TARGETS.keys()
    if unknown:
        arguments.error(f"there is no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    clean = [fuzz_apart(name, minutes=chosen.minutes, seed=chosen.seed) for name in chosen.targets or TARGETS]
    sys.exit(not all(clean))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        _, _, one, length, number = sys.argv
        fuzz(one, minutes=float(length.partition("=")[2]), seed=int(number.partition("=")[2]))
    else:
        main()
