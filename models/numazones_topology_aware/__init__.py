"""The NRI topology-aware resource policy (containers/nri-plugins) as a pure function.

The plugin decides about each container on its own when the runtime creates it: it builds a tree of
CPU and memory pools from the hardware, ranks the pools for the container, takes CPUs and memory out
of the best one, and tells the runtime what changes for this container and for others. The rules are
those of the released code, its defects included; ``docs/reference/topology-aware.md`` lists them.
"""
