"""A kubeconfig with which any client finds the embedded server."""

import os
from pathlib import Path

import yaml

NAME = "numazones-apiserver"


def write(path: Path, url: str, token: str) -> Path:
    """Write the file, readable by its owner only; returns its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": {"server": url}}],
        "users": [{"name": NAME, "user": {"token": token} if token else {}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}],
        "current-context": NAME,
        "preferences": {},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        yaml.safe_dump(config, file, sort_keys=False)
    return path
