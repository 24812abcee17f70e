"""Doubts about answers: what is not certain about the kubelets' releases that they rest on.

Every surface says them once per answer, whatever its form: they come with a ``Prediction``, and ``of_nodes``
returns them for answers about a whole cluster.
"""

from collections.abc import Iterable, Mapping

from numazones.cluster.cluster import ClusterNode
from numazones.errors import About
from numazones.kubelet.config import KubeletConfiguration
from numazones.wording import shorten, some_of

_MOST_NAMED = 3
_MOST = 16
_LONGEST = 512


def of_nodes(nodes: Iterable[ClusterNode]) -> tuple[str, ...]:
    """Return what is not certain about decisions of nodes; empty: nothing is.

    >>> from numazones import build
    >>> state = build.node(build.machine(cores=4, memory="8Gi"), version="v1.38.0")
    >>> of_nodes([ClusterNode("worker-1").with_state(state)])
    ('kubelet 1.38 is not released yet: it is predicted with the rules of its second alpha (worker-1)',)
    """
    found: dict[str, list[str]] = {}
    for node in nodes:
        with About(node):
            for doubt in () if node.state is None else node.state.kubelet.doubts:
                found.setdefault(doubt, []).append(node.name)
    return sentences(found)


def of_configurations(configurations: Iterable[tuple[str, KubeletConfiguration]]) -> tuple[str, ...]:
    """Return what is not certain about kubelets that would be started, options that no release knows too.

    ``configurations``: name of a node → its configuration; a node may have several.
    """
    found: dict[str, dict[str, None]] = {}
    for name, config in configurations:
        for doubt in (*config.doubts, *config.unreleased_options):
            found.setdefault(doubt, {})[name] = None
    return sentences(found)


def sentences(found: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return doubts with the nodes that each is about."""
    return tuple(
        f"kubelet {doubt} ({some_of(sorted(names), most=_MOST_NAMED)})"
        for doubt, names in sorted(found.items())
    )


def bounded(found: Iterable[str]) -> tuple[str, ...]:
    """Return as many doubts, each as long, as custom resources take."""
    return tuple(shorten(doubt, _LONGEST) for doubt in tuple(found)[:_MOST])
