"""What the project writes to and reads from the Kubernetes API, as checked values.

``meta`` holds what every object shares, ``numazone``, ``prediction`` and ``rebalance`` the custom
resources of the group ``numazones.io``, ``crd`` their definitions, ``zones`` the way between the
zones of a node and the node's exact admission state, ``noderesourcetopology`` and ``fingerprint``
the object and the checksum that other tools of the field read.
"""
