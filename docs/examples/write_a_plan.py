"""Plan the moves after which fits what a policy wants.

    python docs/examples/write_a_plan.py DUMP.json POLICY.yaml NOW

NOW is the time of the dump, RFC 3339; docs/examples/policies has policies. Nothing is moved.
"""

import json
import sys
from datetime import datetime
from pathlib import Path

import yaml

from numazones import plan


def main(dump: str, policy: str, now: str) -> None:
    """Print each goal of the policy and the moves that reach it."""
    cluster = json.loads(Path(dump).read_text())
    print(plan(cluster, yaml.safe_load(Path(policy).read_text()), now=datetime.fromisoformat(now)))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("Usage: python docs/examples/write_a_plan.py DUMP.json POLICY.yaml NOW")
    main(*sys.argv[1:])
