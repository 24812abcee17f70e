"""Completion of ``kubectl numazones``: what kubectl runs as ``kubectl_complete-numazones`` (kubectl 1.26).

kubectl hands over the words behind the plugin's name, the last of them the one to be completed, and reads one
candidate per line, with a help text behind a tab, and in the last line what the shell should do besides:
``:4`` nothing, ``:0`` offer files.
"""

import sys

from click.shell_completion import ShellComplete

from kubectl_numazones.main import PROGRAM, commands

_NO_FILES, _FILES = ":4", ":0"


def main(words: list[str] | None = None) -> None:
    """Print the candidates for the last word."""
    *before, incomplete = (sys.argv[1:] if words is None else words) or [""]
    found = ShellComplete(commands, {}, PROGRAM, "").get_completions(before, incomplete)
    directive = _FILES if any(item.type in ("file", "dir") for item in found) else _NO_FILES
    for item in found:
        if item.type == "plain":
            sys.stdout.write(f"{item.value}\t{item.help}\n" if item.help else f"{item.value}\n")
    sys.stdout.write(f"{directive}\n")
