import io
import json
import logging
from collections.abc import Iterator

import pytest

from numazones_program import logs


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_log_is_one_object_per_line() -> None:
    stream = io.StringIO()
    logs.configure(style="json", level="info", stream=stream)
    logging.getLogger("numazones_exporter.x").warning("zone %d\nis gone", 3)
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert entry.pop("time").endswith("+00:00")
    assert entry == {"level": "warning", "logger": "numazones_exporter.x", "message": "zone 3\nis gone"}


def test_an_exception_stays_on_the_line() -> None:
    stream = io.StringIO()
    logs.configure(style="json", level="info", stream=stream)
    try:
        raise ValueError("broken")  # noqa: TRY301 - it is what is logged
    except ValueError:
        logging.getLogger("x").exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: broken" in json.loads(line)["exception"]


def test_text_logs_are_plain_lines_from_the_level_up() -> None:
    stream = io.StringIO()
    logs.configure(style="text", level="warning", stream=stream)
    logging.getLogger("x").info("not shown")
    logging.getLogger("x").error("shown")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("ERROR   x: shown")


def test_quoted_text_cannot_start_a_line_or_control_the_terminal() -> None:
    stream = io.StringIO()
    logs.configure(style="text", level="warning", stream=stream)
    logging.getLogger("x").error("pod %s cannot be read", "a\n2026-01-31 ERROR forged\x1b[2J\x9b31m\u202e")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(r"ERROR   x: pod a\n2026-01-31 ERROR forged\x1b[2J\x9b31m\u202e cannot be read")
    assert line.isprintable()


def test_an_exception_in_a_text_log_keeps_its_lines() -> None:
    stream = io.StringIO()
    logs.configure(style="text", level="warning", stream=stream)
    try:
        raise ValueError("broken")  # noqa: TRY301 - it is what is logged
    except ValueError:
        logging.getLogger("x").exception("failed")
    assert "x: failed\nTraceback" in stream.getvalue()
