"""A Prometheus beside a simulated cluster: it scrapes operator and exporters, and ends with them."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from numazones_simulator.addresses import free_address
from numazones_simulator.programs import ProgramFailed, Programs


async def start(
    programs: Programs,
    directory: Path,
    *,
    operator: str,
    exporters: Mapping[str, str],
    rules: Sequence[Path] = (),
) -> str:
    """Start it; return its URL, which answers a moment later.

    ``operator``: the URL of its metrics; empty: none. ``exporters``: node → the URL of its exporter's
    metrics.

    Raises:
        ProgramFailed: there is none on the path.
    """
    if shutil.which("prometheus") is None:
        raise ProgramFailed(
            "prometheus is not on the PATH; install your distribution's package, or add .cache/tools/bin "
            "to it, where `make test` unpacks one"
        )
    home, address = directory / "prometheus", free_address()
    home.mkdir()
    configuration = home / "prometheus.yaml"
    configuration.write_text(yaml.safe_dump(_configuration(operator, exporters, rules)), encoding="utf-8")
    command = [
        "prometheus",
        f"--config.file={configuration}",
        f"--storage.tsdb.path={home / 'data'}",
        f"--web.listen-address={address}",
    ]
    await programs.start("prometheus", command)
    return f"http://{address}"


def _configuration(operator: str, exporters: Mapping[str, str], rules: Sequence[Path]) -> dict[str, object]:
    """Return the configuration of the guide, with fixed targets and a scrape each second."""
    groups = [{"targets": [_target(url)], "labels": {"node": node}} for node, url in exporters.items()]
    jobs = {
        "numazones-operator": [{"targets": [_target(operator)]}] if operator else [],
        "numazones-exporter": groups,
    }
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(path.resolve()) for path in rules],
        "scrape_configs": [
            {"job_name": name, "honor_labels": True, "static_configs": targets}
            for name, targets in jobs.items()
        ],
    }


def _target(url: str) -> str:
    return url.removeprefix("http://")
