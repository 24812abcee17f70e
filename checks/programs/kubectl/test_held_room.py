"""``top`` shows the room that is held on a live cluster."""

import asyncio
import json
from pathlib import Path

from tests import plugin
from tests.kubectl.guide_cluster import guide_cluster
from tests.kubectl.live_doctor import serving
from tests.kubectl.small_cluster import pod_body


async def top(kubeconfig: Path, *arguments: str) -> str:
    code, output, errors = await plugin.streams("top", "--kubeconfig", kubeconfig, *arguments)
    assert code == 0, errors
    return output


async def test_top_says_whom_room_is_held_for_and_where(tmp_path: Path) -> None:
    coming = pod_body("coming", 3)
    coming["status"] = {"phase": "Pending", "nominatedNodeName": "worker-2"}
    async with serving(tmp_path, set(), [*guide_cluster(), coming]) as kubeconfig:
        text, document = await asyncio.gather(top(kubeconfig), top(kubeconfig, "-o", "json"))
    assert text.splitlines()[-1] == (
        "worker-2: 3 CPUs on NUMA node 0 are held for team/coming, nominated by a scheduler, until "
        "the scheduler decides otherwise"
    )
    assert json.loads(document)["held"] == [
        {
            "node": "worker-2",
            "numas": [0],
            "pod": "team/coming",
            "cpus": 3,
            "way": "nominated by a scheduler",
            "until": None,
        }
    ]
