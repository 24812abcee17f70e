"""The kubelet's configuration: policies, options and reservations, with the kubelet's defaults applied.

A file may hold what the kubelet was started with (KubeletConfiguration, kubelet.config.k8s.io/v1beta1) or a
saved answer of the running kubelet's /configz; ``api`` asks the running kubelet.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from numazones.errors import NumazonesError
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.versions import UnsupportedVersion
from numazones_exporter.file_opener import ReadFile, read_file
from numazones_exporter.observation import KUBELET_CONFIG, NOT_ASKED
from numazones_exporter.sources.documents import read_document
from numazones_node.problems import Problem, Reading, SourceError


class KubeletConfigReader(Protocol):
    """Something that knows the kubelet's configuration."""

    async def read(self) -> Mapping[str, Any]:
        """Return a KubeletConfiguration or a configz answer; raises ``SourceError`` or an API error."""
        ...


class NoConfigReader:
    """The reader where the configuration is not to be read."""

    async def read(self) -> Mapping[str, Any]:
        """Raise ``SourceError``: the settings switch this source off."""
        raise SourceError(NOT_ASKED, "the kubelet's configuration is not read (--kubelet-config none)")


class FileConfigReader:
    """Reads a KubeletConfiguration, or a saved configz answer, in YAML or JSON."""

    def __init__(self, path: Path, read: ReadFile = read_file) -> None:
        """``path`` of the file, and what reads it."""
        self._path = path
        self._read = read

    async def read(self) -> Mapping[str, Any]:
        """Read the file; raises ``SourceError``."""
        return read_document(self._path, self._read)


def parse_configuration(document: Mapping[str, Any], *, version: str | None) -> Reading[KubeletConfiguration]:
    """Apply the kubelet's defaults to a KubeletConfiguration or configz answer.

    Raises:
        SourceError: it is neither, or a field has the wrong shape.
    """
    configuration = document.get("kubeletconfig", document)
    if not isinstance(configuration, Mapping) or configuration.get("kind", "") not in (
        "",
        "KubeletConfiguration",
    ):
        raise SourceError(
            "InvalidConfiguration",
            "the kubelet configuration is neither a KubeletConfiguration nor a /configz response",
        )
    try:
        if version is None:
            return Reading(KubeletConfiguration.from_api(configuration))
        try:
            return Reading(KubeletConfiguration.from_api(configuration, version=version))
        except UnsupportedVersion as error:
            problem = Problem(
                KUBELET_CONFIG, "UnsupportedVersion", f"{error}; predictions for this release may be wrong"
            )
            return Reading(KubeletConfiguration.from_api(configuration), (problem,))
    except NumazonesError as error:
        raise SourceError("InvalidConfiguration", f"the kubelet configuration: {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise SourceError(
            "InvalidConfiguration", f"the kubelet configuration has a malformed field: {error}"
        ) from error
