"""NUMA zones of Kubernetes nodes: what they hold, what would be admitted there, what moving pods would gain.

This package is the pure library: values in, values out. It does no I/O, reads no clock, keeps no
global state and knows no Kubernetes client; the exporter, the operator, the simulator and the
kubectl plugin are the edges that do. Rooms, lowest first, each building on those before it: values
(``cpuset``, ``quantity``, ``machine``, ``pod``), ``kubelet`` with its node, ``cluster``, ``prediction``,
``fragmentation``, ``rebalance``; ``api`` beside them. import-linter holds the order.
"""
