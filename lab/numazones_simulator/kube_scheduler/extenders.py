"""Asks an HTTP extender, byte for byte as kube-scheduler does, and reads its answers as Go would.

Held against what a real kube-scheduler 1.36 sent and said (specs/scheduler-extender.md, section 2): one POST
per call, keys of Go, a status of 200 or an error, the first JSON value of the answer, keys in any case. The
texts of errors are Go's, since people meet them in PodScheduled.
"""

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from numazones.errors import NumazonesError
from numazones_simulator.kube_scheduler.configuration import ExtenderConfig

_OK = 200
_IDLE_SECONDS = 90.0
_HEADERS = {
    "User-Agent": "Go-http-client/1.1",
    "Content-Type": "application/json",
    "Accept-Encoding": "gzip",
}

Body = dict[str, Any]


class ExtenderFailed(NumazonesError):
    """A call failed, or its answer says so; the text is kube-scheduler's."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """The answer of filter."""

    names: list[str]
    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]


class ExtenderClient:
    """An extender; the connections to it are kept as Go's client keeps them. Close it at the end."""

    def __init__(self, config: ExtenderConfig) -> None:
        self.config = config
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS, ssl=_tls(config)),
            headers=_HEADERS,
            skip_auto_headers=("Accept",),
            timeout=aiohttp.ClientTimeout(total=config.http_timeout),
            trust_env=True,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    def is_interested(self, pod: Mapping[str, Any]) -> bool:
        """Return whether a pod is the extender's business: all are, or those with a managed resource."""
        managed = {resource.name for resource in self.config.managed_resources}
        spec = pod["spec"]
        return not managed or any(
            managed & (container.get("resources") or {}).get(part, {}).keys()
            for container in (*spec["containers"], *(spec.get("initContainers") or ()))
            for part in ("requests", "limits")
        )

    async def filter(self, pod: Body, nodes: Sequence[Body]) -> Filtered:
        """Ask which nodes pass.

        Raises:
            ExtenderFailed: the call failed, or the extender says so.
        """
        answer = await self._post("filter", self.config.filter_verb, self._about(pod, nodes))
        if error := _field(answer, "Error"):
            raise ExtenderFailed(str(error))
        names = self._names_of(answer, [node["metadata"]["name"] for node in nodes])
        return Filtered(
            names, _field(answer, "FailedNodes") or {}, _field(answer, "FailedAndUnresolvableNodes") or {}
        )

    def _names_of(self, answer: Any, asked: Sequence[str]) -> list[str]:
        names = _field(answer, "NodeNames")
        if self.config.node_cache_capable and names is not None:
            for name in names:
                if name not in asked:
                    raise ExtenderFailed(
                        f'extender "{self.config.url_prefix}" claims a filtered node "{name}" which is not '
                        "found in the input node list"
                    )
            return list(names)
        items = _field(_field(answer, "Nodes") or {}, "items") or ()
        return [node["metadata"]["name"] for node in items]

    async def prioritize(self, pod: Body, nodes: Sequence[Body]) -> list[tuple[str, int]]:
        """Ask for scores; return (node, score), unweighted.

        Raises:
            ExtenderFailed: the call failed, or a score is no integer.
        """
        answer = await self._post("prioritize", self.config.prioritize_verb, self._about(pod, nodes))
        scores = [(_field(item, "Host") or "", _field(item, "Score") or 0) for item in answer or ()]
        for _, score in scores:
            if not isinstance(score, int):
                raise ExtenderFailed(
                    f"json: cannot unmarshal number {score} into Go struct field HostPriority.Score of "
                    "type int64"
                )
        return scores

    async def preempt(self, pod: Body, victims: Mapping[str, Sequence[Body]]) -> dict[str, list[str]]:
        """Ask which nodes remain as candidates; return node → UIDs of the pods to evict.

        Raises:
            ExtenderFailed: the call failed, or a node has no victims.
        """
        whole, meta = None, None
        if self.config.node_cache_capable:
            meta = {
                node: {"Pods": [{"UID": pod["metadata"]["uid"]} for pod in pods], "NumPDBViolations": 0}
                for node, pods in victims.items()
            }
        else:
            whole = {
                node: {"Pods": [bare(pod) for pod in pods], "NumPDBViolations": 0}
                for node, pods in victims.items()
            }
        request = {"Pod": bare(pod), "NodeNameToVictims": whole, "NodeNameToMetaVictims": meta}
        answer = await self._post("preempt", self.config.preempt_verb, request)
        found = _field(answer, "NodeNameToMetaVictims") or {}
        return {
            node: [_field(pod, "UID") for pod in _field(one, "Pods") or ()] for node, one in found.items()
        }

    async def bind(self, pod: Body, node: str) -> None:
        """Have a pod bound.

        Raises:
            ExtenderFailed: the call failed, or the extender says so.
        """
        metadata = pod["metadata"]
        request = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        answer = await self._post("bind", self.config.bind_verb, request)
        if error := _field(answer, "Error"):
            raise ExtenderFailed(str(error))

    def _about(self, pod: Body, nodes: Sequence[Body]) -> Body:
        """Return the request of filter and prioritize."""
        if self.config.node_cache_capable:
            return {
                "Pod": bare(pod),
                "Nodes": None,
                "NodeNames": [node["metadata"]["name"] for node in nodes],
            }
        return {
            "Pod": bare(pod),
            "Nodes": {"metadata": {}, "items": [bare(node) for node in nodes]},
            "NodeNames": None,
        }

    async def _post(self, action: str, verb: str, request: Body) -> Any:
        url = f"{self.config.url_prefix.rstrip('/')}/{verb}"
        data = json.dumps(request, separators=(",", ":"), ensure_ascii=False).encode()
        try:
            name = self.config.tls_config.server_name or None
            async with self._session.post(url, data=data, server_hostname=name) as answer:
                if answer.status != _OK:
                    raise ExtenderFailed(f"failed {action} with extender at URL {url}, code {answer.status}")
                text = (await answer.read()).decode(errors="replace").lstrip()
        except TimeoutError:
            raise ExtenderFailed(
                f'Post "{url}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            raise ExtenderFailed(f'Post "{url}": {_reason(url, error)}') from error
        return _decoded(text)


def bare(body: Mapping[str, Any]) -> Body:
    """Return an object as Go writes it within another one: without kind, apiVersion, managedFields."""
    kept = {key: value for key, value in body.items() if key not in {"kind", "apiVersion"}}
    return {**kept, "metadata": {k: v for k, v in body["metadata"].items() if k != "managedFields"}}


def _tls(config: ExtenderConfig) -> ssl.SSLContext | bool:
    tls = config.tls_config
    if not config.url_prefix.startswith("https:"):
        return True
    context = ssl.create_default_context(cafile=tls.ca_file or None)
    if not tls.ca_file and (tls.insecure or config.enable_https):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if tls.cert_file:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    return context


def _reason(url: str, error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        parts = urlsplit(url)
        cause = (error.os_error.strerror or "").lower()
        if isinstance(error.os_error, ConnectionRefusedError):
            cause = "connection refused"
        return f"dial tcp {parts.hostname}:{parts.port or 80}: connect: {cause}"
    return "EOF" if isinstance(error, aiohttp.ServerDisconnectedError) else str(error)


def _decoded(text: str) -> Any:
    """Return the first JSON value of an answer, as Go's decoder does.

    Raises:
        ExtenderFailed: there is none.
    """
    if not text:
        raise ExtenderFailed("EOF")
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text):
            raise ExtenderFailed("unexpected EOF") from error
        raise ExtenderFailed(
            f"invalid character '{text[error.pos]}' looking for beginning of value"
        ) from error
    return value


def _field(body: Any, name: str) -> Any:
    """Return a field of an object, whatever the case of its key."""
    if not isinstance(body, dict):
        raise ExtenderFailed(f"json: cannot unmarshal {type(body).__name__} into Go value")
    if name in body:
        return body[name]
    return next((value for key, value in body.items() if key.lower() == name.lower()), None)


POINTS = 10
"""What a score of an extender is multiplied by, beside its weight (MaxNodeScore / MaxExtenderPriority)."""


async def scores_of(extenders: Sequence[ExtenderClient], pod: Body, nodes: Sequence[Body]) -> dict[str, int]:
    """Ask all extenders at once; return node → weighted points. Who fails gives none."""
    asked = [one for one in extenders if one.config.prioritize_verb and one.is_interested(pod)]
    answers = await asyncio.gather(*(one.prioritize(pod, nodes) for one in asked), return_exceptions=True)
    points: dict[str, int] = {}
    for one, answer in zip(asked, answers, strict=True):
        if isinstance(answer, ExtenderFailed):
            continue
        if isinstance(answer, BaseException):
            raise answer
        for host, score in answer:
            points[host] = points.get(host, 0) + score * one.config.weight * POINTS
    return points
