"""Print each NUMA zone whenever it changes.

python docs/examples/watch_zones.py [KUBECONFIG]
"""

import asyncio
import sys
from typing import Any

from numazones import NUMAZone
from numazones_client import Client, load
from numazones_client.resources import NUMAZONES


async def main(kubeconfig: str | None = None) -> None:
    """List, then watch from where the list ended, for ever."""
    async with Client(await load(kubeconfig), user_agent="watch-zones") as client:
        version = ""
        async for page in client.pages(NUMAZONES):
            version = page.resource_version
            for body in page.items:
                show("listed", body)
        while True:  # the server ends each watch after some minutes
            async for event in client.watch(NUMAZONES, resource_version=version):
                version = event.resource_version or version
                if event.object is not None and event.type != "BOOKMARK":
                    show(event.type.lower(), event.object)


def show(how: str, body: dict[str, Any]) -> None:
    """Print what a zone has left."""
    zone = NUMAZone.from_api(body)
    left = {resource.name: resource.available for resource in zone.status.resources} if zone.status else {}
    print(f"{how} {zone.spec.node_name}, NUMA node {zone.spec.numa_id}: {left}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
