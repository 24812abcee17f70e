"""The pod that an owner makes from its template, as it will be when the API server has stored it.

Templates are stored as people wrote them; defaults are filled in on the pods. Read as it stands, a template
with limits only would make a Burstable pod without CPUs, whose replacement seems to fit anywhere.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from numazones.apimachinery.defaulting import Defaults, created_spec
from numazones.cluster.cluster import ClusterPod
from numazones.errors import NumazonesError


def pod_from_template(owner: Mapping[str, Any], defaults: Defaults) -> ClusterPod:
    """Return the pod that a ReplicaSet, StatefulSet or Job would make.

    A template that is not valid gives a pod that cannot be read, with the problem.
    """
    metadata, template = owner["metadata"], owner["spec"].get("template") or {}
    namespace, spec = metadata["namespace"], template.get("spec") or {}
    with suppress(NumazonesError):  # whoever reads it names the problem
        spec = created_spec(spec, namespace=namespace, defaults=defaults)
    name = {"namespace": namespace, "name": metadata["name"], "uid": f"template/{metadata['uid']}"}
    return ClusterPod.from_api({"metadata": {**(template.get("metadata") or {}), **name}, "spec": spec})
