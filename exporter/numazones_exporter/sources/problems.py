"""How a source says that it could not be read, or not in full."""

import os
from dataclasses import dataclass
from typing import Generic, TypeVar

from numazones.errors import NumazonesError
from numazones_exporter.observation import Problem

_Value = TypeVar("_Value")


class SourceError(NumazonesError):
    """A source gave nothing usable; ``reason`` is CamelCase, the message names the object and the cure."""

    def __init__(self, reason: str, message: str) -> None:
        """Keep the reason beside the message."""
        super().__init__(message)
        self.reason = reason


def cure_of_denial() -> str:
    """What helps where the kernel denies access to the kubelet's files."""
    if os.geteuid() != 0:
        return "the exporter must run as root"
    return (
        "the exporter runs as root, so it belongs to another user, or SELinux or AppArmor keeps it from the "
        "exporter: where SELinux is enforced, give the pod the type spc_t (securityContext.seLinuxOptions)"
    )


@dataclass(frozen=True, slots=True)
class Reading(Generic[_Value]):
    """What a source gave, and what it could not give."""

    value: _Value
    problems: tuple[Problem, ...] = ()
