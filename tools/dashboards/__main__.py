"""Write the dashboards as JSON: ``python -m tools.dashboards manifests/grafana``."""

import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from tools.dashboards import cluster, node, operations, rebalancing

(folder,) = map(Path, sys.argv[1:])
for module in (cluster, node, rebalancing, operations):
    built = module.DASHBOARD.build()
    text = JSONEncoder(sort_keys=True, indent=2).encode(built)
    (folder / f"{built.uid}.json").write_text(text + "\n", encoding="utf-8")
