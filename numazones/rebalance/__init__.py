"""Defragmentation: which pods may move, what that would gain, and plans that are proven before they are made.

``protections`` and ``filter`` say which pods may be evicted and why the others may not, ``budgets`` and
``limits`` how many of them, ``history`` how soon again; ``goals`` counts what a plan would gain, ``search``
finds plans, ``proof`` plays them through once more with nothing but the admission model, and ``planner``
puts these together. ``dump`` reads a recorded cluster, and ``whatif`` answers the same questions for it.
"""
