"""Plan the moves after which fits what a policy wants.

    python docs/examples/write_a_plan.py DUMP.json POLICY.yaml NOW

NOW is the time of the dump, RFC 3339; docs/examples/policies has policies. Nothing is moved.
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
from numazones.rebalance.goals import pending_goals
from numazones.rebalance.whatif import what_if
from numazones.wording import pluralize


def main(dump: str, policy: str, now: str) -> None:
    """Plan for each goal of the policy, print the moves in their order."""
    spec = RebalancePolicy.from_api(yaml.safe_load(Path(policy).read_text()), strict=True).spec
    items = Dump.of(json.loads(Path(dump).read_text())["items"])
    situation = situation_of(items, datetime.fromisoformat(now))
    waiting = situation.cluster.pending.values() if spec.goals.pending_pods else ()
    for goal in (*pending_goals(waiting), *standing_goals(spec.goals)):
        found = what_if(goal, situation, policy_of(spec, {}), effort=100_000)
        evictions = pluralize(found.evictions, "eviction")
        print(f"{title(goal)}: {found.before} now, {found.after} after {evictions}")
        for move in (move for plan in found.plans for move in plan.moves):
            print(f"  {move.pod.full_name}: {move.pod.node} {move.zones} -> {move.node} {move.target_zones}")


if __name__ == "__main__":
    main(*sys.argv[1:4])
