"""Keeps what reading one object, or deciding about it, raises from ending more than that object.

Whatever takes in or decides about one of many does so in ``ObjectFaults.of``. What is raised there that no
rule foresees is logged, counted and told by an event on the object, which is Unknown; everything else goes
on. A restart would read the same object again, so nothing of the kind may end the process.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar

from numazones.api.meta import API_VERSION
from numazones.api.numazone import NUMAZONE
from numazones.api.rebalance import PodReference
from numazones.cluster.cluster import ClusterPod
from numazones.errors import NumazonesError, ObjectFault, Subject
from numazones.kubelet.pod import Pod
from numazones_client import APIError

ObjectReference = Mapping[str, str]
"""apiVersion, kind, namespace, name and uid of an object that an event is about, as Kubernetes has them."""

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")

_VERSIONS = {
    "PodDisruptionBudget": "policy/v1",
    "RebalancePolicy": API_VERSION,
    "RebalanceRecommendation": API_VERSION,
    "ResourceClaim": "resource.k8s.io/v1",
    "ResourceSlice": "resource.k8s.io/v1",
}
"""Kind → the API version that events on it name; of others v1."""

_MOST = 1000
"""Objects of which it is remembered what was logged."""

_log = logging.getLogger(__name__)


@dataclass
class ObjectFaults:
    """Takes what is raised about objects."""

    _: KW_ONLY
    count: Callable[[str, str], None] = lambda _kind, _error: None
    """Called with kind and error."""
    tell: Callable[[ObjectReference, str], None] = lambda _about, _problem: None
    """Called with the object and what is wrong."""
    _logged: dict[tuple[str, str], str] = field(init=False, default_factory=dict)
    """(kind, name) → what was logged of it last."""

    @contextmanager
    def of(self, about: ObjectReference) -> Iterator[None]:
        """Take what is raised in the block, except errors of the API server, which are no object's fault."""
        try:
            yield
        except APIError:
            raise
        except Exception as error:  # noqa: BLE001 - that is what this is for
            self.take(about, error)

    def take(self, about: ObjectReference, error: Exception) -> str:
        """Log, count and tell what was raised about an object; return it in words.

        Where the error itself names an object, that is the one at fault.
        """
        if isinstance(error, ObjectFault):
            about = of_subject(error.objects[0]) if error.objects else about
            error = error.error
        problem = in_words(error)
        kind = about.get("kind", "")
        name = "/".join(filter(None, (about.get("namespace"), about.get("name"))))
        known = self._logged.get((kind, name))
        _log.log(
            logging.DEBUG if known == problem else logging.WARNING,
            "%s %s: %s",
            kind,
            name,
            problem,
            exc_info=error,
        )
        if len(self._logged) >= _MOST:
            self._logged.clear()
        self._logged[kind, name] = problem
        self.count(kind, type(error).__name__)
        self.tell(about, problem)
        return problem

    def over(
        self,
        items: Iterable[_Item],
        work: Callable[[_Item], _Found],
        about: Callable[[_Item], ObjectReference] | None = None,
    ) -> Iterator[tuple[_Item, _Found]]:
        """Yield each item with what some work finds about it; those about which it raises are left out.

        ``about`` gives the reference to an item; by default, items say themselves what they are.
        """
        for item in items:
            try:
                found = work(item)
            except APIError:
                raise
            except Exception as error:  # noqa: BLE001 - it concerns this item alone
                self.take((about or of_subject)(item), error)
            else:
                yield item, found

    def take_all(self, found: Iterable[tuple[Subject, ObjectFault]]) -> None:
        """Take errors that a decision about many objects has left objects out for."""
        for subject, fault in found:
            self.take(of_subject(subject), fault.error)


def in_words(error: Exception) -> str:
    """Say what was raised; errors that rules foresee say it themselves."""
    return str(error) if isinstance(error, NumazonesError) else f"{type(error).__name__}: {error}"


def of_subject(subject: Any) -> ObjectReference:
    """Return the reference to an object that says what it is."""
    if subject.KIND == "Node":
        return of_node(subject.name)
    kind, namespace = subject.KIND, getattr(subject, "namespace", "")
    about = {"apiVersion": _VERSIONS.get(kind, "v1"), "kind": kind, "name": subject.name}
    return about | {"uid": getattr(subject, "uid", "")} | ({"namespace": namespace} if namespace else {})


def of_pod(pod: ClusterPod | Pod | PodReference) -> ObjectReference:
    """Return the reference to a pod."""
    return {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}


def of_zone(name: str) -> ObjectReference:
    """Return the reference to a NUMAZone."""
    return {"apiVersion": API_VERSION, "kind": NUMAZONE.kind, "name": name, "uid": ""}


def of_node(name: str) -> ObjectReference:
    """Return the reference to a node; kubectl describe looks for its events by the name."""
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}
