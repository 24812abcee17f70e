"""Keys of ``live``, as its help and its key ? show them."""

KEYS = """\
1 2 3 4, ← →   NUMA nodes, stuck pods, plans, the operator's events
↑ ↓, enter     select a line; open its details and events
a, x           approve or reject the plan of the selected line, after confirmation
/, s           filter by words, sort NUMA nodes
g              group NUMA nodes by node and stuck pods by reason, or list all
escape, q, ?   show all lines again, quit, show these keys
"""
