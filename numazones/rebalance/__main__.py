"""``python -m numazones.rebalance --policy POLICY.yaml < DUMP.json``: what would the policy do?

A thin door: it reads a RebalancePolicy and a dump, and prints JSON. Everything else is ``whatif``.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import yaml

from numazones import timestamp
from numazones.api.rebalance import RebalancePolicy
from numazones.dump import Dump, InvalidDump
from numazones.errors import NumazonesError
from numazones.rebalance.candidates import why_not
from numazones.rebalance.custom_resources import policy_of, standing_goals, title
from numazones.rebalance.dump import situation_of
from numazones.rebalance.goals import Goal, pending
from numazones.rebalance.policy import Policy
from numazones.rebalance.whatif import what_if


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m numazones.rebalance", description=__doc__)
    parser.add_argument("--policy", metavar="FILE", required=True, help="RebalancePolicy, YAML")
    parser.add_argument("--dump", metavar="FILE", default="-", help="List as JSON  [standard input]")
    parser.add_argument("--now", help="time of the dump, RFC 3339  [latest time stamp in it]")
    parser.add_argument("--effort", type=int, default=200_000, help="steps of the search per plan  [200000]")
    parser.add_argument(
        "--why-not", metavar="NAMESPACE/NAME", help="only say what keeps this pod from moving"
    )
    options = parser.parse_args(arguments)
    try:
        policy = yaml.safe_load(_text(options.policy, "the policy, a RebalancePolicy in YAML"))
        dump = json.loads(
            _text(options.dump, "a dump, as kubectl get nodes,pods,numazones -A -o json prints")
        )
        if not isinstance(dump, Mapping) or "items" not in dump:
            raise InvalidDump(
                "the dump is not a List; kubectl get nodes,pods,numazones -A -o json prints one"
            )
        objects = Dump.of(dump["items"])
        moment = timestamp.parse(options.now) if options.now else objects.moment
        if options.why_not:
            report = why_not_report(policy, objects, options.why_not, moment)
        else:
            report = report_on(policy, objects, moment, effort=options.effort)
    except (NumazonesError, json.JSONDecodeError, yaml.YAMLError) as error:
        print(f"numazones.rebalance: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(json.dumps(report, indent=1))  # noqa: T201
    return 0


def _text(path: str, wanted: str) -> str:
    """Return what a file holds, ``-`` being standard input; ``wanted`` says what it should be."""
    if path == "-":
        return sys.stdin.read()
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - the library knows no pathlib
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidDump(f"cannot read {path}: {why}; name a file with {wanted}") from error


def why_not_report(policy_body: Mapping[str, Any], dump: Dump, name: str, now: datetime) -> dict[str, Any]:
    """Say everything that speaks against moving one pod."""
    policy, situation = _policy(policy_body, dump), situation_of(dump, now)
    for node in situation.cluster.nodes.values():
        for pod in node.pods.values():
            if pod.full_name == name:
                found = [
                    {"rule": objection.rule, "message": objection.message}
                    for objection in why_not(pod, situation, policy)
                ]
                return {"pod": name, "objections": found}
    raise InvalidDump(f"the dump holds no pod {name} on a node; write NAMESPACE/NAME of one that runs")


def _policy(policy_body: Mapping[str, Any], dump: Dump) -> Policy:
    return policy_of(RebalancePolicy.from_api(policy_body, strict=True).spec, dump.priority_classes)


def report_on(policy_body: Mapping[str, Any], dump: Dump, now: datetime, *, effort: int) -> dict[str, Any]:
    """Report for every goal of a policy, each on the cluster as it is."""
    spec = RebalancePolicy.from_api(policy_body, strict=True).spec
    policy, situation = _policy(policy_body, dump), situation_of(dump, now)
    goals: list[Goal] = list(pending(situation.cluster.pending.values())) if spec.goals.pending_pods else []
    goals += standing_goals(spec.goals)
    return {
        "protections": list(policy.protections.effective),
        "goals": [
            {"goal": title(goal), **what_if(goal, situation, policy, effort=effort).to_json()}
            for goal in goals
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
