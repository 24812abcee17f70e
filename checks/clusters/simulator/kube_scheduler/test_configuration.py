"""A KubeSchedulerConfiguration is read as strictly as kube-scheduler reads it."""

from pathlib import Path

import pytest

from numazones_simulator.kube_scheduler import configuration
from numazones_simulator.kube_scheduler.configuration import InvalidSchedulerConfiguration
from numazones_simulator.prevention import shipped_configuration

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def test_the_shipped_configuration_is_read_out_of_its_config_map() -> None:
    shipped = shipped_configuration("127.0.0.1:1234")
    (extender,) = shipped.extenders
    assert shipped.names == {"numazones"}
    assert shipped.percentage_of_nodes_to_score == 100
    assert extender.url_prefix == "http://127.0.0.1:1234"
    assert (extender.weight, extender.http_timeout) == (125, 3.0)
    assert extender.node_cache_capable
    assert not extender.ignorable


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "not a mapping"),
        (": {", "not YAML"),
        ("apiVersion: v1\nkind: KubeSchedulerConfiguration", "apiVersion: "),
        (HEAD + "profile: []", 'unknown field "profile"'),
        (HEAD + "profiles: [{schedulerName: a, plugins: {}}]", 'unknown field "profiles[0].plugins"'),
        (HEAD + "extenders: [{urlPrefix: x, bindverb: b}]", 'unknown field "extenders[0].bindverb"'),
        (HEAD + "extenders: [{urlPrefix: x, prioritizeVerb: p}]", "weight must be greater than 0"),
        (HEAD + "extenders: [{urlPrefix: x, httpTimeout: soon}]", "'soon' is not a duration"),
        (HEAD + "extenders: [{urlPrefix: a, bindVerb: b}, {urlPrefix: b, bindVerb: b}]", "only one extender"),
        (HEAD + "percentageOfNodesToScore: 101", "percentageOfNodesToScore"),
    ],
)
def test_what_kube_scheduler_would_not_start_with_is_named(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(text)
    with pytest.raises(InvalidSchedulerConfiguration) as error:
        configuration.read(path)
    assert str(error.value).startswith(str(path))
    assert problem in str(error.value)
