"""Convert a kubelet's configuration to the form in which zones publish it, and say what that means."""

from collections.abc import Mapping

from numazones.api.numazone import KubeletSettings
from numazones.kubelet import go
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.versions import GATES, STRICT_CPU_RESERVATION


def kubelet_settings(config: KubeletConfiguration, *, version: str) -> KubeletSettings:
    """Return the published form of a kubelet's configuration."""
    return KubeletSettings(
        version=version,
        cpu_manager_policy=config.cpu_manager_policy,
        cpu_manager_policy_options=dict(config.cpu_manager_policy_options),
        memory_manager_policy=config.memory_manager_policy,
        topology_manager_policy=config.topology_manager_policy,
        topology_manager_scope=config.topology_manager_scope,
        topology_manager_policy_options=dict(config.topology_manager_policy_options),
        feature_gates={name: on for name, on in config.feature_gates if name in GATES},
        workload_partitioning=config.workload_partitioning,
    )


def keeps_reserved_apart(kubelet: KubeletSettings) -> bool:
    """Tell whether the kubelet keeps the reserved CPUs out of the default set."""
    return kubelet.workload_partitioning or is_strict(kubelet.cpu_manager_policy_options)


def is_strict(options: Mapping[str, str]) -> bool:
    """Tell whether CPU manager policy options keep the reserved CPUs out of the default set."""
    try:
        return go.parse_bool(options.get(STRICT_CPU_RESERVATION, "false"))
    except ValueError:
        return False  # no kubelet starts with it
