"""Settings of the operator: defaults < file < environment < flags, shown with their origins."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from numazones_operator.main import main
from tests.places import ROOT


def dump(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--dump-config"], env=environment)


def settings(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.output
    loaded: dict[str, object] = yaml.safe_load(result.output)
    return loaded


def origin(result: Result, key: str) -> str:
    (line,) = [line for line in result.output.splitlines() if line.startswith(f"{key}: ")]
    return line.partition("# ")[2]


def test_flags_win_over_the_environment_the_environment_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "operator.yaml"
    file.write_text("writeRate: 1\ncandidates: 1\ndebounce: 1s\nshapes: ['cpu=2', 'cpu=4,memory=8Gi']\n")
    result = dump(
        f"--config={file}",
        "--write-rate=3",
        NUMAZONES_OPERATOR_WRITE_RATE="2",
        NUMAZONES_OPERATOR_CANDIDATES="2",
    )
    found = settings(result)
    assert (found["writeRate"], origin(result, "writeRate")) == (3.0, "flag")
    assert (found["candidates"], origin(result, "candidates")) == (2, "environment")
    assert (found["debounce"], origin(result, "debounce")) == ("1s", f"file {file}")
    assert found["shapes"] == ["cpu=2", "cpu=4,memory=8Gi"]
    assert origin(result, "settle") == "default"


def test_placement_and_its_shapes_are_taken_from_the_environment() -> None:
    result = dump(NUMAZONES_OPERATOR_PLACEMENT="shapes", NUMAZONES_OPERATOR_SHAPES="cpu=14,memory=2Gi cpu=3")
    assert settings(result)["placement"] == "shapes"
    assert origin(result, "placement") == "environment"
    assert settings(result)["shapes"] == ["cpu=14,memory=2Gi", "cpu=3"]


@pytest.mark.parametrize("way", ["default", "nrt", "best"])
def test_a_placement_that_does_not_ask_the_nodes_is_rejected(way: str) -> None:
    result = dump(NUMAZONES_OPERATOR_PLACEMENT=way)
    assert result.exit_code == 2
    assert "best-fit" in result.output


def test_a_dump_can_be_loaded_again(tmp_path: Path) -> None:
    first = dump(
        "--shapes=cpu=3 cpu=9,vendor.example/nic=1", "--admission-gate", "--leader-elect-renew-deadline=5s"
    )
    file = tmp_path / "dumped.yaml"
    file.write_text(first.output)
    assert settings(dump(f"--config={file}")) == settings(first)


def test_pods_namespace_comes_from_where_kubernetes_puts_it() -> None:
    assert settings(dump(KUBERNETES_NAMESPACE="here"))["namespace"] == "here"


def test_gated_pods_can_be_told_to_wait_without_end() -> None:
    assert settings(dump("--admission-gate-timeout=0s"))["admissionGateTimeout"] == "0s"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--debounce=soon",), "not a duration"),
        (("--shapes=memory=1Gi",), "requests no CPUs"),
        (("--write-rate=0",), "--write-rate must be more than 0"),
        (("--leader-elect-renew-deadline=20s",), "must be shorter than"),
        (("--leader-elect-retry-period=8s",), "must be shorter than"),
        (("--no-lead", "--page-address=:8080"), "omit either --no-lead or --page-address"),
        (("--page-usage=prometheus",), "is neither 'exporters' nor the URL of a Prometheus"),
        (("--model-settings=koordinator",), "koordinator"),
        (("--extender-certificate=a.pem",), "must be set together"),
        (("--config=nowhere.yaml",), "nowhere.yaml"),
        (("--log-level=loud",), "loud"),
    ],
)
def test_a_setting_that_makes_no_sense_is_rejected_by_name(arguments: tuple[str, ...], message: str) -> None:
    result = dump(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_unknown_key_of_the_file_is_rejected_with_a_suggestion(tmp_path: Path) -> None:
    file = tmp_path / "operator.yaml"
    file.write_text("writeRat: 5\n")
    result = dump(f"--config={file}")
    assert result.exit_code == 2
    assert "writeRate" in result.output


def test_help_tells_of_every_setting() -> None:
    text = CliRunner().invoke(main, ["--help"]).output
    for key in ("--leader-elect", "--write-rate", "--admission-gate", "--exporter-namespace", "--settle"):
        assert key in text


def test_every_setting_is_in_the_reference() -> None:
    reference = (ROOT / "docs" / "reference" / "operator.md").read_text()
    flags = {option for param in main.params for option in param.opts if option.startswith("--")}
    assert {flag for flag in flags if f"`{flag}`" not in reference} <= {
        "--config",
        "--dump-config",
        "--version",
    }
