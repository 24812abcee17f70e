"""The extender for a scheduler that is a static pod: as shipped, with certificates of the guide."""

import asyncio
import os
import re
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from click.testing import CliRunner

from checks.clusters.operator.closed_loop import OPTIONS, closed_loop
from checks.clusters.operator.rights import granted_rights
from numazones_client.resources import PODS
from numazones_operator.main import main
from numazones_operator.options import OperatorOptions
from numazones_program import settings
from numazones_simulator import node_kinds
from tests.manifests.kustomizations import MANIFESTS, documents, the
from tests.places import ROOT

BASE = MANIFESTS / "extender"
GUIDE = (ROOT / "docs" / "reference" / "extender.md").read_text()
SERVER_NAME = "numazones-extender.numazones-operator.svc"


def block(language: str, *, containing: str) -> str:
    blocks = re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    (found,) = [text for text in blocks if containing in text]
    return str(found)


def run_openssl(script: str, folder: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on PATH")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create the certificates with the commands of the guide."""
    folder = tmp_path_factory.mktemp("certificates")
    run_openssl(block("sh", containing="openssl"), folder)
    return folder


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of another CA, of the same name."""
    folder = tmp_path_factory.mktemp("strangers")
    run_openssl(block("sh", containing="openssl"), folder)
    return folder


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    spec: dict[str, Any] = the("Deployment", BASE)["spec"]["template"]["spec"]
    return spec


@pytest.fixture(scope="module")
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    found: dict[str, Any] = only
    return found


@pytest.fixture(scope="module")
def configuration() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(block("yaml", containing="KubeSchedulerConfiguration"))
    return found


def options(arguments: list[str], folder: Path) -> OperatorOptions:
    """Return the options that the operator parses from a container's arguments, with the local Secret."""
    mounted = [argument.replace("/etc/numazones/tls", str(folder)) for argument in arguments]
    with main.make_context("numazones-operator", mounted) as ctx:
        values, _ = settings.values_and_origins(ctx)
        return OperatorOptions(**values)


async def test_nobody_without_a_certificate_of_the_ca_reaches_bind(
    container: dict[str, Any], certificates: Path, strangers: Path, tmp_path: Path
) -> None:
    """The manifest's own arguments; a scheduler's certificate, none, another CA's, and the server's own."""
    asked = options(container["args"], certificates)
    host, _, port = asked.extender_address.rpartition(":")
    assert (host, int(port)) == ("", 9409)
    clients = {
        "none": None,
        "another CA": (strangers / "scheduler.crt", strangers / "scheduler.key"),
        "the server's own": (certificates / "tls.crt", certificates / "tls.key"),
        "the scheduler's": (certificates / "scheduler.crt", certificates / "scheduler.key"),
    }
    answers: dict[str, Any] = {}
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("a", "10.0.0.1")])
        operator = await loop.start_operator(
            OPTIONS,
            leads=False,
            lead=asked.lead,
            exporter_namespace=asked.exporter_namespace,
            extender_address="127.0.0.1:0",
            extender_certificate=asked.extender_certificate,
            extender_key=asked.extender_key,
            extender_client_ca=asked.extender_client_ca,
        )
        created = await loop.create_pod("p")
        body = {
            "PodName": "p",
            "PodNamespace": "default",
            "PodUID": created["metadata"]["uid"],
            "Node": "a",
        }

        async def bind(files: tuple[Path, Path] | None) -> Any:
            context = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as Go, which asks for no key identifiers
            if files is not None:
                context.load_cert_chain(*files)
            url = f"https://127.0.0.1:{operator.extender_port}/bind"
            async with aiohttp.ClientSession() as session:
                try:
                    async with session.post(
                        url, json=body, ssl=context, server_hostname=SERVER_NAME
                    ) as answer:
                        return await answer.json()
                except aiohttp.ClientError:
                    return None

        async def bound_to() -> Any:
            return (await loop.client.get(PODS, "p", namespace="default"))["spec"].get("nodeName")

        for name, files in clients.items():
            if name == "the scheduler's":
                assert await bound_to() is None
            answers[name] = await bind(files)
        assert answers == dict.fromkeys(clients) | {"the scheduler's": {"Error": ""}}
        assert await bound_to() == "a"


async def test_whoever_speaks_no_tls_is_not_answered(
    container: dict[str, Any], certificates: Path, tmp_path: Path
) -> None:
    asked = options(container["args"], certificates)
    async with closed_loop(tmp_path) as loop:
        operator = await loop.start_operator(
            OPTIONS,
            leads=False,
            lead=False,
            extender_address="127.0.0.1:0",
            extender_certificate=asked.extender_certificate,
            extender_key=asked.extender_key,
            extender_client_ca=asked.extender_client_ca,
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", operator.extender_port)
        writer.write(b"POST /bind HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
        assert b"HTTP" not in await reader.read()
        writer.close()


def test_guides_scheduler_trusts_only_this_server_and_avoids_traps(
    configuration: dict[str, Any], certificates: Path
) -> None:
    (extender,) = configuration["extenders"]
    shipped = yaml.safe_load(the("ConfigMap", MANIFESTS / "scheduler")["data"]["scheduler.yaml"])
    (beside,) = shipped["extenders"]
    assert {**extender, "urlPrefix": beside["urlPrefix"]}.items() >= beside.items()
    assert configuration["percentageOfNodesToScore"] == 100
    assert extender["urlPrefix"].startswith("https://")
    assert extender["enableHTTPS"] is True
    files = {name: Path(path).name for name, path in extender["tlsConfig"].items() if name.endswith("File")}
    assert files == {"caFile": "ca.crt", "certFile": "scheduler.crt", "keyFile": "scheduler.key"}
    assert all((certificates / name).exists() for name in files.values())
    assert extender["tlsConfig"]["serverName"] == SERVER_NAME
    service = the("Service", BASE)["metadata"]
    assert f"{service['name']}.{service['namespace']}.svc" == SERVER_NAME


def test_guides_secret_has_the_files_of_the_arguments(container: dict[str, Any], pod: dict[str, Any]) -> None:
    (made,) = re.findall(r"create secret generic (\S+) (.*)", GUIDE)
    (volume,) = pod["volumes"]
    (mount,) = container["volumeMounts"]
    assert volume["secret"]["secretName"] == made[0]
    files = re.findall(r"--from-file=(\S+)", made[1])
    named = [argument.partition("=")[2] for argument in container["args"] if mount["mountPath"] in argument]
    assert sorted(named) == sorted(f"{mount['mountPath']}/{file}" for file in files)


def test_the_operators_user_may_read_the_secret(pod: dict[str, Any]) -> None:
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
    assert pod["volumes"][0]["secret"]["defaultMode"] == 0o440


def test_it_satisfies_the_restricted_pod_security_standard(
    pod: dict[str, Any], container: dict[str, Any]
) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


def test_there_are_never_two(pod: dict[str, Any]) -> None:
    deployment = the("Deployment", BASE)["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})


def test_the_service_leads_to_the_port_that_it_listens_on(container: dict[str, Any]) -> None:
    service, deployment = the("Service", BASE)["spec"], the("Deployment", BASE)["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert service["selector"].items() <= labels.items()
    (port,) = service["ports"]
    assert f"--extender-address=:{ports[port['targetPort']]}" in container["args"]
    policy = the("NetworkPolicy", BASE)["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    scrapers, schedulers = policy["ingress"]
    assert scrapers["from"] == [{"namespaceSelector": {"matchLabels": {"numazones.io/metrics": "allowed"}}}]
    assert [item["port"] for item in scrapers["ports"]] == ["metrics"]
    assert [item["port"] for item in schedulers["ports"]] == ["extender"]
    assert ports.keys() == {"metrics", "probes", "extender"}


def test_its_rights_are_those_of_the_extender_beside_a_scheduler() -> None:
    leases = {("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update")}
    assert granted_rights("extender") == granted_rights("scheduler") - leases
    subjects = {
        (subject["name"], subject["namespace"])
        for item in documents(BASE)
        for subject in item.get("subjects", ())
    }
    assert subjects == {("numazones-extender", "numazones-operator")}


def test_the_command_understands_its_arguments(container: dict[str, Any]) -> None:
    result = CliRunner().invoke(main, [*container["args"], "--dump-config"], env=dict(os.environ))
    assert result.exit_code == 0, result.output
