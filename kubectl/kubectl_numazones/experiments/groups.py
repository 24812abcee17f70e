"""Groups of pods that commands are given: amounts, or the pods of a manifest."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from kubectl_numazones.printing import screen
from kubectl_numazones.reading.manifests import read_manifest, shared_pool_notes
from numazones.whatif.workload import PodGroup

_MANIFESTS = frozenset({".yaml", ".yml", ".json"})


def pod_groups(texts: Iterable[str]) -> tuple[PodGroup, ...]:
    """Read groups such as ``20xcpu=2,memory=4Gi``, or names of manifests, each template of which is a group.

    Raises:
        InvalidGroup: a text is neither.
        BadDump: a manifest cannot be read, or has no pod template.
    """
    return tuple(group for text in texts for group in _groups(text))


def _groups(text: str) -> Iterator[PodGroup]:
    path = Path(text)
    if path.suffix not in _MANIFESTS:
        yield PodGroup.parse(text)
        return
    manifest = read_manifest(path)
    for note in (*manifest.notes, *shared_pool_notes(manifest.templates)):
        screen.warn(note)
    for template in manifest.templates:
        if template.replicas:
            yield PodGroup(template.replicas, (), template.pod, template.name)
