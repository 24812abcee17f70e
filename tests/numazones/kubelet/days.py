"""Random nodes of every configuration, and the pods of a day that arrive at them."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from numazones.apimachinery.quantity import parse
from numazones.kubelet.admission import Admission, admit
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.kubelet.rejection import KubeletHang
from numazones.kubelet.versions import NEWEST, OLDEST, release
from tests.numazones.kubelet.building import GI, container, cpu_option_sets, gpus, machine, node, pod

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
RELEASES = tuple(release(f"1.{minor}") for minor in range(OLDEST, NEWEST + 1))
POD_LEVEL_GATES: tuple[dict[str, bool], ...] = (
    {},
    {"PodLevelResources": True, "PodLevelResourceManagers": True},
    {
        "PodLevelResources": False,
        "InPlacePodLevelResourcesVerticalScaling": False,
        "PodLevelResourcesFixDefaulting": False,
        "PodLevelResourcesFixKubeletQOSClass": False,
    },
)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    numas = draw(st.integers(1, 4))
    hardware = machine(
        numas,
        cores=draw(st.integers(1, 4)),
        threads=draw(st.sampled_from([1, 2])),
        sockets=draw(st.sampled_from([1, numas])),
        memory=draw(st.sampled_from([4, 8])) * GI,
        cores_per_uncore_cache=draw(st.sampled_from([None, 2])),
    )
    kubelet = draw(st.sampled_from(RELEASES))
    policy = draw(st.sampled_from(POLICIES))
    hosts = [(draw(st.integers(0, numas - 1)),) for _ in range(draw(st.integers(0, 4)))]
    return node(
        hardware,
        devices=gpus(*hosts),
        policy=policy,
        scope=draw(st.sampled_from(["container", "pod"])),
        memory=draw(st.sampled_from(["Static", "None"])),
        cpu_options=draw(st.sampled_from(cpu_option_sets(kubelet, policy=policy))),
        gates=draw(st.sampled_from(POD_LEVEL_GATES)),
        version=str(kubelet),
    )


@st.composite
def pods(draw: st.DrawFn, uid: str) -> Pod:
    def one(name: str) -> dict[str, object]:
        return container(
            name,
            draw(st.sampled_from(["1", "2", "3", "4", "500m"])),
            draw(st.sampled_from(["64Mi", "1Gi", "3Gi", "6Gi"])),
            **({"vendor_gpu": draw(st.sampled_from(["0", "1", "2"]))} if draw(st.booleans()) else {}),
        )

    inits = tuple(
        {**one(f"i{number}"), **({"restartPolicy": "Always"} if draw(st.booleans()) else {})}
        for number in range(draw(st.integers(0, 2)))
    )
    apps = [one(f"c{number}") for number in range(draw(st.integers(1, 2)))]
    whole = {}
    amounts = {"cpu": draw(st.sampled_from(["8", "6500m"])), "memory": "12Gi"}
    if draw(st.booleans()) and fit((*inits, *apps), amounts):
        whole = {"resources": {"requests": amounts, "limits": amounts}}
    return pod(uid, *apps, init=inits, **whole)


@st.composite
def days(draw: st.DrawFn) -> tuple[Node, list[Pod]]:
    return draw(nodes()), [draw(pods(f"u{number}")) for number in range(draw(st.integers(1, 4)))]


def play(start: Node, arrivals: Sequence[Pod]) -> tuple[list[Admission], Node]:
    admissions = []
    for arrival in arrivals:
        try:
            admission = admit(start, arrival)
        except KubeletHang:
            continue
        admissions.append(admission)
        start = admission.node
    return admissions, start


def fit(containers: Sequence[Mapping[str, Any]], amounts: Mapping[str, str]) -> bool:
    """Return whether a pod may have these totals: API servers refuse less than its containers request.

    A kubelet that was told to divide less among them would keep the CPUs for ever.
    """
    asked = [container["resources"]["requests"] for container in containers]
    return all(
        sum(parse(one[kind]).milli() for one in asked) <= parse(whole).milli()
        for kind, whole in amounts.items()
    )
