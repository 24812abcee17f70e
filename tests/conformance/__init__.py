"""Reference vectors: what a real kubelet decided, and whether this model decides the same.

A scenario is a machine, devices, a kubelet configuration and a sequence of steps (JSON, one per
line). ``scenario`` reads it, ``results`` replays it, ``comparison`` compares two results;
``python -m tests.conformance`` is the command-line door.
"""
