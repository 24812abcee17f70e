"""Machines and pods for the topology-aware policy's tests."""

from collections.abc import Mapping

from hypothesis import strategies as st

from numazones import cpuset
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.pod import Pod
from numazones_topology_aware.config import Configuration
from numazones_topology_aware.hardware import Cache, CPUDetails, Hardware

GIB = 1 << 30


def hardware(
    *,
    sockets: int = 2,
    dies: int = 1,
    numas: int = 2,
    cores: int = 2,
    threads: int = 2,
    clusters: int = 1,
    caches: int = 0,
    memory: int = 2 * GIB,
    far: tuple[int, ...] = (),
    isolated: str = "",
    efficient: str = "",
    slow: str = "",
) -> Hardware:
    """A regular machine, threads of a core adjacent.

    ``numas`` and ``clusters`` count per die, ``caches`` per NUMA node; ``far`` adds NUMA nodes without CPUs
    by their sizes in bytes.
    """
    cpus: list[CPU] = []
    details = {}
    low = cpuset.parse(slow)
    for number in range(sockets * dies * numas * cores * threads):
        core = number // threads
        numa = core // cores
        die = numa // numas
        within = core % (numas * cores)
        cpus.append(CPU(number, core, die // dies, die % dies, numa))
        frequency = 1_000_000 if low >> number & 1 else 2_000_000
        details[number] = CPUDetails(within * clusters // (numas * cores), frequency)
    count = sockets * dies * numas
    per_node = cores * threads
    width = per_node // caches if caches else 0
    total = count + len(far)
    nodes = tuple(
        NUMANode(
            number,
            memory if number < count else far[number - count],
            distances=tuple(_distance(number, other, count, numas * dies) for other in range(total)),
        )
        for number in range(total)
    )
    return Hardware(
        machine=Machine(tuple(cpus), nodes),
        details=details,
        caches=tuple(
            Cache(index, 3, "Unified", ((1 << width) - 1) << index * width)
            for index in range(count * caches if width else 0)
        ),
        isolated=cpuset.parse(isolated),
        efficient=cpuset.parse(efficient),
    )


def _distance(one: int, other: int, count: int, per_socket: int) -> int:
    if one == other:
        return 10
    near, distant = (number % count // per_socket for number in (one, other))
    extra = 5 * ((one >= count) + (other >= count))
    return (12 if near == distant else 21) + extra


@st.composite
def machines(draw: st.DrawFn) -> Hardware:
    """Small machines of all kinds."""
    threads = draw(st.sampled_from([1, 2]))
    shape = {
        "sockets": draw(st.integers(1, 2)),
        "dies": draw(st.integers(1, 2)),
        "numas": draw(st.integers(1, 2)),
        "cores": draw(st.sampled_from([2, 4])),
    }
    total = threads
    for count in shape.values():
        total *= count
    everything = list(range(0, total, threads))
    isolated = draw(st.sets(st.sampled_from(everything), max_size=2))
    hybrid = draw(st.booleans()) and len(everything) > 2
    efficient = everything[len(everything) // 2 :] if hybrid else []
    return hardware(
        **shape,
        threads=threads,
        clusters=draw(st.integers(1, 2)),
        caches=draw(st.sampled_from([0, 2])),
        far=tuple(draw(st.lists(st.sampled_from([GIB, 8 * GIB]), max_size=2))),
        isolated=",".join(map(str, sorted(isolated - {0}))),
        efficient=",".join(str(core + thread) for core in efficient for thread in range(threads)),
        slow=draw(st.sampled_from(["", "0-3"])),
    )


def configuration(**changes: object) -> Configuration:
    """The configuration of a fresh installation."""
    values: dict[str, object] = {
        "pin_cpu": True,
        "pin_memory": True,
        "prefer_isolated": True,
        "reserved_cpu": "750m",
        "unlimited_burstable": "package",
    }
    return Configuration(**{**values, **changes})  # type: ignore[arg-type]


def pod(
    name: str,
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    *,
    annotations: Mapping[str, str] | None = None,
    namespace: str = "default",
    init: bool = False,
) -> Pod:
    """A pod of one container ``c`` (and an init container ``i`` that asks for the same)."""
    resources = {"requests": dict(requests or {}), "limits": dict(limits or {})}
    spec: dict[str, object] = {"containers": [{"name": "c", "resources": resources}]}
    if init:
        spec["initContainers"] = [{"name": "i", "resources": resources}]
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "annotations": {
            key if "/" in key else f"{key}.resource-policy.nri.io": value
            for key, value in (annotations or {}).items()
        },
    }
    return Pod.from_manifest({"metadata": metadata, "spec": spec})


def several(name: str, *init: tuple[str, str, bool], **containers: str) -> Pod:
    """A Guaranteed pod of containers by their CPUs, after init ones: name, CPUs, whether it is a sidecar."""

    def container(of: str, cpu: str) -> dict[str, object]:
        return {"name": of, "resources": {"limits": {"cpu": cpu, "memory": "64Mi"}}}

    return Pod.from_manifest(
        {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {
                "initContainers": [
                    {**container(of, cpu), **({"restartPolicy": "Always"} if sidecar else {})}
                    for of, cpu, sidecar in init
                ],
                "containers": [container(of, cpu) for of, cpu in containers.items()],
            },
        }
    )


def guaranteed(name: str, cpu: str, memory: str = "128Mi", **others: object) -> Pod:
    """A Guaranteed pod."""
    return pod(name, {}, {"cpu": cpu, "memory": memory}, **others)  # type: ignore[arg-type]


_ANNOTATIONS = st.fixed_dictionaries(
    {},
    optional={
        "prefer-isolated-cpus": st.sampled_from(["true", "false"]),
        "prefer-isolated-cpus/pod": st.just("true"),
        "require-isolated-cpus": st.just("true"),
        "prefer-shared-cpus": st.sampled_from(["true", "false"]),
        "prefer-cpu-priority": st.sampled_from(["high", "low", "normal"]),
        "memory-type": st.sampled_from(["dram", "pmem", "hbm", "mixed"]),
        "prefer-reserved-cpus": st.just("true"),
        "cpu.preserve": st.just("true"),
        "hide-hyperthreads": st.just("true"),
        "unlimited-burstable": st.sampled_from(["system", "numa", "die", "l3cache"]),
    },
)


@st.composite
def pods(draw: st.DrawFn, name: str) -> Pod:
    """A pod of one container of any kind."""
    limits = draw(
        st.sampled_from(
            [
                {},
                {"cpu": "300m", "memory": "64Mi"},
                {"cpu": "1", "memory": "64Mi"},
                {"cpu": "1500m", "memory": "256Mi"},
                {"cpu": "2", "memory": "1Gi"},
                {"cpu": "3", "memory": "3Gi"},
            ]
        )
    )
    requests = {} if not limits else draw(st.sampled_from([limits, {"cpu": "100m"}]))
    annotations = {
        key.replace("/pod", "") + ".resource-policy.nri.io" + ("/pod" if key.endswith("/pod") else ""): value
        for key, value in draw(_ANNOTATIONS).items()
    }
    return pod(name, requests, limits, annotations=annotations)


@st.composite
def pods_of_several(draw: st.DrawFn, name: str = "several") -> Pod:
    """A Guaranteed pod of some containers, init ones and sidecars among them."""
    cpus = st.sampled_from(["300m", "1", "1500m", "2", "3"])
    init = [("i", draw(cpus), False), ("s", draw(cpus), True)][: draw(st.integers(0, 2))]
    names = ["a", "b", "c"][: draw(st.integers(1, 3))]
    return several(name, *init, **{name: draw(cpus) for name in names})
