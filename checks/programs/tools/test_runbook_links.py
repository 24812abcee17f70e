"""Links to runbooks, for those who install with kustomize and serve the runbooks somewhere."""

import subprocess
import sys

import yaml

from tests.places import ROOT

RULES = ROOT / "manifests" / "prometheus" / "prometheusrule.yaml"


def test_alerts_get_the_links_and_nothing_else_changes() -> None:
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n"
    done = subprocess.run(
        [sys.executable, "-m", "tools.runbook_links", "https://docs.my.org/runbooks/"],
        cwd=ROOT,
        input=namespace + RULES.read_text(),
        capture_output=True,
        text=True,
        check=True,
    )
    before = [yaml.safe_load(namespace.rstrip("-\n")), yaml.safe_load(RULES.read_text())]
    after = list(yaml.safe_load_all(done.stdout))
    links = {}
    for group in after[1]["spec"]["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                links[rule["alert"]] = rule["annotations"].pop("runbook_url")
    assert after == before
    assert len(links) > 20
    assert links["NumazonesNoLeader"] == "https://docs.my.org/runbooks/#numazonesnoleader"
