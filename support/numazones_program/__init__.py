"""What exporter and operator share as programs: settings, logs, probes, metrics of the process.

Beside ``numazones_client`` for the same reason: programs must not import each other, and the library
does no I/O.
"""
