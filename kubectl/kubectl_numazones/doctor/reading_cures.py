"""Cures for exporters that could not read their node in full, by the reason of the NUMAZones' condition.

The table in docs/reference/exporter.md has the same rows; a test compares them.
"""

from numazones.kubelet import cures

CURES: dict[str, str] = {}
"""Reason → what helps."""


def _helps(*reasons: str, cure: str) -> None:
    CURES.update(dict.fromkeys(reasons, cure))


_helps(
    "KubeletNotFound",
    cure="start a kubelet there, or mount its root directory and set --kubelet-dir to it; a machine "
    "without a kubelet shows only its hardware",
)
_helps(
    "KubeletFilesMissing",
    cure="mount the kubelet's root directory: /var/lib/k0s/kubelet on k0s, "
    "/var/snap/microk8s/common/var/lib/kubelet on MicroK8s (chart value exporter.kubeletDir, or hostPath of "
    "the volume kubelet)",
)
_helps(
    "SourcesDisagree",
    cure="do what the condition says: restart the kubelet, or if that would fail, drain the node, stop the "
    "kubelet, remove the state file that it would reject and start it again",
)
_helps(
    "CPUsOfTwoPods",
    "CPUsInSharedSet",
    cure="delete the pods that the condition names, or drain the node, stop its kubelet, remove "
    "cpu_manager_state and start it again; to prevent it, first make all cores equal (all CPUs online, or "
    "SMT off everywhere)",
)
_helps(
    "SocketMissing",
    cure="check whether the kubelet runs; mount the directory pod-resources, not the socket in it",
)
_helps(
    "CannotConnect",
    "ConnectionLost",
    "KubeletRejected",
    "TimedOut",
    cure="wait: the kubelet is restarting, overloaded or hanging, and the exporter retries; if this "
    "persists, check the kubelet's log",
)
_helps(
    "InvalidAnswer",
    "AnswerTooLarge",
    "RecordingMissing",
    cure="check what is listening there, or what was recorded: it does not speak podresources v1",
)
_helps(
    "NotFound",
    cure="restart the kubelet, which writes its state files when it starts, and check that it runs with the "
    "mounted root directory",
)
_helps(
    "Unreadable",
    cure="run the exporter as root, and if SELinux is enforcing, with the SELinux type spc_t "
    "(securityContext.seLinuxOptions)",
)
_helps(
    "InvalidCheckpoint",
    "WrongChecksum",
    cure=f"{cures.DAMAGED_FILE}; something else wrote it, or it is damaged",
)
_helps(
    "EstimatedSplit",
    "InitContainersUnseen",
    cure="make the state file readable: podresources, which are used instead, are less exact",
)
_helps("EndedPodsUnknown", cure="let the exporter see the node's pods (--pods) or podresources")
_helps("NoPodsOfNode", cure="set the exporter's --node-name to the name of its node")
_helps("DeviceTopologyUnknown", cure="make podresources readable")
_helps("ReservedCPUsUnknown", cure="make the kubelet's configuration or podresources readable")
_helps(
    "InvalidCPUList",
    "InvalidDistances",
    "InvalidSysfs",
    "MeminfoMissing",
    "HugepagesUnreadable",
    "CPUWithoutTopology",
    "NoCPUs",
    cure="check sysfs and the configuration; the message names the file",
)
_helps(
    "ConfigError",
    "Unreachable",
    "Forbidden",
    "Unauthorized",
    "UntrustedCertificate",
    cure="apply the exporter's manifests again (permissions, kubelet address); the message says what is "
    "missing",
)
_helps(
    "InvalidDocument",
    "InvalidConfiguration",
    "UnsupportedVersion",
    cure="correct the kubelet's configuration, or the file that is read in its place",
)
_helps("NotAsked", cure="enable the source: the exporter's setting for it is none")
