"""The kubelet's admission as a pure function: one module per kubelet manager.

``admission`` is the door: ``admit(node, pod)`` and ``remove(node, uid)``.
"""
