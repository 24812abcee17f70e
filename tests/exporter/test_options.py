"""Settings: defaults < file < environment < flags; what is wrong is named with the cure."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from numazones_exporter.main import main
from numazones_exporter.options import Options
from tests.places import ROOT

ORIGINS = ("default", "file", "environment", "flag")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NODE_NAME", "NODE_ADDRESS", "KUBERNETES_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)


def run(*flags: str, **environment: str) -> Result:
    return CliRunner().invoke(main, flags, env=dict(environment))


def dumped_settings(*flags: str, **environment: str) -> dict[str, tuple[object, str]]:
    """Key → value and origin, from --dump-config."""
    result = run("--dump-config", *flags, **environment)
    assert result.exit_code == 0, result.output
    values = yaml.safe_load(result.stdout)
    origins = {line.split(":")[0]: line.rpartition("# ")[2] for line in result.stdout.splitlines()}
    return {key: (value, origins[key]) for key, value in values.items()}


@pytest.mark.parametrize("winner", range(4), ids=ORIGINS)
def test_flags_win_over_environment_over_file_over_defaults(tmp_path: Path, winner: int) -> None:
    file = tmp_path / "exporter.yaml"
    file.write_text("interval: 2s\nkubeletDir: /from/file\n")
    flags, environment = [], {}
    if winner >= 1:
        flags += ["--config", str(file)]
    if winner >= 2:
        environment["NUMAZONES_EXPORTER_INTERVAL"] = "3s"
    if winner >= 3:
        flags += ["--interval", "4s"]
    value, origin = dumped_settings(*flags, **environment)["interval"]
    assert value == ("60s", "2s", "3s", "4s")[winner]
    assert origin == ("default", f"file {file}", "environment", "flag")[winner]


def test_a_dumped_configuration_can_be_loaded_again(tmp_path: Path) -> None:
    flags = ("--node-name", "n1", "--interval", "1m30s", "--publish", "numazones,noderesourcetopologies")
    first = run("--dump-config", *flags)
    (tmp_path / "dump.yaml").write_text(first.stdout)
    again = dumped_settings("--config", str(tmp_path / "dump.yaml"))
    assert {key: value for key, (value, _) in again.items()} == yaml.safe_load(first.stdout)
    assert again["publish"] == (["numazones", "noderesourcetopologies"], f"file {tmp_path}/dump.yaml")


def test_every_setting_has_a_flag_a_variable_and_key() -> None:
    help_text = run("--help").stdout
    for name in Options.__dataclass_fields__:
        if name != "origins":
            assert f"--{name.replace('_', '-')}" in help_text
            # click breaks long lines anywhere.
            assert f"NUMAZONES_EXPORTER_{name.upper()}" in "".join(help_text.split())


def test_every_setting_is_in_the_reference() -> None:
    reference = (ROOT / "docs/reference/exporter.md").read_text()
    flags = {option for param in main.params for option in param.opts if option.startswith("--")}
    assert {flag for flag in flags if f"`{flag}" not in reference} <= {"--version"}


def test_the_node_name_comes_from_the_downward_api_too() -> None:
    assert dumped_settings(NODE_NAME="worker-1")["nodeName"] == ("worker-1", "environment")
    own = dumped_settings(NODE_NAME="worker-1", NUMAZONES_EXPORTER_NODE_NAME="worker-2")
    assert own["nodeName"] == ("worker-2", "environment")


def test_node_without_a_name_is_called_like_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Laptop.Local")
    assert dumped_settings()["nodeName"] == ("laptop.local", "host name")
    monkeypatch.setattr("socket.gethostname", lambda: "my_laptop")
    result = run("--dump-config")
    assert result.exit_code == 2
    assert "the host name 'my_laptop' is not a valid node name; set --node-name" in result.stderr


def test_the_socket_is_looked_for_in_the_kubelets_directory() -> None:
    value, origin = dumped_settings("--kubelet-dir", "/srv/kubelet")["podresources"]
    assert (value, origin) == ("unix:/srv/kubelet/pod-resources/kubelet.sock", "default")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("--interval", "soon"),
            "'soon' is not a duration; write a positive time such as 60s, 1m30s",
        ),
        (("--interval", "0s"), "'0s' is not a duration"),
        (
            ("--publish", "zones"),
            "'zones' cannot be published; choose from numazones, noderesourcetopologies",
        ),
        (("--podresources", "tcp:1"), "'tcp:1' is not one of unix:PATH, replay:DIR, none"),
        (("--kubelet-config", "file:"), "'file:' is not one of configz, file:PATH, none"),
        (("--pods", "all"), "'all' is not one of api, file:PATH, none"),
        (
            ("--node-name", "No Node"),
            "'No Node' is not a valid node name; use the name that kubectl get nodes",
        ),
        (("-o", "xml"), "'xml' is not one of 'table', 'yaml', 'json'"),
    ],
)
def test_a_wrong_flag_is_named_with_the_cure(flags: tuple[str, ...], message: str) -> None:
    result = run("--once", *flags)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert flags[0].removeprefix("-o") in result.stderr


def test_a_wrong_environment_variable_is_named() -> None:
    result = run("--once", NUMAZONES_EXPORTER_INTERVAL="soon")
    assert result.exit_code == 2
    assert "env var: 'NUMAZONES_EXPORTER_INTERVAL'" in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("intervall: 3s\n", "unknown setting 'intervall'; did you mean interval?"),
        ("colour: red\n", "unknown setting 'colour'; use one of nodeName, sysfs,"),
        ("interval: soon\n", "interval: 'soon' is not a duration"),
        ("publish: [zones]\n", "publish: 'zones' cannot be published"),
        ("- interval\n", "expected settings as 'key: value' lines"),
        ("a: [", "is not valid YAML"),
        ("a: " + "9" * 5000, "is not valid YAML"),
        ("[" * 5000, "is not valid YAML"),
    ],
)
def test_a_wrong_file_is_named_with_key_and_cure(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "exporter.yaml"
    file.write_text(text)
    result = run("--dump-config", "--config", str(file))
    assert result.exit_code == 2
    assert f"--config {file}" in result.stderr
    assert message in " ".join(result.stderr.split())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = run("--dump-config", "--config", f"{tmp_path}/none.yaml")
    assert result.exit_code == 2
    assert f"--config {tmp_path}/none.yaml: No such file or directory" in result.stderr


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert dumped_settings("--config", f"{tmp_path}/empty.yaml") == dumped_settings()
