"""Use of CPUs that are held: read from a Prometheus, shown by top, who and idle, taken by size and whatif."""

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlparse

import click
import pytest
from click.testing import Result

from kubectl_numazones.documents import DOCUMENTS
from numazones_client.usage import (
    BUSY,
    BUSY_SHARE,
    CPU_SECONDS,
    CPUS,
    HELD,
    MEMORY_USED,
    MOST_CPUS,
    ExporterUsage,
    NoUsage,
    parse,
    usage_of,
)
from tests.kubectl.documented import differences

Run = Callable[..., Result]
ONE = {"node": "worker-1", "namespace": "team", "pod": "one", "container": "main"}
TWO = ONE | {"pod": "two"}
SHARED = {"node": "worker-1", "numa_node": "0", "kind": "shared"}
EXCLUSIVE = SHARED | {"kind": "exclusive"}
FIGURES = {"1 - sum": BUSY_SHARE, "max_over_time": MOST_CPUS} | {
    name: name for name in (MEMORY_USED, CPUS, HELD, BUSY)
}
"""Part of a query → the figure it is for; the first part found counts."""


class FakePrometheus(BaseHTTPRequestHandler):
    """Answers queries with what a test has put in."""

    series: ClassVar[dict[str, list[tuple[dict[str, str], str]]]] = {}
    instead: ClassVar[bytes] = b""
    queries: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        (query,) = parse_qs(urlparse(self.path).query)["query"]
        self.queries.append(query)
        name = next(name for part, name in FIGURES.items() if part in query)
        found: list[dict[str, Any]] = [
            {"metric": labels, "value": [0, value]} for labels, value in self.series.get(name, ())
        ]
        body = self.instead or json.dumps({"status": "success", "data": {"result": found}}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def prometheus() -> Iterator[list[str]]:
    """Serve what an exporter of the small cluster's first node has counted in a day; yield the options."""
    FakePrometheus.instead, FakePrometheus.queries = b"", []
    FakePrometheus.series = {
        BUSY_SHARE: [(EXCLUSIVE, "0.2"), (SHARED, "0.5")],
        MEMORY_USED: [({"node": "worker-1", "numa_node": "0"}, "1073741824")],
        CPUS: [(ONE, "3"), (TWO, "6")],
        MOST_CPUS: [(ONE, "3"), (TWO, "6")],
        HELD: [(ONE, "3000"), (TWO, "6000")],
        BUSY: [(ONE, "2700"), (TWO, "60")],
    }
    with HTTPServer(("127.0.0.1", 0), FakePrometheus) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield ["--prometheus", f"http://127.0.0.1:{server.server_port}/", "--window", "1d"]
        server.shutdown()
        thread.join()


def test_top_shows_held_used_and_idle_cpus(run: Run, dump: Path, prometheus: list[str]) -> None:
    head, first, second, *_ = run("top", *prometheus, "-f", dump).output.splitlines()
    assert head.split() == ["NODE", "NUMA", "CPU", "USED", "IDLE", "SHARED", "RESERVED", "MEM-USED", "MEMORY"]
    held = int(first.split()[2].partition("/")[0])
    assert first.split()[3:5] == [f"{held * 0.2:.1f}", f"{held * 0.8:.1f}"]
    assert first.split()[-4:-1] == ["50%", "-", "1Gi"]
    assert second.split()[3:5] == ["-", "-"]


def test_who_shows_what_each_pod_uses_of_its_cpus(run: Run, dump: Path, prometheus: list[str]) -> None:
    head, *rows = run("who", "worker-1", *prometheus, "-f", dump).output.splitlines()
    assert head.split()[-2:] == ["USED", "IDLE"]
    used = {row.split()[1]: row.split()[-2:] for row in rows if row.split()[-1] != "-"}
    assert used == {"team/one": ["2.7", "0.3"], "team/two": ["0.1", "5.9"]}
    document = json.loads(run("who", "worker-1", *prometheus, "-o", "json", "-f", dump).output)
    assert [(use["pod"], use["used"]) for use in document["usage"]] == [("one", 2.7), ("two", 0.06)]


def test_idle_names_the_request_and_what_fits_then(run: Run, dump: Path, prometheus: list[str]) -> None:
    output = run("idle", "-A", *prometheus, "--shape", "cpu=5", "-f", dump).output
    head, row, _, summary = output.splitlines()
    assert head.split()[-4:] == ["OVER", "REQUEST", "BACK", "+cpu=5"]
    assert row.split() == ["team", "two", "main", "worker-1", "6", "1%", "16m", "cpu=1", "5", "1"]
    assert summary == (
        "With these requests, 5 CPUs would be free: 1 more pod of cpu=5 would fit (1 on worker-1)"
    )


def test_documents_of_use_have_the_fields_that_are_described(
    run: Run, dump: Path, prometheus: list[str]
) -> None:
    for name, arguments in (("idle", ["-A"]), ("top", []), ("who", ["worker-1"])):
        document = json.loads(run(name, *arguments, *prometheus, "-o", "json", "-f", dump).output)
        assert not list(differences(document, DOCUMENTS[name]))


def test_idle_judges_nothing_that_was_measured_too_shortly(
    run: Run, dump: Path, prometheus: list[str]
) -> None:
    output = run("idle", "-A", *prometheus, "--measured", "1h", "-f", dump).output
    assert output == ("No exclusive CPUs are idle\nleft out 2 containers measured for less than 1h\n")


def test_idle_is_about_one_namespace_without_all_namespaces(
    run: Run, dump: Path, prometheus: list[str]
) -> None:
    assert run("idle", *prometheus, "-f", dump).output == (
        "No exclusive CPUs are idle in namespace default (1 in other namespaces: use -A)\n"
    )


def test_size_takes_the_clusters_pods_as_they_use_cpus(run: Run, dump: Path, prometheus: list[str]) -> None:
    output = run("size", *prometheus, "--node", "worker-1", "-f", dump).output
    assert output.startswith("2 pods on 1 machine")
    before = int(output.split("CPUS LEFT")[1].splitlines()[1].split()[-3])
    asked = run("size", "1xcpu=3,memory=1Gi", "1xcpu=6,memory=1Gi", "--node", "worker-1", "-f", dump).output
    assert before - int(asked.split("CPUS LEFT")[1].splitlines()[1].split()[-3]) == 5


def test_whatif_takes_the_clusters_pods_as_they_use_cpus(run: Run, dump: Path, prometheus: list[str]) -> None:
    arguments = (
        "whatif",
        "--set",
        "topologyManagerPolicy=best-effort",
        "--runs",
        "2",
        "-o",
        "json",
        "-f",
        dump,
    )
    free = [
        json.loads(run(*arguments, *more).output)["variants"][0]["measures"]["free CPUs"]["mean"]
        for more in ((), prometheus)
    ]
    assert free[1] == free[0] + 5


def test_dump_alone_says_nothing_of_use(run: Run, dump: Path) -> None:
    failed = run("top", "--usage", "-f", dump).exception
    assert isinstance(failed, NoUsage)
    assert "omit -f, or use --prometheus" in str(failed)


@pytest.mark.parametrize(
    "answer", [b"<html>", b"[]", b'{"data": 1}', b'{"data": {"result": [{}]}}', b"\xff" * 9]
)
def test_what_is_no_prometheus_is_named(run: Run, dump: Path, prometheus: list[str], answer: bytes) -> None:
    FakePrometheus.instead = answer
    failed = run("top", *prometheus, "-f", dump).exception
    assert isinstance(failed, NoUsage)
    assert "but is not a Prometheus server" in str(failed)


def test_error_of_prometheus_is_shown(run: Run, dump: Path, prometheus: list[str]) -> None:
    FakePrometheus.instead = b'{"status": "error", "error": "too many samples"}'
    assert "returned an error: too many samples" in str(run("top", *prometheus, "-f", dump).exception)


def test_report_carries_what_is_used_of_each_numa_node(run: Run, dump: Path, prometheus: list[str]) -> None:
    page = run("report", "-o", "-", "--no-plans", *prometheus, "-f", dump).output
    assert re.findall(r'"used": ?([0-9.]+)', page) == ["0.6"]
    assert '"used":' not in run("report", "-o", "-", "--no-plans", "-f", dump).output


def test_prometheus_without_our_metrics_is_named(run: Run, dump: Path, prometheus: list[str]) -> None:
    FakePrometheus.series = {}
    failed = run("idle", *prometheus, "-f", dump).exception
    assert isinstance(failed, NoUsage)
    assert "does it scrape the exporters" in str(failed)


def test_prometheus_that_does_not_answer_is_named(run: Run, dump: Path) -> None:
    failed = run("top", "--prometheus", "http://127.0.0.1:9", "-f", dump).exception
    assert isinstance(failed, NoUsage)
    assert "does not respond" in str(failed)


def test_window_cannot_smuggle_a_query(run: Run, dump: Path) -> None:
    failed = run("top", "--prometheus", "http://x", "--window", "1d])) or (up", "-f", dump).exception
    assert isinstance(failed, click.BadParameter)
    assert "not a Prometheus duration" in str(failed)


def test_exporters_text_is_read_without_lies_about_other_nodes() -> None:
    text = (
        f'# HELP {CPUS} x\n{CPUS}{{node="n",namespace="a",pod="p\\"q\\\\",container="}}"}} 2.0\n'
        f'{CPUS}{{node="m",namespace="a",pod="p",container="c"}} 2.0\n'
        f'{CPUS}{{node="n",namespace="a",pod="b",container="c"}} NaN\n'
        f'{CPUS}{{node="n",namespace="a",pod="b",container="d"}} -1\n'
        f'{CPUS}{{node="n",namespace="a",pod="b",container="e"}} 1e999\n'
        f'{CPUS}{{node="n" 5\n{CPUS} 7\nother{{node="n"}} 1\n'
    )
    labels = (("container", "}"), ("namespace", "a"), ("node", "n"), ("pod", 'p"q\\'))
    assert parse(text.encode() + b"\xff\x00", node="n") == {(CPUS, labels): 2.0}


def test_figures_without_numa_node_or_holdings_are_omitted() -> None:
    odd = (("kind", "shared"), ("mode", "user"), ("node", "n"), ("numa_node", "x\u0661"))
    name = tuple(sorted((ONE | {"pod": "zero"}).items()))
    assert usage_of({(CPU_SECONDS, odd): 1.0, (CPUS, name): 0.0, (HELD, name): 1.0}, {}).numas == {}
    assert usage_of({(CPUS, name): 4.0, (BUSY, name): 1.0}, {}).containers == ()


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", None])
def test_container_with_missing_figures_is_not_called_idle(
    run: Run, dump: Path, prometheus: list[str], value: str | None
) -> None:
    FakePrometheus.series[BUSY] = [] if value is None else [(TWO, value)]
    assert run("idle", "-A", *prometheus, "-f", dump).output == "No exclusive CPUs are idle\n"


def test_container_that_had_more_cpus_counts_as_before(run: Run, dump: Path, prometheus: list[str]) -> None:
    FakePrometheus.series |= {HELD: [(TWO, "60000")], BUSY: [(TWO, "3000")], MOST_CPUS: [(TWO, "32")]}
    output = run("idle", "-A", *prometheus, "-f", dump).output
    assert output == "No exclusive CPUs are idle\n"  # 5 % of up to 32 CPUs are 1.6, more than 10 % of 6


def test_prometheus_with_several_clusters_is_not_mixed_up(
    run: Run, dump: Path, prometheus: list[str]
) -> None:
    FakePrometheus.series[MEMORY_USED] += [({"node": "worker-1", "numa_node": "0", "cluster": "b"}, "1")]
    failed = run("top", *prometheus, "-f", dump).exception
    assert isinstance(failed, NoUsage)
    assert "has data from several clusters" in str(failed)


def test_password_of_a_prometheus_is_not_shown(run: Run, dump: Path) -> None:
    failed = run("top", "--prometheus", "http://me:secret@127.0.0.1:9", "-f", dump).exception
    assert "http://127.0.0.1:9" in str(failed)
    assert "secret" not in str(failed)


def test_share_without_its_idle_part_is_unknown() -> None:
    pairs = tuple(sorted((SHARED | {"mode": "user"}).items()))
    assert usage_of({(CPU_SECONDS, pairs): 5.0}, {}).numas == {}


def test_answer_without_end_is_not_read_to_the_end(run: Run, dump: Path, prometheus: list[str]) -> None:
    FakePrometheus.instead = b" " * (17 << 20)
    failed = run("top", *prometheus, "-f", dump).exception
    assert isinstance(failed, NoUsage)
    assert "more than 16 MiB" in str(failed)


class FakeAPI:
    """Answers for pods that say they are exporters."""

    def __init__(self, *namespaces: str) -> None:
        self.namespaces = namespaces
        self.paths: list[str] = []
        self.metrics = f'{MEMORY_USED}{{node="n",numa_node="0"}} 7\n'.encode()

    async def list(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return [
            {
                "metadata": {"name": "exporter", "namespace": namespace},
                "spec": {"nodeName": "n"},
                "status": {"phase": "Running"},
            }
            for namespace in self.namespaces
        ]

    async def get_raw(self, path: str, *, limit: int) -> bytes:
        assert limit == 16 << 20
        self.paths.append(path)
        return self.metrics


async def test_node_that_pods_of_two_namespaces_claim_is_unknown() -> None:
    api = FakeAPI("numazones-system", "tenant")
    found = await ExporterUsage(api).read()  # type: ignore[arg-type]
    assert api.paths == []
    assert found.numas == {}
    assert "several namespaces: numazones-system and tenant" in found.unknown["n"]


async def test_exporter_that_hangs_leaves_only_its_node_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numazones_client.usage._PATIENCE", 0.01)
    api = FakeAPI("numazones-system")

    async def hang(_path: str, *, limit: int) -> bytes:
        await asyncio.sleep(limit)
        return b""

    api.get_raw = hang  # type: ignore[assignment]
    found = await ExporterUsage(api).read()  # type: ignore[arg-type]
    assert "did not respond within" in found.unknown["n"]
