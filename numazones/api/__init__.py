"""The objects that the project writes to and reads from the Kubernetes API, as checked values.

``meta`` holds what every object shares; ``numazone``, ``prediction`` and ``rebalance`` are the custom
resources of the group ``numazones.io``, ``crd`` and ``reference`` their definitions and documentation.
``snapshot`` is what is known about a node, ``zone_building`` with ``amounts`` makes zones of it, ``zones``
converts between zones and the node's exact admission state. ``noderesourcetopology`` and ``fingerprint`` are
the object and the checksum that other tools of the field read.
"""
