"""How to change a setting that a kubelet's state file is bound to.

A state file names the policy it was written under, and a kubelet of another policy does not start with it
(``restoreState``, kubelet 1.36). Advice that changes a policy is no cure without the rest of it.
"""

from typing import Final

CPU_STATE_FILE: Final = "cpu_manager_state"
MEMORY_STATE_FILE: Final = "memory_manager_state"


def on_drained_node(setting: str, file: str) -> str:
    """Return what to do for a setting of which a state file knows.

    Args:
        setting: with its value.
        file: the state file.

    >>> on_drained_node("cpuManagerPolicy: none", CPU_STATE_FILE)
    'set cpuManagerPolicy: none on the drained node, and remove cpu_manager_state before its kubelet ...'
    """
    return f"set {setting} on the drained node, and remove {file} before its kubelet starts again"
