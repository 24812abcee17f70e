"""The benchmark of what-if runs measures what it says."""

import json

from checks.seen.benchmarks.running import run


def test_it_prints_decisions_per_second_and_second_core_gain() -> None:
    done = run("whatif.py", "--chunks=8", "--turns=1", "--json")
    assert done.returncode in {0, 1}, done.stderr
    figures = json.loads(done.stdout)
    assert figures["decisions_per_second"] > 0
    assert figures["decisions_per_processor_second"] > 0
    assert figures["decisions_per_second_two_cores"] > 0
    assert figures["two_cores_to_one"] > 0
    assert figures["two_cores_to_one_by_processor_time"] > 0
    assert figures["goals"] == {"two_cores_to_one": 1.8}
    assert (done.returncode == 1) == bool(figures["missed"])
