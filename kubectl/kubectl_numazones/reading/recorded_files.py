"""The files of a recorded cluster, by name."""

from pathlib import Path

HISTORY = "replay.jsonl"
"""One operation a line."""
OBJECTS = "objects.json"
"""The Kubernetes objects of that moment, of a recording that ``record`` made."""
PODS = "pods.json"
"""The pods at the end, of a recorded history."""
TREE = "sys.tar.gz"
"""Of a node: its sysfs and procfs."""
CONFIGURATION, NODE, PLUGINS = "kubelet-config.yaml", "node.json", "device_plugins.json"
"""Of a node: its kubelet's configuration, its Node object, what its device plugins announce."""
ZONES = "numazones.json"
"""Of a node: its zones when the recording began, of a recording that begins with pods."""


def is_recording(path: Path) -> bool:
    """Return whether a path is a recorded cluster."""
    return (path / HISTORY).is_file()


def is_history(path: Path) -> bool:
    """Return whether a recording holds a history, and not the objects of one moment."""
    return is_recording(path) and not (path / OBJECTS).is_file()
