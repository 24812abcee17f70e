"""Logging: one JSON object a line for machines, plain lines for people; the standard library does both."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from numazones.wording import visible


class JSONFormatter(logging.Formatter):
    """Writes a record as one line of JSON; values given as ``extra={"fields": {...}}`` become keys."""

    def format(self, record: logging.LogRecord) -> str:
        """Return time (UTC), level, logger, message, extra fields and, if there is one, the exception."""
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """Writes a record as a line, which what the message quotes can neither end nor colour."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as the standard library calls it
        """Return the line, without an exception."""
        record.message = visible(record.message, lines=False)
        return super().formatMessage(record)


def configure(*, style: str, level: str, stream: TextIO = sys.stderr) -> None:
    """Send every logger to ``stream``, as ``json`` or ``text``, from ``level`` up; replaces any set-up."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        JSONFormatter()
        if style == "json"
        else TextFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
