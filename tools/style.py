"""Check that texts read like the Kubernetes documentation: plain words, verbs first, short test names.

    python -m tools.style            fail where a file has more slips than its allowance
    python -m tools.style --lower    write lower allowances where slips were corrected
    python -m tools.style FILE...    show every slip in these files

What was written before the check has an allowance in ``style-allowances.json``, file by file, which may only
fall; a new file has none. The patterns are words and phrases that a native engineer would not write in a code
review. Where one is right, write around it: the next reader would stumble, too.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ALLOWANCES = Path(__file__).with_name("style-allowances.json")
_SUFFIXES = {".md", ".py", ".js", ".yaml", ".in", ".txt", ".html"}
_LEFT_OUT = (
    "tests/data/",
    "docs/reference/answers.md",
    "docs/reference/commands.md",
    "docs/reference/exporter-metrics.md",
    "docs/reference/metrics.md",
    "docs/reference/resources.md",
    "docs/reference/rights.md",
    "crds/",
    "requirements.txt",
    "lab/numazones_simulator/manifests/",
    "lab/numazones_simulator/sample/",
    "tools/style",
    "tests/tools/test_style.py",
)
"""Recorded, generated from checked texts, or about the patterns themselves."""
_MOST_WORDS = 10

_RULES = (
    ('"""', r'"""(?:What|Whether|Of|Who|Whom|Whose)\b', "begin with a verb or a noun phrase"),
    ("whether", r"^Whether\b", "begin with a verb or a noun phrase"),
    ("of wh", r"\bof (?:which|whom)\b", "make it two sentences"),
    ("whom", r"(?<!of )\bwhom\b", "make it two sentences"),
    ("that there ", r"\bthat there (?:is|are)\b", "name the thing"),
    ("such a", r"\bsuch an? one\b", "name the thing"),
    ("the latter", r"\bthe latter\b", "name the thing"),
    ("does so", r"\bdoes so\b", "name the thing"),
    ("all there ", r"\ball there (?:is|are)\b", "all"),
    ("mended", r"\bmended\b", "fixed"),
    ("made whole", r"\bmade whole\b", "fixed"),
    ("anew", r"\banew\b", "again"),
    ("once more", r"\bonce more\b", "again"),
    ("byte for byte", r"\bbyte for byte\b", "byte-identical"),
    ("tells ", r"\b(?:tells (?:of|that)|not every .{0,30} tells)\b", "reports, shows"),
    ("tells", r"\bserver tells\b", "reports, shows"),
    (" told", r"\b(?:is|are) told\b", "reports, shows"),
    ("in vain", r"\bin vain\b", "without effect, unsuccessfully"),
    (" to be", r"\b(?:wants?|is|are) to be\b", "must be, should be"),
    ("a film", r"\ba film\b", "an animation"),
    ("of materials", r"\bbills? of materials?\b", "SBOM"),
    (" out", r"\bcarr(?:y|ies|ied|ying)(?: \w+)? out\b", "run, execute"),
    ("beside", r"\bbeside\b", "next to, in addition to"),
    ("for ever", r"\bfor ever\b", "forever"),
    ("body", r"\b(?:nobody|somebody)\b", "name the program or the person"),
    (" is no ", r"\b(?:this|that|it|which) is no [a-z]", "is not a"),
    (" or no ", r"\bor no (?-i:[A-Z])", "or not"),
    ("some ", r"\bsome (?:seconds|minutes|hours)\b", "a few"),
    ("fullest offer", r"\bfullest offer\b", "at most N are free"),
    (" one", r"\bmakes? (?:the next|another) one\b", "creates a replacement"),
    (" from nodes", r"\bkeeps? (?:pods|them|it) from nodes\b", "keeps pods off nodes"),
    ("no such ", r"\bno such \w+ in namespace\b", "No stuck pods in namespace"),
    ("the nearest of", r"\bthe nearest of\b", "Closest:"),
    ("there, too", r"\bthere, too\b", "still"),
    ("any ownerrefs", r"\bany ownerRefs\b", "nothing would recreate it"),
    (" over", r"\bpass(?:es|ed)? over\b", "rules out"),
    ("no operator leads;", r"\bno operator leads;", "No operator is running"),
    ("whole amount", r"\bwhole amount\b", "invalid quantity"),
    ("writer", r"\b(?:its writer|\w+ writer of)\b", "name the field and the values it may have"),
    ("on no ", r"\bon no (?:number|node|machine)\b", "do not fit on"),
    ("by what they say", r"\bby what they say\b", "grouped by reason"),
    ("there again", r"\bthere again\b", "more than once"),
    ("missing for", r"\bwere missing for\b", "was waiting for"),
    (" as there ", r"\bas \w+ as there are\b", "say the number"),
    (" away", r"\btake (?:it |them )?away\b", "remove"),
    ("(not run)", r"^ *```.*\(not run\)", "a comment above the fence: <!-- test: not run -->"),
    ("as far as it goes", r"\bas far as it goes\b", "as far as possible"),
)
"""What a rule looks for first, in lower case, as patterns are slow; its pattern; what to write instead."""
_COMPILED = tuple(
    (first, re.compile(pattern, re.MULTILINE | re.IGNORECASE), hint) for first, pattern, hint in _RULES
)
_TEST_NAME = re.compile(r"^(?:async )?def test_(\w+)", re.MULTILINE)


class Slip(NamedTuple):
    """A phrase to rewrite."""

    line: int
    text: str
    hint: str


def slips(text: str) -> Iterator[Slip]:
    """Yield the slips of a text."""
    low = text.lower()
    for first, pattern, hint in _COMPILED:
        if first in low:
            for match in pattern.finditer(text):
                yield Slip(text.count("\n", 0, match.start()) + 1, match[0], hint)
    for match in _TEST_NAME.finditer(text) if "def test_" in low else ():
        if match[1].count("_") >= _MOST_WORDS:
            line = text.count("\n", 0, match.start()) + 1
            yield Slip(line, f"test_{match[1]}", f"name the behaviour in {_MOST_WORDS} words")


def checked_files() -> Iterator[Path]:
    """Yield the files that are checked: what git knows, and what is new and not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines():
        path = ROOT / name
        if path.suffix in _SUFFIXES and not name.startswith(_LEFT_OUT) and path.is_file():
            yield path


def found() -> dict[str, list[Slip]]:
    """Return file → its slips, for files that have any."""
    every = {
        str(path.relative_to(ROOT)): list(slips(path.read_text(encoding="utf-8", errors="replace")))
        for path in checked_files()
    }
    return {name: of_file for name, of_file in every.items() if of_file}


def allowances() -> dict[str, int]:
    """Return file → how many slips it may have."""
    read: dict[str, int] = json.loads(ALLOWANCES.read_text(encoding="utf-8"))
    return read


def excess(now: dict[str, list[Slip]], allowed: dict[str, int]) -> list[str]:
    """Return the lines to print for files with more slips than allowed: every slip of such a file."""
    lines = []
    for name, of_file in now.items():
        if len(of_file) > allowed.get(name, 0):
            lines.append(
                f"{name}: {len(of_file)} slips, {allowed.get(name, 0)} allowed; rewrite what you added:"
            )
            lines += [f"  {name}:{slip.line}: {slip.text!r}: {slip.hint}" for slip in sorted(of_file)]
    return lines


def lower(now: dict[str, list[Slip]], allowed: dict[str, int]) -> dict[str, int]:
    """Return the allowances that are left after corrections; none rises."""
    return {name: min(count, len(now[name])) for name, count in sorted(allowed.items()) if name in now}


def main(arguments: list[str]) -> int:
    """Check, or lower the allowances; return the exit code."""
    if arguments and arguments != ["--lower"]:
        for name in arguments:
            for slip in slips(Path(name).read_text(encoding="utf-8")):
                print(f"{name}:{slip.line}: {slip.text!r}: {slip.hint}")
        return 0
    now = found()
    if arguments:
        text = json.dumps(lower(now, allowances()), indent=0)
        ALLOWANCES.write_text(f"{text}\n", encoding="utf-8")
        return 0
    lines = excess(now, allowances())
    print("\n".join(lines) if lines else "no new slips of style")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
