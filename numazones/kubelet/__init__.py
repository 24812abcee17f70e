"""The kubelet's admission as a pure function: one module per kubelet manager.

Begin with ``admission``: ``admit(node, pod)`` and ``remove(node, uid)``.
"""
