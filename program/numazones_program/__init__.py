"""What exporter and operator do alike as programs: take settings, write logs.

Beside ``numazones_client`` for the same reason: programs must not import each other, and the library
does no I/O.
"""
