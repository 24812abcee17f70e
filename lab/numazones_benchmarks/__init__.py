"""Benchmarks: programs that measure numazones and print JSON."""
