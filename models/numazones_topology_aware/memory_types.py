"""Types of memory as a mask: DRAM, PMEM (persistent or CXL memory), HBM (high bandwidth)."""

DRAM = 1
PMEM = 2
HBM = 4
ALL = DRAM | PMEM | HBM
# What a container that keeps its own memory pinning "asks for".
PRESERVE = 8

TYPES = (DRAM, PMEM, HBM)
_NAMES = {DRAM: "DRAM", PMEM: "PMEM", HBM: "HBM"}


def name(types: int) -> str:
    """``DRAM,PMEM``; ``preserve``."""
    if types == PRESERVE:
        return "preserve"
    return ",".join(_NAMES[kind] for kind in TYPES if types & kind)
