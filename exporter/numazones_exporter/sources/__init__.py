"""Sources that the exporter reads: one module each, behind a small typed interface.

``reading.Sources`` holds one reader per source, built from the options; ``reading.observe`` asks each of them
once and never raises for a bad source: a source that fails, lies or hangs becomes a ``Problem``.
"""
