"""Names as kubectl takes them: TYPE/NAME, or TYPE NAME."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from kubectl_numazones.reading.names import NODE_TYPES, OWNER_TYPES, POD_TYPES, joined

Run = Callable[..., Result]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("rs", "trainer"), ("rs/trainer",)),
        (("deployments.apps", "web", "db"), ("deployments.apps/web", "deployments.apps/db")),
        (("po", "a"), ("po/a",)),
        (("a", "b"), ("a", "b")),
        (("rs",), ("rs",)),
        (("rs", "team/a"), ("rs", "team/a")),
        ((), ()),
    ],
)
def test_a_type_before_names_counts_for_all_of_them(
    names: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert joined(names, (*OWNER_TYPES, *POD_TYPES)) == expected


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (("why", "pod", "waiting", "-n", "team"), ("why", "waiting", "-n", "team")),
        (("plan", "pods", "waiting", "-n", "team"), ("plan", "waiting", "-n", "team")),
        *((("who", kind, "worker-1"), ("who", "worker-1")) for kind in NODE_TYPES),
        (("tree", "node", "worker-1"), ("tree", "worker-1")),
        (("tree", "node/worker-1"), ("tree", "worker-1")),
        (("top", "node", "worker-1"), ("top", "worker-1")),
        (
            ("why", "waiting", "--node", "nodes/worker-1", "-n", "team"),
            ("why", "waiting", "--node", "worker-1", "-n", "team"),
        ),
    ],
    ids=" ".join,
)
def test_commands_take_kubectls_two_words(
    words: tuple[str, ...], same: tuple[str, ...], run: Run, dump: Path
) -> None:
    told, expected = (run(*arguments, "-f", dump) for arguments in (words, same))
    assert expected.output
    assert (told.output, told.return_value, str(told.exception)) == (
        expected.output,
        expected.return_value,
        str(expected.exception),
    )
