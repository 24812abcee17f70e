"""Predict where a pod would be admitted.

    python docs/examples/predict_for_a_pod.py DUMP.json POD.yaml

DUMP.json is what `kubectl get nodes,pods,numazones -A -o json` prints.
"""

import json
import sys
from pathlib import Path

import yaml

from numazones import ClusterPod, cluster_from_api, predict


def main(dump: str, manifest: str) -> None:
    """Read the cluster, ask about the pod, print what is known."""
    cluster = cluster_from_api(json.loads(Path(dump).read_text()))
    wanted = ClusterPod.from_manifest(yaml.safe_load(Path(manifest).read_text()))
    prediction = predict(wanted, cluster)
    print(f"{prediction.verdict}: {prediction}")
    for candidate in prediction.candidates:
        print(f"  {candidate.node}, NUMA nodes {candidate.zones}, score {candidate.score}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("Usage: python docs/examples/predict_for_a_pod.py DUMP.json POD.yaml")
    main(*sys.argv[1:])
