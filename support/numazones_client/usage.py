"""Use of CPUs and memory: from the exporters, through the API server, or from a Prometheus.

Exporters count from their start (docs/reference/exporter-metrics.md): two readings show what happens now, one
what happened since. Their pods are asked through the API server's proxy, with the caller's rights. What is
read may be anything, so it is read within bounds, only lines of known metrics with sensible values count, and
an exporter is believed about its own node alone. A share is unknown if a part of it is missing.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numazones.apimachinery.documents import Bounds, read_json
from numazones.cluster.usage import MeasuredUse, NUMAUse, Usage
from numazones.errors import NumazonesError
from numazones.wording import visible
from numazones_client.errors import Forbidden
from numazones_client.resources import PODS

if TYPE_CHECKING:
    from numazones_client.client import Client

EXPORTERS = "app.kubernetes.io/name=numazones-exporter"
CPU_SECONDS = "numazones_numa_cpu_seconds_total"
MEMORY_USED = "numazones_numa_memory_used_bytes"
CPUS = "numazones_container_exclusive_cpus"
HELD = "numazones_container_exclusive_cpu_seconds_total"
BUSY = "numazones_container_exclusive_cpu_busy_seconds_total"
BUSY_SHARE = "share of CPUs that is busy"
"""Made by a query from CPU_SECONDS."""
MOST_CPUS = "most exclusive CPUs of the window"
"""Made by a query from CPUS."""
_COUNTERS = (CPU_SECONDS, HELD, BUSY)
_GAUGES = (MEMORY_USED, CPUS)
_LINE = re.compile(
    rf"^({'|'.join((*_COUNTERS, *_GAUGES))})"
    r'\{((?:[^"\\}\n]|"(?:[^"\\\n]|\\.)*")*)\} (\S{1,40})',
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w{1,63})="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_WINDOW = re.compile(r"[1-9][0-9]{0,4}[smhdwy]")
_NUMA = re.compile(r"[0-9]{1,5}", re.ASCII)
_SECRETS = re.compile(r"//[^/@]*@")
_PAGE = 16 << 20
"""Bytes of an exporter's metrics, and of an answer of Prometheus: 5,000 nodes of eight NUMA nodes fit."""
_ANSWER = Bounds(size=_PAGE, values=2_000_000)
_AT_A_TIME = 16
_PATIENCE = 10.0
"""Seconds for one exporter."""
_MOST_CPUS_OF_A_NODE = 1 << 16
_RIGHTS = (
    "you may not get pods/proxy in namespace {0}, which is needed to read the exporters; bind a role "
    "that allows it (kubectl create role -n {0} numazones-usage --verb=get --resource=pods/proxy), or "
    "read usage from Prometheus"
)
_NETWORK = (
    "the exporter's NetworkPolicy must allow the API server: see "
    "docs/guides/monitoring.md#usage-in-the-terminal"
)

Sample = tuple[str, tuple[tuple[str, str], ...]]
"""Name and labels."""
Samples = dict[Sample, float]


class NoUsage(NumazonesError):
    """Nothing is known of what is used; the message says why, and the cure."""


def is_window(text: str) -> bool:
    """Return whether a text is a duration as Prometheus writes it, and nothing else."""
    return _WINDOW.fullmatch(text) is not None


@dataclass(slots=True)
class ExporterUsage:
    """Use as the exporters' pods count it."""

    client: "Client"
    namespace: str = ""
    """Namespace of the exporters; empty: any."""
    _last: Samples = field(init=False, default_factory=dict)

    async def read(self) -> Usage:
        """Return what was used since the reading before; the first time, since the exporters started.

        Raises:
            NoUsage: no exporter runs, or the API server does not let the caller ask them.
            NumazonesError: the API server cannot be asked.
        """
        import asyncio  # noqa: PLC0415 - programs that read dumps need no event loop

        pods = await self.client.list(PODS, namespace=self.namespace, label_selector=EXPORTERS)
        running = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]
        if not running:
            raise NoUsage(
                f"no running pod has the label {EXPORTERS}; install the exporter, or read usage from "
                "Prometheus"
            )
        unknown = _claimed_twice(running)
        turns, samples = asyncio.Semaphore(_AT_A_TIME), Samples()

        async def scrape(pod: Mapping[str, Any]) -> None:
            node = _node_of(pod)
            try:
                async with turns, asyncio.timeout(_PATIENCE):
                    content = await self.client.get_raw(_path_of(pod), limit=_PAGE)
                samples.update(parse(content, node=node))
            except Forbidden as error:
                raise NoUsage(_RIGHTS.format(pod["metadata"].get("namespace"))) from error
            except NumazonesError as error:
                unknown[node] = f"{error}; {_NETWORK}"
            except TimeoutError:
                unknown[node] = f"its exporter did not respond within {_PATIENCE:g} s; {_NETWORK}"

        await asyncio.gather(*(scrape(pod) for pod in running if _node_of(pod) not in unknown))
        nodes = {dict(labels).get("node") for _, labels in samples}
        for node in map(_node_of, running):
            if node not in nodes:
                unknown.setdefault(
                    node, "its exporter does not measure usage: it is too old, or cannot read the data"
                )
        before, self._last = self._last, samples
        return usage_of(_between(before, samples), unknown)


def _node_of(pod: Mapping[str, Any]) -> str:
    return str(pod["spec"].get("nodeName"))


def _claimed_twice(pods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return node → why nothing is known, where pods of several namespaces say they are its exporter."""
    found: dict[str, set[str]] = {}
    for pod in pods:
        found.setdefault(_node_of(pod), set()).add(str(pod["metadata"].get("namespace")))
    return {
        node: f"pods with the label {EXPORTERS} run there in several namespaces: "
        f"{' and '.join(sorted(namespaces))}"
        for node, namespaces in found.items()
        if len(namespaces) > 1
    }


def _path_of(pod: Mapping[str, Any]) -> str:
    name, namespace = pod["metadata"]["name"], pod["metadata"].get("namespace", "")
    ports = (port for one in pod["spec"].get("containers") or () for port in one.get("ports") or ())
    port = next((int(one["containerPort"]) for one in ports if one.get("name") == "metrics"), 9406)
    return PODS.path(f"{name}:{port}", namespace=namespace, subresource="proxy/metrics")


def _between(before: Samples, after: Samples) -> Samples:
    """Return what counters gained; one that began again says what it has."""
    return {
        key: value - (0.0 if before.get(key, 0.0) > value else before.get(key, 0.0))
        if key[0] in _COUNTERS
        else value
        for key, value in after.items()
    }


def parse(content: bytes, *, node: str) -> Samples:
    """Read the metrics that matter of Prometheus' text; those about another node do not count."""
    found: Samples = {}
    for name, labels, value in _LINE.findall(content.decode("utf-8", errors="replace")):
        pairs = {key: _ESCAPE.sub(_unescaped, text) for key, text in _LABEL.findall(labels)}
        if pairs.get("node") == node and (amount := _amount(value)) is not None:
            found[name, tuple(sorted(pairs.items()))] = amount
    return found


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def _amount(value: Any) -> float | None:
    try:
        amount = float(value)
    except (TypeError, ValueError):
        return None
    return amount if 0 <= amount < math.inf else None


_BY_NUMA = "cluster, node, numa_node"
_BY_CONTAINER = "cluster, node, namespace, pod, container"


def _queries(window: str, *, containers: bool) -> Iterator[tuple[str, str]]:
    """Yield the name of a figure, and the query for it."""

    def spent(labels: str) -> str:
        return f"sum by ({_BY_NUMA}, kind) (increase({CPU_SECONDS}{labels}[{window}]))"

    idle = spent('{mode="idle"}')
    yield BUSY_SHARE, f"1 - {idle} / ({spent('')} > 0)"
    yield MEMORY_USED, f"max by ({_BY_NUMA}) ({MEMORY_USED})"
    if containers:
        for name in (HELD, BUSY):
            yield name, f"sum by ({_BY_CONTAINER}) (increase({name}[{window}]))"
        yield CPUS, f"max by ({_BY_CONTAINER}) ({CPUS})"
        yield MOST_CPUS, f"max by ({_BY_CONTAINER}) (max_over_time({CPUS}[{window}]))"


async def prometheus_usage(url: str, window: str, *, containers: bool = True) -> Usage:
    """Return what was used in a window, as a Prometheus has scraped it.

    Raises:
        NoUsage: it does not answer, or has nothing of it.
    """
    import asyncio  # noqa: PLC0415 - programs that read dumps need no event loop

    import aiohttp  # noqa: PLC0415 - few ask for it

    url, samples = url.rstrip("/"), Samples()
    shown = _SECRETS.sub("//", url)
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            for name, query in _queries(window, containers=containers):
                async with session.get(f"{url}/api/v1/query", params={"query": query}) as response:
                    body = await _within_bounds(response.content.iter_chunked(1 << 16), shown)
                samples |= await asyncio.to_thread(_answered, body, name, shown, response.status)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        reason = _SECRETS.sub("//", str(error)) or "timeout"
        raise NoUsage(f"Prometheus at {shown} does not respond: {reason}") from error
    if not samples:
        raise NoUsage(
            f"Prometheus at {shown} has no {CPU_SECONDS} for the last {window}; does it scrape the exporters?"
        )
    clusters = sorted({dict(labels).get("cluster", "") for _, labels in samples})
    if len(clusters) > 1:
        named = visible(", ".join(clusters[:3]) + ("" if len(clusters) <= 3 else ", …"))  # noqa: PLR2004
        raise NoUsage(
            f"Prometheus at {shown} has data from several clusters ({named}); use one that scrapes only "
            "this cluster"
        )
    return usage_of(samples, {})


async def _within_bounds(chunks: Any, url: str) -> bytes:
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > _PAGE:
            raise NoUsage(f"Prometheus at {url} returned more than {_PAGE >> 20} MiB")
    return bytes(body)


def _answered(body: bytes, name: str, url: str, status: int) -> Samples:
    found: Samples = {}
    try:
        document = read_json(body, _ANSWER)
        refusal = str(document.get("error"))[:500] if document.get("status") == "error" else ""
        for one in () if refusal else document["data"]["result"]:
            labels = {str(key): str(text) for key, text in one["metric"].items() if key != "__name__"}
            if (amount := _amount(one["value"][1])) is not None:
                found[name, tuple(sorted(labels.items()))] = amount
    except (AttributeError, KeyError, IndexError, TypeError, NumazonesError) as error:
        raise NoUsage(f"{url} responds (status {status}), but is not a Prometheus server") from error
    if refusal:
        raise NoUsage(f"Prometheus at {url} returned an error: {visible(refusal)}")
    return found


def usage_of(samples: Samples, unknown: Mapping[str, str]) -> Usage:
    """Add up samples by NUMA node and by container."""
    spent: dict[tuple[str, int, str], dict[str, float]] = {}
    shares: dict[tuple[str, int], dict[str, float]] = {}
    memory: dict[tuple[str, int], int] = {}
    by_container: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for (name, pairs), value in samples.items():
        labels = dict(pairs)
        node, numa, kind = labels.get("node", ""), labels.get("numa_node", ""), labels.get("kind", "")
        if name in (CPU_SECONDS, MEMORY_USED, BUSY_SHARE):
            if _NUMA.fullmatch(numa) is None:
                continue
            if name == MEMORY_USED:
                memory[node, int(numa)] = int(value)
            elif name == BUSY_SHARE:
                shares.setdefault((node, int(numa)), {})[kind] = min(1.0, value)
            else:
                spent.setdefault((node, int(numa), kind), {})[labels.get("mode", "")] = value
        else:
            key = node, labels.get("namespace", ""), labels.get("pod", ""), labels.get("container", "")
            by_container.setdefault(key, {})[name] = value
    for (node, number, kind), modes in spent.items():
        if (whole := sum(modes.values())) and "idle" in modes:
            shares.setdefault((node, number), {})[kind] = 1 - modes["idle"] / whole
    numas = {key: NUMAUse(shares.get(key, {}), memory.get(key)) for key in {**shares, **memory}}
    return Usage(numas, tuple(_containers(by_container)), unknown)


def _containers(found: Mapping[tuple[str, str, str, str], Mapping[str, float]]) -> Iterator[MeasuredUse]:
    """Yield the containers that all figures are known for.

    One that has had more CPUs in the window has used at most its busy share of those.
    """
    for (node, namespace, pod, container), values in sorted(found.items()):
        cpus, held, busy = int(values.get(CPUS, 0)), values.get(HELD, 0.0), values.get(BUSY)
        if 0 < cpus <= _MOST_CPUS_OF_A_NODE and held and busy is not None:
            most = max(cpus, int(values.get(MOST_CPUS, 0)))
            used = min(min(1.0, busy / held) * most, cpus)
            yield MeasuredUse(namespace, pod, container, node, cpus, round(used, 3), round(held / most, 1))
