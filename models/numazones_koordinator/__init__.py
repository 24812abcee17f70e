"""Koordinator's pod-level NUMA policy: what koord-scheduler decides for a pod and a candidate node.

Rules: koordinator-sh/koordinator at a7a1b76b, the scheduler plugins NodeNUMAResource and DeviceShare
from PreFilter to Reserve, and the framework's topology manager that merges their hints. The unit of
decision is the pod; containers play no part beyond the sum of their requests.
"""
