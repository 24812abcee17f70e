"""A Kubernetes API server embedded in a process: for tests, for the demo, for the simulator.

``kubectl``, kopf and the ``kubernetes`` client take it for a real one as far as nodes, workloads and
custom resources go; docs/reference/embedded-api-server.md says what it does and what it does not.
"""

from numazones_apiserver.errors import StatusError
from numazones_apiserver.faults import Fault, Faults
from numazones_apiserver.in_process import InProcess
from numazones_apiserver.server import ApiServer, NodeProxy, NotLoopback
from numazones_apiserver.writes import DeleteOptions, WriteOptions

__all__ = [
    "ApiServer",
    "DeleteOptions",
    "Fault",
    "Faults",
    "InProcess",
    "NodeProxy",
    "NotLoopback",
    "StatusError",
    "WriteOptions",
]
