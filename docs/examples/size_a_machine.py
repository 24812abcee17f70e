"""Count the pods that fit on a machine of two NUMA nodes with 32 cores and 256 GiB each.

python docs/examples/size_a_machine.py CPUS GIB
"""

import sys

from numazones import KubeletConfiguration, Node, admit, build, cpuset

MACHINE = build.machine(sockets=2, numa=2, cores=64, threads=2, memory="512Gi")
CONFIGURATION = {
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    "reservedSystemCPUs": "0,32,64,96",
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "2Gi"}}],
    "systemReserved": {"memory": "1948Mi"},
    "topologyManagerPolicy": "single-numa-node",
}


def main(cpus: str, gib: str) -> None:
    """Admit pods until one is rejected."""
    node, count = Node.fresh(MACHINE, KubeletConfiguration.from_api(CONFIGURATION, version="v1.36.0")), 0
    while True:
        admission = admit(node, build.pod(f"pod-{count}", cpu=cpus, memory=f"{gib}Gi"))
        if not admission.admitted:
            break
        node, count = admission.node, count + 1
    print(f"{count} pods of {cpus} CPUs and {gib}Gi; shared CPUs left: {cpuset.format(node.cpus.default)}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("Usage: python docs/examples/size_a_machine.py CPUS GIB")
    main(*sys.argv[1:])
