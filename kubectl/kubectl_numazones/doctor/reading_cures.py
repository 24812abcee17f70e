"""Cures for exporters that could not read their node in full, by the reason of the zones' condition.

The table in docs/reference/exporter.md has the same rows; a test compares them.
"""

from numazones.kubelet import cures

CURES: dict[str, str] = {}
"""Reason → what helps."""


def _helps(*reasons: str, cure: str) -> None:
    CURES.update(dict.fromkeys(reasons, cure))


_helps(
    "KubeletNotFound",
    cure="let a kubelet run there, or mount its root directory and name it with --kubelet-dir; a machine "
    "without kubelet has nothing but its hardware to show",
)
_helps(
    "KubeletFilesMissing",
    cure="mount the kubelet's root directory: /var/lib/k0s/kubelet on k0s, "
    "/var/snap/microk8s/common/var/lib/kubelet on MicroK8s (chart value exporter.kubeletDir, or hostPath of "
    "the volume kubelet)",
)
_helps(
    "SourcesDisagree",
    cure="do as the condition says: restart the kubelet, or where that would fail, drain the node, stop the "
    "kubelet, remove the state file that it would not take and start it again",
)
_helps(
    "CPUsOfTwoPods",
    "CPUsInSharedSet",
    cure="delete them as said, or drain the node, stop its kubelet, remove cpu_manager_state and start it "
    "again; so that it does not come again, make all cores equal first (all CPUs online, or SMT off "
    "everywhere)",
)
_helps(
    "SocketMissing",
    cure="see whether the kubelet runs; mount the directory pod-resources, not the socket in it",
)
_helps(
    "CannotConnect",
    "ConnectionLost",
    "KubeletRejected",
    "TimedOut",
    cure="wait: the kubelet is restarting, overloaded or hanging, and is asked again; if it stays so, see "
    "its log",
)
_helps(
    "InvalidAnswer",
    "AnswerTooLarge",
    "RecordingMissing",
    cure="see what listens there, or was recorded: it does not speak podresources v1",
)
_helps(
    "NotFound",
    cure="restart the kubelet, which writes its state files when it starts, and see whether it runs with the "
    "root directory that is mounted",
)
_helps(
    "Unreadable",
    cure="let the exporter run as root, and where SELinux is enforced with the type spc_t "
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
    cure="make the state file readable: what podresources say instead is less exact",
)
_helps("EndedPodsUnknown", cure="let the exporter see the node's pods (--pods) or podresources")
_helps("NoPodsOfNode", cure="give the exporter the right --node-name")
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
    cure="see what is unusual about sysfs or the configuration; the message names the file",
)
_helps(
    "ConfigError",
    "Unreachable",
    "Forbidden",
    "Unauthorized",
    "UntrustedCertificate",
    cure="apply the exporter's manifests again (rights, address of the kubelet); the message names what is "
    "missing",
)
_helps(
    "InvalidDocument",
    "InvalidConfiguration",
    "UnsupportedVersion",
    cure="correct the kubelet's configuration, or the file that stands for it",
)
_helps("NotAsked", cure="switch the source on again: a setting of the exporter says none")
