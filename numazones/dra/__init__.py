"""Devices of dynamic resource allocation (DRA, resource.k8s.io/v1): where they are, and who has them.

The kubelet's Topology Manager never sees these devices (1.36: no hint provider is registered for them), so
nothing brings them and a pod's CPUs together. What is known of them are objects of the API alone: drivers
publish devices in ResourceSlices (``devices``), the scheduler writes what it allocates into the status of
ResourceClaims (``claims``), and a DeviceClass selects devices by expressions (``device_classes``).
``allocator`` says which devices the scheduler would choose for claims on a node.
"""
