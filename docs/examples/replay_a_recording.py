"""Does the model decide as these kubelets did?

python docs/examples/replay_a_recording.py RECORDING
"""

import sys
from pathlib import Path

from kubectl_numazones.reading.recording import compare


def main(directory: str) -> int:
    """Replay every recorded node; print what differs."""
    report = compare(Path(directory))
    for node, outcome in report.differ:
        print(f"{outcome.name} on {node}: {'; '.join(outcome.differences)}")
    print(f"{len(report.outcomes) - len(report.differ)} of {len(report.outcomes)} decisions agree")
    return 1 if report.differ else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Usage: python docs/examples/replay_a_recording.py RECORDING")
    sys.exit(main(sys.argv[1]))
