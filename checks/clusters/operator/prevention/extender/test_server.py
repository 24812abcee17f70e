"""The extender's server: who may call it, what it refuses, and the whole of it in a running operator."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from checks.clusters.operator.closed_loop import closed_loop, metrics
from numazones_client.resources import PODS
from numazones_operator.prevention.extender import entrance
from numazones_operator.prevention.extender import server as server_module
from numazones_operator.prevention.extender.certificates import Certificates
from numazones_operator.prevention.extender.extender import MAX_NAMES
from numazones_operator.prevention.extender.metrics import ExtenderMetrics
from numazones_operator.prevention.extender.server import ExtenderServer
from numazones_program.settings import InvalidSetting
from numazones_simulator import node_kinds
from tests.operator.prevention.extender.authority import Authority
from tests.operator.prevention.extender.cluster import Cluster
from tests.waiting import eventually


@asynccontextmanager
async def serving(cluster: Cluster, certificates: Certificates | None = None) -> AsyncIterator[int]:
    server = ExtenderServer(
        cluster.extender, metrics=ExtenderMetrics(CollectorRegistry()), certificates=certificates
    )
    async with server.serve("127.0.0.1:0") as port:
        yield port


async def post(url: str, **options: Any) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.post(url, **options) as answer:
        return answer.status, await answer.text()


def bind_body(name: str = "p", uid: str = "uid-p") -> dict[str, str]:
    return {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": "a"}


async def test_other_addresses_than_loopback_need_client_certificates() -> None:
    server = ExtenderServer(Cluster("a").extender, metrics=ExtenderMetrics(CollectorRegistry()))
    for address in (":0", "0.0.0.0:0", "[::]:0", "host.example:0"):
        with pytest.raises(InvalidSetting, match="--extender-client-ca"):
            async with server.serve(address):
                pass


async def test_a_page_in_a_browser_cannot_bind_pods() -> None:
    cluster = Cluster("a")
    cluster.pod("p")
    async with serving(cluster) as port:
        status, text = await post(
            f"http://127.0.0.1:{port}/bind", json=bind_body(), headers={"Origin": "http://site.example"}
        )
    assert (status, cluster.server.bindings) == (403, [])
    assert "kube-scheduler only" in text


async def test_a_request_that_makes_no_sense_gets_a_sentence() -> None:
    async with serving(Cluster("a")) as port:
        status, text = await post(f"http://127.0.0.1:{port}/filter", data=b'{"Pod": {}, "NodeNames": 5}')
    assert status == 400
    assert "$.NodeNames" in text


async def test_a_request_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_BODIES", 1000)
    async with serving(Cluster("a")) as port:
        status, text = await post(f"http://127.0.0.1:{port}/filter", data=b" " * 2000)
    assert status == 503
    assert "exceed the limit of 1000 bytes" in text


async def test_endless_bodies_are_kept_up_to_a_total_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "MAX_BODIES", 3 << 20)
    cluster = Cluster("a")
    cluster.pod("p")
    head = b"POST /filter HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (60 << 20)
    async with serving(cluster) as port, AsyncExitStack() as ended:
        answers = []
        for _ in range(4):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            ended.callback(writer.close)
            writer.write(head + b" " * (1 << 20))
            answers.append(asyncio.create_task(reader.readline()))
        done, waiting = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == [b"HTTP/1.1 503 Service Unavailable\r\n"]
        assert len(waiting) == 3
        await ended.aclose()

        async def bound() -> bool:
            return (await post(f"http://127.0.0.1:{port}/bind", json=bind_body()))[0] == 200

        assert await eventually(bound)


async def test_late_body_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_READING", 0.05)
    async with serving(Cluster("a")) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /filter HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
        assert await reader.readline() == b"HTTP/1.1 408 Request Timeout\r\n"
        writer.close()


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_excess_node_names_are_rejected_early(verb: str) -> None:
    cluster = Cluster("a")
    names = [str(number) for number in range(MAX_NAMES + 1)]
    body = {"Pod": cluster.pod("p", cpu=2), "NodeNames": names}
    async with serving(cluster) as port:
        status, text = await post(f"http://127.0.0.1:{port}/{verb}", json=body)
    assert status == 503
    assert f"exceed the limit of {MAX_NAMES} node names" in text


async def test_body_of_many_small_values_is_rejected_unread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "MAX_VALUES", 1000)
    async with serving(Cluster("a")) as port:
        for text in (b"[],", b"[", b"{},", b"1,"):
            status, said = await post(f"http://127.0.0.1:{port}/filter", data=text * 1001)
            assert (status, "1000 values" in said) == (503, True)


async def test_idle_connections_outlive_the_schedulers() -> None:
    assert server_module.KEEP_ALIVE > 90


@pytest.fixture
def authority() -> Authority:
    return Authority.make("schedulers")


async def test_only_a_scheduler_with_the_cas_certificate_gets_answers(
    tmp_path: Path, authority: Authority
) -> None:
    cluster = Cluster("a")
    cluster.pod("p")
    stranger = Authority.make("strangers")
    ca = authority.write(tmp_path)
    certificate, key = authority.issue(tmp_path, "extender")
    clients = {
        "none": None,
        "stranger": stranger.issue(tmp_path, "stranger"),
        "scheduler": authority.issue(tmp_path, "scheduler"),
    }
    answers: dict[str, tuple[int, str] | None] = {}
    async with serving(cluster, Certificates(certificate, key, ca)) as port:
        for name, files in clients.items():
            context = ssl.create_default_context(cafile=str(ca))
            if files is not None:
                context.load_cert_chain(*files)
            try:
                answers[name] = await post(f"https://127.0.0.1:{port}/bind", json=bind_body(), ssl=context)
            except aiohttp.ClientError:
                answers[name] = None
    assert answers == {"none": None, "stranger": None, "scheduler": (200, '{"Error":""}')}


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "half a hello"])
async def test_few_connections_without_certificate_are_kept(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    cluster = Cluster("a")
    cluster.pod("p")
    ca = authority.write(tmp_path)
    context = ssl.create_default_context(cafile=str(ca))
    context.load_cert_chain(*authority.issue(tmp_path, "scheduler"))
    certificates = Certificates(*authority.issue(tmp_path, "extender"), ca)
    connect, now, most = entrance._connect, 0, 0

    async def counted(*arguments: Any) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        try:
            await connect(*arguments)
        finally:
            now -= 1

    monkeypatch.setattr(entrance, "_connect", counted)
    with ExitStack() as held:
        async with serving(cluster, certificates) as port:
            clients = [
                held.enter_context(socket.create_connection(("127.0.0.1", port)))
                for _ in range(entrance.MAX_HANDSHAKES + 60)
            ]  # all at once: the server has no turn meanwhile
            for client in clients:
                client.sendall(sent)
            answer = await post(f"https://127.0.0.1:{port}/bind", json=bind_body(), ssl=context)
            assert answer == (200, '{"Error":""}')
            assert entrance.MAX_HANDSHAKES <= most <= entrance.MAX_HANDSHAKES + 3
        assert now == 0


def test_certificates_that_cannot_be_used_are_named_at_the_start(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("tls.crt", "tls.key", "ca.crt")]
    for file in files:
        file.write_text("no PEM")
    with pytest.raises(InvalidSetting, match=r"tls\.crt"):
        Certificates(*files).context()


async def test_a_replica_that_only_answers_the_scheduler(tmp_path: Path) -> None:
    """As in the scheduler's pod: it mirrors, answers and binds, and writes nothing else."""
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node(name, "10.0.0.1") for name in ("a", "b")])
        operator = await loop.start_operator(leads=False, lead=False, extender_address="127.0.0.1:0")
        pod = await loop.create_pod("p", cpu=20)
        pod.pop("kind"), pod.pop("apiVersion")
        url = f"http://127.0.0.1:{operator.extender_port}"
        async with aiohttp.ClientSession() as session:

            async def ask(verb: str, body: dict[str, Any]) -> Any:
                async with session.post(f"{url}/{verb}", json=body) as answer:
                    return await answer.json()

            request = {"Pod": pod, "Nodes": None, "NodeNames": ["a", "b"]}
            assert sorted((await ask("filter", request))["NodeNames"]) == ["a", "b"]
            assert {item["Score"] for item in await ask("prioritize", request)} == {10}
            assert await ask("bind", bind_body(uid=pod["metadata"]["uid"])) == {"Error": ""}

        async def runs() -> bool:
            now = await loop.client.get(PODS, "p", namespace="default")
            return bool(now["spec"].get("nodeName") == "a" and now["status"]["phase"] == "Running")

        await eventually(runs)
        assert await loop.predictions() == {}
        counted = await metrics(operator)
        assert counted['numazones_extender_request_duration_seconds_count{verb="bind"}'] == 1
        assert counted["numazones_operator_leader"] == 0
