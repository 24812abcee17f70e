"""Gives the alerts in Kubernetes objects on standard input links to their runbooks, and prints the objects.

    kubectl kustomize manifests/prometheus | .venv/bin/python -m tools.runbook_links URL > rules.yaml

URL is where docs/runbooks is served, as the chart's value operator.runbookURL. Objects without alerts
pass unchanged.
"""

import argparse
import sys
from typing import Any

import yaml


def linked(items: list[dict[str, Any]], url: str) -> list[dict[str, Any]]:
    """Give each alert its annotation ``runbook_url``, in place."""
    for item in items:
        if item["kind"] == "PrometheusRule":
            for rule in (rule for group in item["spec"]["groups"] for rule in group["rules"]):
                if "alert" in rule:
                    rule["annotations"]["runbook_url"] = f"{url.rstrip('/')}/#{rule['alert'].lower()}"
    return items


def main() -> None:
    """Read, link, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", metavar="URL")
    url = parser.parse_args().url
    items = [item for item in yaml.safe_load_all(sys.stdin) if item]
    yaml.safe_dump_all(linked(items, url), sys.stdout, sort_keys=False, width=1000, allow_unicode=True)


if __name__ == "__main__":
    main()
