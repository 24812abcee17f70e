"""A placement model of the tests' own: every pod gets whole CPUs of one NUMA node.

An agent on the node takes the NUMA node that has the fewest free CPUs of those that have enough. It publishes
what it has given in the node's PinnedNode, whose ``spec.reserved`` names CPUs that no pod gets.
"""
