"""Common parts of exporter and operator as programs: settings, logs, probes, process metrics.

Beside ``numazones_client`` for the same reason: programs must not import each other, and the library
does no I/O.
"""
