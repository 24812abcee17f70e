"""The pods fingerprint: a checksum of the names of a node's pods, by which schedulers check their cache.

Version 1 of the pods fingerprint that the resource-topology-exporter and scheduler-plugins
share: XXH64 of each pod's name, seeded with the hash of its namespace; sorted; hashed again. Method
``all`` counts every pod; which pods to pass is the caller's part.
"""

import struct
from collections.abc import Iterable

import xxhash

ALL = "all"

_PREFIX = "pfp0v001"


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of pods given as (namespace, name), in any order."""
    hashes = sorted(
        xxhash.xxh64_intdigest(name.encode(), seed=xxhash.xxh64_intdigest(namespace.encode()))
        for namespace, name in pods
    )
    digest = xxhash.xxh64_hexdigest(struct.pack(f"<{len(hashes)}Q", *hashes))
    return f"{_PREFIX}{digest}"
