"""Which pods to move so that what a policy wants fits?

    python docs/examples/write_a_plan.py DUMP.json POLICY.yaml NOW

NOW is the time of the dump, RFC 3339. Nothing is moved.
"""

import json
import sys
from datetime import datetime
from pathlib import Path

import yaml

from numazones.api.rebalance import RebalancePolicy
from numazones.cluster.dump import Dump
from numazones.rebalance.custom_resources import policy_of, standing_goals, title
from numazones.rebalance.dump import situation_of
from numazones.rebalance.whatif import what_if


def main(dump: str, policy: str, now: str) -> None:
    """Plan for each goal of the policy, print the moves in their order."""
    spec = RebalancePolicy.from_api(yaml.safe_load(Path(policy).read_text())).spec
    situation = situation_of(
        Dump.of(json.loads(Path(dump).read_text())["items"]), datetime.fromisoformat(now)
    )
    for goal in standing_goals(spec.goals):
        answer = what_if(goal, situation, policy_of(spec, {}), effort=100_000)
        print(f"{title(goal)}: {answer.before} fit now, {answer.after} after {answer.evictions} evictions")
        for move in (move for made in answer.plans for move in made.moves):
            zones = f"{move.node} {move.target_zones}"
            print(f"  {move.pod.full_name}: {move.pod.node} {move.zones} -> {zones}")


if __name__ == "__main__":
    main(*sys.argv[1:4])
