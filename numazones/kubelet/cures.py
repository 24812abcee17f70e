"""Cures for a kubelet's settings and state files, as every surface prints them.

A state file names the policy it was written under, and a kubelet of another policy does not start with it
(``restoreState``, kubelet 1.36): advice that changes a policy is no cure without the rest of it. A test finds
every name here, and tries its text on a simulated kubelet.
"""

from collections.abc import Iterable
from typing import Final

from numazones.wording import did_you_mean

CPU_STATE_FILE: Final = "cpu_manager_state"
MEMORY_STATE_FILE: Final = "memory_manager_state"
_STATE_FOLDER = "/var/lib/kubelet"
_FEW_NUMA_NODES = 8
"""Kubelets start on so many without an option."""


def _on_drained_node(setting: str, file: str) -> str:
    """Return what to do for a setting that a state file is bound to."""
    return f"drain the node, set {setting}, and remove {file} before its kubelet starts again"


# Pods on which the kubelet hangs or crashes

NO_ALIGNMENT: Final = "set topologyManagerPolicy: none"
NO_MEMORY_MANAGER: Final = (
    f"{_on_drained_node('memoryManagerPolicy: None', MEMORY_STATE_FILE)}; topologyManagerPolicy: none does "
    "not help"
)
NEWER_DEVICE_HINTS: Final = (
    "upgrade the kubelet to 1.36, which looks only at NUMA nodes with such devices, or set "
    "topologyManagerPolicy: none"
)
NO_MANAGERS: Final = _on_drained_node(
    "topologyManagerPolicy: none and memoryManagerPolicy: None", MEMORY_STATE_FILE
)
FEWER_COMBINATIONS: Final = "set topologyManagerPolicy: single-numa-node or none, which try fewer"
NO_DISTRIBUTION: Final = "set distribute-cpus-across-numa: false"

# Settings that do less than they might

STATIC_CPUS: Final = _on_drained_node("cpuManagerPolicy: static, with reservedSystemCPUs", CPU_STATE_FILE)
STATIC_MEMORY: Final = _on_drained_node("memoryManagerPolicy: Static, with reservedMemory", MEMORY_STATE_FILE)
STRICT_RESERVATION: Final = "if you do not want this, " + _on_drained_node(
    'strict-cpu-reservation: "true" in cpuManagerPolicyOptions', CPU_STATE_FILE
)
REQUIRED_ALIGNMENT: Final = (
    "set topologyManagerPolicy: restricted or single-numa-node for pods that must be aligned"
)
NOTHING_TO_ALIGN: Final = "leave it, or set topologyManagerPolicy: none"
EFFECTIVE_DISTRIBUTION: Final = "remove the option, or set topologyManagerPolicy: restricted"
UNKNOWN_OPTION: Final = (
    "upgrade numazones if a newer version knows the option, or remove it from the kubelet's configuration"
)
RELEASED_OPTIONS: Final = "remove the option before you install a released kubelet"

# Kubelets that would not start

DAMAGED_FILE: Final = (
    "if the kubelet rejects it as well, drain the node, stop the kubelet, remove the file and start it again"
)
CORRECT_CONFIGURATION: Final = "correct the configuration"
RESERVED_CPUS: Final = 'reserve a CPU or more for the system, for example with reservedSystemCPUs: "0"'
NO_EXCLUSIVE_RESIZE: Final = _on_drained_node(
    "InPlacePodVerticalScalingExclusiveCPUs: false in featureGates", CPU_STATE_FILE
)


def restart(kubelet: str) -> str:
    """Return the cure where a restart is one.

    >>> restart("the kubelet of worker-1")
    'restart the kubelet of worker-1: it will accept its state files'
    """
    return f"restart {kubelet}: it will accept its state files"


def without_state_file(node: str, file: str) -> str:
    """Return what to do about a state file that the kubelet does not take; ``node``: how to call it.

    >>> without_state_file("worker-1", CPU_STATE_FILE)
    'drain worker-1, stop its kubelet, remove /var/lib/kubelet/cpu_manager_state and start it again'
    """
    return f"drain {node}, stop its kubelet, remove {_STATE_FOLDER}/{file} and start it again"


def fuller_shared_pool(node: str) -> str:
    """Return what else helps where exclusive CPUs have left nothing to share."""
    return (
        f"delete a pod with exclusive CPUs on {node} before the kubelet is restarted, or "
        + without_state_file(node, CPU_STATE_FILE)
    )


def in_quotes(field: str) -> str:
    """Return what to do about a number or a boolean where the kubelet decodes text."""
    return f"write {field} as text, in quotes"


def alignment(count: int) -> str:
    """Return what aligns pods on a machine of so many NUMA nodes."""
    option = f'with topologyManagerPolicyOptions max-allowable-numa-nodes: "{count}"'
    allowed = f", {option}" if count > _FEW_NUMA_NODES else ""
    return f"set topologyManagerPolicy: single-numa-node or restricted{allowed}"


def allowed_numa_nodes(count: int) -> str:
    """Return what lets the Topology Manager start on a machine with many NUMA nodes."""
    option = f'max-allowable-numa-nodes: "{count}"'
    return f"set topologyManagerPolicyOptions {option}, or topologyManagerPolicy: none"


def known_option(name: str, known: Iterable[str]) -> str:
    """Return what to do about an option that the kubelet does not know.

    >>> known_option("full-pcpu-only", ["full-pcpus-only"])
    'correct the configuration; did you mean full-pcpus-only?'
    """
    return CORRECT_CONFIGURATION + did_you_mean(name, known)


def no_reservation_of(kind: str) -> str:
    """Return what to do about reserved memory of a kind that no other field reserves."""
    return f"remove {kind} from reservedMemory: no other field reserves it"


def matching_reservations(expected: str, kept: str, difference: str) -> str:
    """Return what to do where ``reservedMemory`` does not add up.

    Args:
        expected: what it must add up to.
        kept: the fields that say so.
        difference: how much they would have to change instead, such as ``1Gi more``.
    """
    return (
        f"make reservedMemory add up to {expected}, which is {kept}, "
        f"or change kubeReserved or systemReserved by the same amount: {difference}; if you change "
        f"reservedMemory, drain the node and remove {MEMORY_STATE_FILE} before its kubelet starts again"
    )


def best_effort_on(node: str) -> str:
    """Return what aligns a pod that its kubelet places without looking at NUMA nodes."""
    return f"set topologyManagerPolicy: best-effort on {node} and recreate the pod"
