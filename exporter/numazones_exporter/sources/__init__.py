"""Where the exporter reads: one module per source, each behind a small typed interface.

``Sources`` holds one reader per source, built from the options; ``observe`` asks each of them once
and never raises for a bad source: a source that fails, lies or hangs becomes a ``Problem``.
"""

from numazones_exporter.sources.reading import Sources, observe

__all__ = ["Sources", "observe"]
