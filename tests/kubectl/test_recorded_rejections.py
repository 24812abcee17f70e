"""Every rejection of recorded kubelets: same reason, true numbers, advice that is admitted when applied."""

import re
from collections import Counter
from pathlib import Path

import pytest

from kubectl_numazones import recording
from numazones.advice import Change, advise
from numazones.fragmentation import room
from numazones.kubelet.admission import Admission, admit
from numazones.kubelet.explanation import explain
from numazones.kubelet.node_admission import NodeAdmission, admit_to_node
from numazones.kubelet.node_info import NodeInfo, PodInfo


def numbers_are_true(rejection: Admission) -> int:
    """Recompute what an explanation says, from the pod and the zones' room; return how many figures."""
    explanation = explain(rejection)
    assert not explanation.admitted
    assert explanation.shortfall
    reading, free = rejection.before.kubelet.reading(rejection.pod), room(rejection.before)
    asked = set()
    for demand in (*reading.demands, reading.total):
        asked |= {("cpu", demand.cpus), *(demand.memory or ()), *demand.limits}
    reuses = any(container.kind.value == "init" for container in rejection.pod.containers)
    for short in explanation.shortages:
        assert (short.resource, short.needed) in asked
        assert short.offered < short.needed
        if not reuses and short.resource in free:
            assert short.offered <= sum(free[short.resource][numa] for numa in short.numas)
        if short.resource == "cpu":
            assert str(short.needed) in re.findall(r"\d+", explanation.shortfall)
    return len(explanation.shortages)


def advice_is_admitted(rejection: Admission) -> int:
    """Apply each piece of advice, decide again, and see that it changes what it says; return how many."""
    found = advise(rejection, {uid: f"team/{uid}" for uid in rejection.before.pods})
    for item in found:
        before, pod = item.proof.before, item.proof.pod
        assert admit(before, pod).admitted, item.sentence
        if item.change is Change.REQUEST:
            assert (before, pod != rejection.pod) == (rejection.before, True)
        elif item.change is Change.EVICTION:
            (gone,) = set(rejection.before.pods) - set(before.pods)
            assert (pod, f"move team/{gone} away" in item.sentence) == (rejection.pod, True)
        else:
            assert (pod, before.config != rejection.before.config) == (rejection.pod, True)
    return len(found)


def test_rejections_of_recorded_kubelets_are_explained_truly(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: Counter[str] = Counter()

    def watched(node: NodeInfo, pod: PodInfo) -> NodeAdmission:
        said = admit_to_node(node, pod)
        # While devices are preferred as the recorded plugins preferred them for this very pod.
        if not said.admitted and said.managers is not None and not said.managers.admitted:
            checked["rejections"] += 1
            checked["figures"] += numbers_are_true(said.managers)
            checked["advice"] += advice_is_admitted(said.managers)
        return said

    monkeypatch.setattr("numazones.whatif.history.admit_to_node", watched)
    recordings = [path for path in (shared / "recordings").iterdir() if recording.is_recording(path)]
    assert recordings
    for path in recordings:
        # Reason and message are those of the kubelet.
        assert recording.compare(path).differ == []
    assert min(checked["rejections"], checked["figures"], checked["advice"]) > 0, checked
