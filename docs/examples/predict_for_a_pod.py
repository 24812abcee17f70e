"""Predict where a pod would be admitted.

    python docs/examples/predict_for_a_pod.py DUMP.json POD.yaml

DUMP.json is what `kubectl get nodes,pods,numazones -A -o json` prints.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

import yaml

from numazones import Cluster, ClusterNode, ClusterPod, NUMAZone, node_from_zones, predict


def main(dump: str, manifest: str) -> None:
    """Read the cluster, ask about the pod, print what is known."""
    items = json.loads(Path(dump).read_text())["items"]
    zones = defaultdict(list)
    for item in items:
        if item["kind"] == "NUMAZone":
            zones[item["spec"]["nodeName"]].append(NUMAZone.from_api(item))
    nodes = [ClusterNode.from_api(item) for item in items if item["kind"] == "Node"]
    nodes = [node.with_state(node_from_zones(zones[node.name])) for node in nodes if zones[node.name]]
    pods = [ClusterPod.from_api(item) for item in items if item["kind"] == "Pod"]
    cluster = Cluster.of(nodes, pods)

    wanted = ClusterPod.from_api(yaml.safe_load(Path(manifest).read_text()))
    prediction = predict(wanted, cluster.nodes.values())
    print(f"{prediction.verdict}: {prediction.sentence}")
    for candidate in prediction.candidates:
        print(f"  {candidate.node}, NUMA nodes {candidate.zones}, score {candidate.score}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
