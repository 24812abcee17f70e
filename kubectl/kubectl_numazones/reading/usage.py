"""What CPUs and memory really do: from the exporters, through the API server, or from a Prometheus.

Exporters count from their start (docs/reference/exporter-metrics.md): two readings show what happens now, one
what happened since. Their pods are asked through the API server's proxy, with the user's own rights. What is
read may be anything, so only lines of known metrics with sensible values count, and an exporter is believed
about its own node alone.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from kubectl_numazones.reading.event_loop import run_until_complete
from kubectl_numazones.reading.source import Source, connect
from numazones.advice.right_sizing import MeasuredUse
from numazones.apimachinery.documents import OBJECT, read_json
from numazones.errors import NumazonesError
from numazones.wording import visible
from numazones_client import Forbidden
from numazones_client.resources import PODS

EXPORTERS = "app.kubernetes.io/name=numazones-exporter"
NOW_SECONDS = 3.0
"""Between the two readings that tell what happens now."""
CPU_SECONDS = "numazones_numa_cpu_seconds_total"
MEMORY_USED = "numazones_numa_memory_used_bytes"
CPUS = "numazones_container_exclusive_cpus"
HELD = "numazones_container_exclusive_cpu_seconds_total"
BUSY = "numazones_container_exclusive_cpu_busy_seconds_total"
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
_RIGHTS = (
    "you may not get pods/proxy in namespace {0}, through which exporters are asked; kubectl create role "
    "-n {0} numazones-usage --verb=get --resource=pods/proxy, and a rolebinding; or use --prometheus"
)
_NETWORK = (
    "the exporter's NetworkPolicy must admit the API server: docs/guides/monitoring.md#use-at-the-terminal"
)

Sample = tuple[str, tuple[tuple[str, str], ...]]
"""Name and labels."""
Samples = dict[Sample, float]


class NoUsage(NumazonesError):
    """Nothing is known of what is used; the message says why, and the cure."""


@dataclass(frozen=True, slots=True)
class NUMAUse:
    """What is used of a NUMA node."""

    busy: Mapping[str, float] = field(default_factory=dict)
    """Kind of CPU → share that is busy, where it has any."""
    memory: int | None = None
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What is used, where it is known."""

    numas: Mapping[tuple[str, int], NUMAUse] = field(default_factory=dict)
    containers: tuple[MeasuredUse, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Node → why nothing is known of it."""


@dataclass(frozen=True, slots=True)
class UsageSource:
    """Where to ask."""

    prometheus: str = ""
    window: str = ""
    """Of a Prometheus: over how long."""
    seconds: float = NOW_SECONDS
    """Of exporters: between two readings; 0: since they started."""


def prometheus_options(window: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--prometheus`` and ``--window``; the command gets a URL and a window, by default ``window``."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        command = click.option(
            "--window",
            default=window,
            show_default=True,
            metavar="DURATION",
            help="Over how long a Prometheus looks back.",
            callback=_checked_window,
        )(command)
        return click.option(
            "--prometheus",
            default="",
            metavar="URL",
            help="Ask this Prometheus instead of the exporters' pods.",
        )(command)

    return add


def _checked_window(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if _WINDOW.fullmatch(value) is None:
        raise click.BadParameter(f"{value!r:.40} is no duration of Prometheus; write for example 5m or 1w")
    return value


def read_usage(source: Source, where: UsageSource) -> Usage:
    """Read what is used.

    Raises:
        NoUsage: a dump, or a Prometheus, has nothing of it.
        NumazonesError: the API server cannot be asked.
    """
    if where.prometheus:
        return run_until_complete(_of_prometheus(where.prometheus.rstrip("/"), where.window))
    if source.files:
        raise NoUsage("a dump says nothing of what is used; leave -f away, or name a --prometheus")
    return run_until_complete(_of_exporters(source, where.seconds))


async def _of_exporters(source: Source, seconds: float) -> Usage:
    import asyncio  # noqa: PLC0415 - dumps need no event loop

    unknown: dict[str, str] = {}
    async with await connect(source) as client:
        pods = await client.list(PODS, label_selector=EXPORTERS)
        running = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]
        if not running:
            raise NoUsage(f"no pod with label {EXPORTERS} runs; install the exporter, or use --prometheus")

        async def scrape(pod: Mapping[str, Any]) -> Samples:
            node = str(pod["spec"].get("nodeName"))
            try:
                return parse(await client.get_raw(_path_of(pod)), node=node)
            except Forbidden as error:
                raise NoUsage(_RIGHTS.format(pod["metadata"].get("namespace"))) from error
            except NumazonesError as error:
                unknown[node] = f"{error}; {_NETWORK}"
                return {}

        first = await asyncio.gather(*map(scrape, running))
        second = first
        if seconds:
            await asyncio.sleep(seconds)
            second = await asyncio.gather(*map(scrape, running))
    samples: Samples = {}
    for before, after in zip(first, second, strict=True):
        samples |= _between(before, after) if seconds else after
    nodes = {dict(labels).get("node") for _, labels in samples}
    for pod in running:
        if (node := str(pod["spec"].get("nodeName"))) not in nodes:
            unknown.setdefault(node, "its exporter does not measure use: it is older, or reads no /proc/stat")
    return usage_of(samples, unknown)


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


async def _of_prometheus(url: str, window: str) -> Usage:
    import aiohttp  # noqa: PLC0415 - few ask for it

    samples: Samples = {}
    queries = {name: f"increase({name}[{window}])" for name in _COUNTERS} | {name: name for name in _GAUGES}
    timeout = aiohttp.ClientTimeout(total=60)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session:
            for name, query in queries.items():
                async with session.get(f"{url}/api/v1/query", params={"query": query}) as response:
                    body = await response.read()
                    samples |= _answered(body, name, url, response.status)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise NoUsage(f"Prometheus at {url} does not answer: {str(error) or 'timeout'}") from error
    if not samples:
        raise NoUsage(
            f"Prometheus at {url} has no {CPU_SECONDS} of the last {window}; does it scrape the exporters?"
        )
    return usage_of(samples, {})


def _answered(body: bytes, name: str, url: str, status: int) -> Samples:
    found: Samples = {}
    try:
        document = read_json(body, OBJECT)
        refusal = str(document.get("error"))[:500] if document.get("status") == "error" else ""
        for one in () if refusal else document["data"]["result"]:
            labels = {str(key): str(text) for key, text in one["metric"].items() if key != "__name__"}
            if (amount := _amount(one["value"][1])) is not None:
                found[name, tuple(sorted(labels.items()))] = amount
    except (AttributeError, KeyError, IndexError, TypeError, NumazonesError) as error:
        raise NoUsage(f"what {url} answers (status {status}) is no answer of Prometheus") from error
    if refusal:
        raise NoUsage(f"Prometheus at {url} answers: {visible(refusal)}")
    return found


def usage_of(samples: Samples, unknown: Mapping[str, str]) -> Usage:
    """Add up samples by NUMA node and by container."""
    spent: dict[tuple[str, int], dict[str, list[float]]] = {}
    memory: dict[tuple[str, int], int] = {}
    by_container: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for (name, pairs), value in samples.items():
        labels = dict(pairs)
        node, numa = labels.get("node", ""), labels.get("numa_node", "")
        if name in (CPU_SECONDS, MEMORY_USED):
            if not (numa.isascii() and numa.isdigit() and len(numa) <= 5):  # noqa: PLR2004 - as the kernel's ids
                continue
            if name == MEMORY_USED:
                memory[node, int(numa)] = int(value)
            else:
                total = spent.setdefault((node, int(numa)), {}).setdefault(labels.get("kind", ""), [0.0, 0.0])
                total[0] += value
                total[1] += 0.0 if labels.get("mode") == "idle" else value
        else:
            key = node, labels.get("namespace", ""), labels.get("pod", ""), labels.get("container", "")
            values = by_container.setdefault(key, {})  # exporters that followed each other add up
            values[name] = value if name == CPUS else values.get(name, 0.0) + value
    numas = {
        key: NUMAUse(
            {kind: busy / whole for kind, (whole, busy) in spent.get(key, {}).items() if whole},
            memory.get(key),
        )
        for key in {*spent, *memory}
    }
    return Usage(numas, tuple(_containers(by_container)), unknown)


def _containers(found: Mapping[tuple[str, str, str, str], Mapping[str, float]]) -> Iterable[MeasuredUse]:
    for (node, namespace, pod, container), values in sorted(found.items()):
        cpus, held = int(values.get(CPUS, 0)), values.get(HELD, 0.0)
        if cpus and held:
            busy = min(1.0, values.get(BUSY, 0.0) / held)
            yield MeasuredUse(
                namespace, pod, container, node, cpus, round(busy * cpus, 3), round(held / cpus, 1)
            )
