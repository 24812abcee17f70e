"""Base of the simulated controllers: watch objects and their dependents, reconcile each in turn."""

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from numazones_client import APIError, Client, NotFound, Resource
from numazones_simulator.mirror import Body, mirror


class Controller(ABC):
    """Reconciles all objects of a resource whenever something has changed; run ``run`` as a task.

    ``owned``: resource of what the objects own; ``pause``: seconds between two rounds.
    """

    def __init__(self, client: Client, resource: Resource, owned: Resource, *, pause: float) -> None:
        self._client = client
        self._resource = resource
        self._pause = pause
        self._owners = mirror(client, resource, lambda _before, _after: self._work.set())
        self._owned = mirror(client, owned, self._owned_changed)
        self._owned_by: dict[str, dict[str, Body]] = {}
        """Owner's uid → uid → what it owns."""
        self._work = asyncio.Event()

    async def run(self) -> None:
        """Control until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._owners.reflector.run())
            tasks.create_task(self._owned.reflector.run())
            tasks.create_task(self._reconcile_all())

    @abstractmethod
    async def _reconcile(self, owner: Body, owned: list[Body]) -> None:
        """Take the steps that an object needs now; it is not being deleted."""

    async def _report(self, owner: Body, status: dict[str, int]) -> None:
        """Write the status where it differs."""
        metadata = owner["metadata"]
        status["observedGeneration"] = metadata.get("generation", 1)
        known = owner.get("status") or {}
        if any(known.get(key, 0) != value for key, value in status.items()):
            await self._client.patch(
                self._resource,
                metadata["name"],
                {"status": status},
                namespace=metadata["namespace"],
                subresource="status",
            )

    def _owned_changed(self, before: Body | None, after: Body | None) -> None:
        for body in (before, after):
            owner = None if body is None else _controller(body)
            if body is not None and owner is not None:
                owned = self._owned_by.setdefault(owner, {})
                if body is after:
                    owned[body["metadata"]["uid"]] = body
                else:
                    owned.pop(body["metadata"]["uid"], None)
        self._work.set()

    async def _reconcile_all(self) -> None:
        # Before what exists is known, everything would seem to be missing.
        await self._owned.reflector.synced.wait()
        while True:
            await self._work.wait()
            self._work.clear()
            for owner in list(self._owners.objects):
                if owner["metadata"].get("deletionTimestamp"):
                    continue
                owned = self._owned_by.get(owner["metadata"]["uid"], {})
                try:
                    await self._reconcile(owner, list(owned.values()))
                except NotFound:
                    continue  # deleted under our hands; the watch tells
                except APIError:
                    self._work.set()
            await asyncio.sleep(self._pause)


def reference(kind: str, owner: Body) -> dict[str, Any]:
    """Refer to the controller of apps/v1 that an object belongs to."""
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _controller(body: Body) -> str | None:
    owners = body["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), None)
