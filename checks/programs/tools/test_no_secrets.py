"""Nothing in the checkout looks like a key or a token: whoever commits one by mistake hears of it at once."""

import re
import subprocess

import pytest

from tests.places import ROOT

SHAPES = {
    "a private key": "-----BEGIN ([A-Z]+ )*PRIVATE KEY-----",
    "a key of AWS": r"\b(AKIA|ASIA)[0-9A-Z]{16}\b",
    "a token of GitHub": r"\b(gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{40})",
    "a token of GitLab": r"\bglpat-[A-Za-z0-9_-]{20}",
    "a key of Google": r"\bAIza[0-9A-Za-z_-]{35}",
    "a token of Slack": r"\bxox[abprs]-[A-Za-z0-9-]{10}",
    "a signed token": r"\beyJ[A-Za-z0-9_-]{16,}\.eyJ[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16}",
    "a token of PyPI": r"\bpypi-[A-Za-z0-9_-]{50}",
}
EXAMPLES = {
    "a private key": "-----BEGIN EC " + "PRIVATE KEY-----",
    "a key of AWS": "AKIA" + "0" * 16,
    "a token of GitHub": "ghp_" + "0" * 36,
    "a token of GitLab": "glpat-" + "0" * 20,
    "a key of Google": "AIza" + "0" * 35,
    "a token of Slack": "xoxb-" + "0" * 10,
    "a signed token": "eyJ" + "0" * 16 + ".eyJ" + "0" * 16 + "." + "0" * 16,
    "a token of PyPI": "pypi-" + "0" * 50,
}


@pytest.mark.parametrize("what", SHAPES)
def test_what_looks_like_a_secret_is_recognized(what: str) -> None:
    assert re.search(SHAPES[what], EXAMPLES[what])


def test_no_file_holds_what_looks_like_a_secret() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False).stdout
    if not listed:
        pytest.skip("only a checkout knows its files")
    texts = {
        name: (ROOT / name).read_bytes().decode(errors="replace")
        for name in listed.decode().split("\0")
        if name and (ROOT / name).is_file()
    }
    assert len(texts) > 100
    found = [
        f"{name}: {what}"
        for name, text in texts.items()
        for what, shape in SHAPES.items()
        if re.search(shape, text)
    ]
    assert found == []
