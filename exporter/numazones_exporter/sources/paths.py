"""Files of the kubelet that the exporter reads, by name; it reads no others.

The process that opens them imports this before anything heavy, and nothing of what reads them.
"""

import os
from pathlib import Path

from numazones_exporter.options import Options

STATE_FILES = (
    "cpu_manager_state",
    "memory_manager_state",
    "device-plugins/kubelet_internal_checkpoint",
    "kubelet_internal_checkpoint",
)
"""Below the kubelet's directory; recordings often keep the devices' beside the other two."""


def kubelet_certificate(options: Options) -> Path:
    """Return the kubelet's trust anchor: the configured authority, or its self-signed certificate."""
    return options.kubelet_certificate_authority or options.kubelet_dir / "pki/kubelet.crt"


def workload_pinning(options: Options) -> Path:
    """The machine's file by which OpenShift's kubelet partitions CPUs; only whether it is there matters."""
    return options.sysfs.parent / "etc/kubernetes/openshift-workload-pinning"


def kubelet_files(options: Options) -> tuple[Path, ...]:
    """All files of the kubelet that are read."""
    return (*(options.kubelet_dir / name for name in STATE_FILES), kubelet_certificate(options))


def file_of(source: str, scheme: str = "file") -> Path | None:
    """The path in the setting of a source, such as ``file:PATH``; None where it is of another form."""
    found, _, path = source.partition(":")
    return Path(path) if found == scheme and path else None


def cure_of_denial() -> str:
    """Return the cure where the kernel denies access to the kubelet's files."""
    if os.geteuid() != 0:
        return "the exporter must run as root"
    return (
        "the exporter already runs as root, so the file belongs to another user, or SELinux or "
        "AppArmor denies access: if SELinux is enforcing, give the pod the SELinux type spc_t "
        "(securityContext.seLinuxOptions)"
    )
