"""The kubelet's configuration from files: both forms, defaults, and what cannot be understood."""

import json
from pathlib import Path
from typing import Any

import pytest

from numazones_exporter.sources.kubelet_config import FileConfigReader, parse_configuration
from numazones_node.problems import SourceError

CONFIGURATION: dict[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0,4",
    "topologyManagerPolicy": "restricted",
}


async def read(path: Path) -> Any:
    return parse_configuration(await FileConfigReader(path).read(), version="v1.36.2").value


async def test_yaml_json_and_configz_answers_mean_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "kind: KubeletConfiguration\ncpuManagerPolicy: static\n"
        "reservedSystemCPUs: 0,4\ntopologyManagerPolicy: restricted\n"
    )
    (tmp_path / "b.json").write_text(json.dumps(CONFIGURATION))
    (tmp_path / "c.json").write_text(json.dumps({"kubeletconfig": CONFIGURATION}))
    first, *others = [await read(tmp_path / name) for name in ("a.yaml", "b.json", "c.json")]
    assert first.reserved_system_cpus == "0,4"
    assert others == [first, first]


def test_the_kubelets_defaults_are_applied() -> None:
    config = parse_configuration({"kind": "KubeletConfiguration"}, version=None).value
    assert (config.cpu_manager_policy, config.memory_manager_policy) == ("none", "None")
    assert (config.topology_manager_policy, config.topology_manager_scope) == ("none", "container")


@pytest.mark.parametrize(
    ("text", "reason", "message"),
    [
        ("{", "InvalidDocument", "is not valid JSON: "),
        ('{"a":' * 100_000, "InvalidDocument", "is not valid JSON: "),
        ('{"a": ' + "9" * 5000 + "}", "InvalidDocument", "is not valid JSON: "),
        ("a: [", "InvalidDocument", "is neither JSON nor YAML: "),
        ("[" * 100_000, "InvalidDocument", "nested more than 64 levels"),
        ("a: " + "9" * 5000, "InvalidDocument", "is neither JSON nor YAML: "),
        ("- a\n", "InvalidDocument", "contains list, not a Kubernetes object"),
        ("", "InvalidDocument", "contains NoneType, not a Kubernetes object"),
        (
            "kind: Pod\n",
            "InvalidConfiguration",
            "the kubelet configuration is neither a KubeletConfiguration nor a /configz response",
        ),
        (
            "kubeletconfig: 3\n",
            "InvalidConfiguration",
            "neither a KubeletConfiguration nor a /configz response",
        ),
        (
            "kubeReserved: {cpu: lots}\n",
            "InvalidConfiguration",
            "the kubelet configuration: 'lots' is not a Kubernetes quantity",
        ),
        (
            "featureGates: 3\n",
            "InvalidConfiguration",
            "featureGates of the kubelet configuration must be a mapping",
        ),
        ("evictionHard: 3\n", "InvalidConfiguration", "the kubelet configuration"),
    ],
)
async def test_what_is_no_configuration_is_rejected(
    tmp_path: Path, text: str, reason: str, message: str
) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(SourceError) as caught:
        await read(path)
    assert caught.value.reason == reason
    assert message in str(caught.value)


async def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=f"{tmp_path}/config does not exist"):
        await read(tmp_path / "config")


def test_unmodelled_release_is_a_problem_but_still_read() -> None:
    reading = parse_configuration(CONFIGURATION, version="v1.27.4")
    assert reading.value.cpu_manager_policy == "static"
    (problem,) = reading.problems
    assert problem.reason == "UnsupportedVersion"
    assert problem.message == (
        "kubelet v1.27.4 is older than 1.31, the oldest release modelled; predictions for this release may "
        "be wrong"
    )
