"""Errors of the policy: about its configuration, about a container, about what it cannot decide."""

from numazones.errors import NumazonesError


class StartFailed(NumazonesError):
    """The plugin would not start, or would not take a configuration, on this machine."""

    def __init__(self, message: str, *, code: str, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.code = code
        """A short name of the reason, such as ``reserved-missing``."""
        self.path = path
        """The configuration's field that is to blame; empty: the machine is."""


class PluginCrash(NumazonesError):
    """The plugin would crash on this container; the message says where."""


class Rejection(Exception):
    """The policy rejects a container; caught by the events."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
