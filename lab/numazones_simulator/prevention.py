"""Prevention in a simulated cluster: a second scheduler with the extender, or the gate, as they are shipped.

The configuration of the scheduler and the admission policy are those in ``manifests/``, so that what is
tried here is what a cluster would run; only the extender's port is another, as many clusters share a machine.
"""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from numazones.cluster.admission_gate import OPT_IN
from numazones.errors import NumazonesError
from numazones_client import AlreadyExists, Client, Resource
from numazones_client.resources import NAMESPACES
from numazones_simulator import operators
from numazones_simulator.addresses import free_address
from numazones_simulator.kube_scheduler import configuration
from numazones_simulator.kube_scheduler.configuration import Configuration
from numazones_simulator.programs import Programs

SCHEDULER = "numazones"
"""The name that a pod gives to be scheduled with the extender."""
GATE_ARGUMENTS = ("--admission-gate",)

_MANIFESTS = Path(__file__).resolve().parent / "manifests"
"""Links in a checkout."""
_ADMISSION = "admissionregistration.k8s.io"
_RESOURCES = {
    "MutatingAdmissionPolicy": Resource(_ADMISSION, "v1", "mutatingadmissionpolicies", namespaced=False),
    "MutatingAdmissionPolicyBinding": Resource(
        _ADMISSION, "v1", "mutatingadmissionpolicybindings", namespaced=False
    ),
}


class Prevention(StrEnum):
    """Way to keep pods off nodes whose kubelets would reject them."""

    EXTENDER = "extender"
    GATE = "gate"


class NoManifests(NumazonesError):
    """A manifest is not at hand; the message names it."""


def shipped_configuration(address: str) -> Configuration:
    """Return the configuration of the second scheduler, with its extender at another address.

    Raises:
        NoManifests: neither the installed package nor a checkout has them.
        InvalidConfiguration: kube-scheduler would not start with it.
    """
    shipped = configuration.parse(_shipped("scheduler/configuration.yaml"))
    (extender,) = shipped.extenders
    moved = extender.model_copy(update={"url_prefix": f"http://{address}"})
    return shipped.model_copy(update={"extenders": (moved,)})


async def start_extender(kubeconfig: Path, programs: Programs) -> str:
    """Start the extender as the manifest's sidecar does; return its address once its probe says ready.

    Raises:
        NotReady, ProgramFailed: it does not.
    """
    address = free_address()
    metrics = await operators.start(
        kubeconfig, programs, name="extender", further=("--no-lead", f"--extender-address={address}")
    )
    # A replica that does not lead has no metrics of nodes: none are waited for.
    await operators.wait_until_ready(metrics, 0, programs)
    return address


async def install_gate(client: Client, *, namespace: str) -> None:
    """Apply what injects the gate, and have a namespace opt in.

    Raises:
        NoManifests: neither the installed package nor a checkout has them.
    """
    for document in _documents("gate-injection"):
        try:
            await client.create(_RESOURCES[document["kind"]], document)
        except AlreadyExists:
            continue
    await client.patch(NAMESPACES, namespace, {"metadata": {"labels": dict([OPT_IN])}})


def for_scheduler(pods: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the pods with the line of their template that opts in to the second scheduler."""
    for pod in pods:
        yield pod | {"spec": {"schedulerName": SCHEDULER} | pod["spec"]}


def _documents(folder: str) -> Iterator[dict[str, Any]]:
    for name in yaml.safe_load(_shipped(f"{folder}/kustomization.yaml"))["resources"]:
        yield from yaml.safe_load_all(_shipped(f"{folder}/{name}"))


def _shipped(name: str) -> str:
    """Return the text of a manifest."""
    path = _MANIFESTS / name
    if not path.is_file():
        raise NoManifests(
            f"manifests/{name} is missing: prevention runs what the project's manifests say; install "
            "numazones-lab again, or start the simulator from a checkout (make venv)"
        )
    return path.read_text(encoding="utf-8")
