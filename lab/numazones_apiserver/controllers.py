"""Controllers of every cluster: garbage collection, namespace deletion, CRDs, budgets' status, old events.

The real ones are controllers beside the API server. These look at every change as it is committed,
note what it may entail, and act soon afterwards in one task, in order.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from numazones_apiserver import custom_kinds
from numazones_apiserver.budgets import Budgets
from numazones_apiserver.errors import Object, StatusError
from numazones_apiserver.kinds import Kind
from numazones_apiserver.store import Collection, Key, Record
from numazones_apiserver.tables import instant
from numazones_apiserver.writes import FOREGROUND, ORPHAN, DeleteOptions, Writes

ObjectPlace = tuple[Collection, Key]
_EVENT_TTL = timedelta(hours=1)
_HOUSEKEEPING_SECONDS = 30.0
_GARBAGE = "garbage-collector"


class Controllers:
    """The controllers of a cluster, in one task."""

    def __init__(self, writes: Writes, budgets: Budgets) -> None:
        self._writes = writes
        self._budgets = budgets
        self._dependents: dict[str, dict[ObjectPlace, None]] = {}
        self._uids: dict[str, ObjectPlace] = {}
        self._due: deque[Callable[[], None]] = deque()
        self._stale_budgets: dict[Key, None] = {}
        self._wake = asyncio.Event()
        writes.store.listeners.append(self._notice)

    async def run(self) -> None:
        """Act until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_HOUSEKEEPING_SECONDS):
                    await self._wake.wait()
            if not self._wake.is_set():
                self._forget_old_events()
                self._stale_budgets.update(dict.fromkeys(self._budget_collection().objects))
            self._wake.clear()
            await self.settle()

    async def settle(self) -> None:
        """Do everything that is due; requests are served in between."""
        while self._due or self._stale_budgets:
            if self._due:
                act = self._due.popleft()
                with contextlib.suppress(
                    StatusError
                ):  # the object is gone or changed: that change is noticed too
                    act()
            else:
                key = next(iter(self._stale_budgets))
                del self._stale_budgets[key]
                found = self._budget_collection().objects.get(key)
                if found is not None:
                    with contextlib.suppress(StatusError):
                        self._budgets.refresh(found.object)
            await asyncio.sleep(0)

    # --- noticing -----------------------------------------------------------------------------

    def _schedule(self, act: Callable[[], None]) -> None:
        self._due.append(act)
        self._wake.set()

    def _notice(self, collection: Collection, record: Record) -> None:
        before = record.before.object if record.before is not None else None
        after = record.after.object
        place = (collection, record.key)
        gone = record.type == "DELETED"
        self._index(place, before, None if gone else after)
        if gone:
            self._uids.pop(after["metadata"]["uid"], None)
            self._notice_deletion(place, after)
        elif after["metadata"].get("deletionTimestamp"):
            self._schedule(lambda: self._finish(collection, record.key))
        elif after["metadata"].get("ownerReferences"):
            self._schedule(lambda: self._collect(collection, record.key))
        if collection.group == "apiextensions.k8s.io" and collection.plural == "customresourcedefinitions":
            self._serve(before, None if gone else after)
        self._notice_budgets(collection, record.key)

    def _index(self, place: ObjectPlace, before: Object | None, after: Object | None) -> None:
        """Keep track of which objects have which owners."""
        was = _owner_uids(before)
        now_ = _owner_uids(after)
        for uid in was - now_:
            owned = self._dependents.get(uid)
            if owned is not None:
                owned.pop(place, None)
                if not owned:
                    del self._dependents[uid]
        for uid in now_ - was:
            self._dependents.setdefault(uid, {})[place] = None
        if after is not None:
            self._uids[after["metadata"]["uid"]] = place

    def _notice_deletion(self, place: ObjectPlace, obj: Object) -> None:
        for collection, key in list(self._dependents.get(obj["metadata"]["uid"], ())):
            self._schedule(lambda collection=collection, key=key: self._collect(collection, key))  # type: ignore[misc]
        for reference in obj["metadata"].get("ownerReferences") or ():
            owner = self._uids.get(reference.get("uid", ""))
            if owner is not None:
                self._schedule(lambda owner=owner: self._finish(*owner))  # type: ignore[misc]
        namespace = place[1][0]
        if namespace:
            found = self._writes.store.collection("", "namespaces").objects.get(("", namespace))
            if found is not None and found.object["metadata"].get("deletionTimestamp"):
                self._schedule(
                    lambda: self._finish(self._writes.store.collection("", "namespaces"), ("", namespace))
                )
        definition = self._definition(place[0])
        if definition is not None and definition["metadata"].get("deletionTimestamp"):
            name = definition["metadata"]["name"]
            self._schedule(lambda: self._finish(self._definitions(), ("", name)))

    def _notice_budgets(self, collection: Collection, key: Key) -> None:
        name = (collection.group, collection.plural)
        if name == ("", "pods") or (collection.group == "apps" and collection.plural != "daemonsets"):
            for budget in self._budget_collection().in_namespace(key[0]):
                self._stale_budgets[budget] = None
                self._wake.set()
        elif name == ("policy", "poddisruptionbudgets"):
            self._stale_budgets[key] = None
            self._wake.set()

    def _budget_collection(self) -> Collection:
        return self._writes.store.collection("policy", "poddisruptionbudgets")

    def _definitions(self) -> Collection:
        return self._writes.store.collection("apiextensions.k8s.io", "customresourcedefinitions")

    def _definition(self, collection: Collection) -> Object | None:
        found = self._definitions().objects.get(("", f"{collection.plural}.{collection.group}"))
        return found.object if found is not None else None

    # --- acting -------------------------------------------------------------------------------

    def _kind(self, collection: Collection) -> Kind | None:
        return self._writes.registry.by_collection((collection.group, collection.plural))

    def _collect(self, collection: Collection, key: Key) -> None:
        """Delete an object none of whose owners exists, else drop references to those that do not."""
        kind, version = self._kind(collection), collection.objects.get(key)
        if kind is None or version is None:
            return
        references = version.object["metadata"].get("ownerReferences") or []
        alive = [one for one in references if self._is_alive(one, key[0])]
        if not references or len(alive) == len(references):
            return
        if not alive:
            options = DeleteOptions(propagation="Background", uid=version.object["metadata"]["uid"])
            self._writes.delete(kind, *key, options)
            return
        self._edit(kind, key, lambda live: _with_metadata(live, ownerReferences=alive))

    def _is_alive(self, reference: Object, namespace: str) -> bool:
        place = self._uids.get(reference.get("uid", ""))
        if place is None:
            # An owner of a kind that is not served cannot be looked up, so nothing is concluded.
            return (
                self._writes.registry.by_kind(reference.get("apiVersion", ""), reference.get("kind", ""))
                is None
            )
        owner_namespace, owner_name = place[1]
        return owner_name == reference.get("name") and owner_namespace in ("", namespace)

    def _edit(self, kind: Kind, key: Key, change: Callable[[Object], Object]) -> None:
        self._writes.edit(kind, *key, change, manager=_GARBAGE)

    def _finish(self, collection: Collection, key: Key) -> None:
        """Continue a deletion that waits for something."""
        kind, version = self._kind(collection), collection.objects.get(key)
        if kind is None or version is None:
            return
        obj = version.object
        metadata = obj["metadata"]
        if not metadata.get("deletionTimestamp"):
            return
        finalizers = metadata.get("finalizers") or ()
        if ORPHAN in finalizers:
            self._orphan(kind, key, metadata["uid"])
        elif FOREGROUND in finalizers:
            self._delete_dependents_first(kind, key, metadata["uid"])
        if collection.group == "" and collection.plural == "namespaces":
            self._empty_namespace(kind, key)
        elif custom_kinds.CLEANUP in finalizers:
            self._empty_definition(kind, key, obj)

    def _orphan(self, kind: Kind, key: Key, uid: str) -> None:
        for collection, dependent in list(self._dependents.get(uid, ())):
            dependent_kind = self._kind(collection)
            if dependent_kind is not None and dependent in collection.objects:
                self._edit(dependent_kind, dependent, lambda live: _without_owner(live, uid))
        self._edit(kind, key, lambda live: _without_finalizer(live, ORPHAN))

    def _delete_dependents_first(self, kind: Kind, key: Key, uid: str) -> None:
        for collection, dependent in list(self._dependents.get(uid, ())):
            dependent_kind, version = self._kind(collection), collection.objects.get(dependent)
            if dependent_kind is not None and version is not None:
                metadata = version.object["metadata"]
                if not metadata.get("deletionTimestamp"):
                    options = DeleteOptions(propagation="Foreground", uid=metadata["uid"])
                    self._writes.delete(dependent_kind, *dependent, options)
        if not any(
            _blocks(collection, dependent, uid) for collection, dependent in self._dependents.get(uid, ())
        ):
            self._edit(kind, key, lambda live: _without_finalizer(live, FOREGROUND))

    def _empty_namespace(self, kind: Kind, key: Key) -> None:
        """Delete what is in a namespace, and once it is empty the namespace itself."""
        name = key[1]
        left = 0
        for collection in self._writes.store.collections():
            content = self._kind(collection)
            if content is None or not content.namespaced:
                continue
            for inner in collection.in_namespace(name):
                version = collection.objects.get(inner)
                if version is not None and not version.object["metadata"].get("deletionTimestamp"):
                    self._writes.delete(content, *inner, DeleteOptions(propagation="Background"))
            left += len(collection.in_namespace(name))
        if not left and key in self._writes.collection(kind).objects:
            self._writes.finalize(kind, name)

    def _empty_definition(self, kind: Kind, key: Key, definition: Object) -> None:
        """Delete the custom resources of a definition, and once there are none the definition itself."""
        spec = definition["spec"]
        collection = self._writes.store.collection(spec["group"], spec["names"]["plural"])
        content = self._kind(collection)
        for inner in list(collection.order):
            version = collection.objects.get(inner)
            if (
                content is not None
                and version is not None
                and not version.object["metadata"].get("deletionTimestamp")
            ):
                self._writes.delete(content, *inner, DeleteOptions(propagation="Background"))
        if not collection.order:
            self._edit(kind, key, lambda live: _without_finalizer(live, custom_kinds.CLEANUP))

    def _serve(self, before: Object | None, after: Object | None) -> None:
        """Serve the kinds of a changed definition."""
        if before is not None and (after is None or before["spec"] != after["spec"]):
            self._writes.registry.remove(before["spec"]["group"], before["spec"]["names"]["plural"])
        if after is not None and (before is None or before["spec"] != after["spec"]):
            for kind in custom_kinds.kinds_of(after):
                self._writes.registry.add(kind)

    def _forget_old_events(self) -> None:
        collection = self._writes.store.collection("", "events")
        horizon = datetime.now(UTC) - _EVENT_TTL
        for key in list(collection.order):
            obj = collection.objects[key].object
            seen = instant((obj.get("series") or {}).get("lastObservedTime") or obj.get("lastTimestamp"))
            seen = seen or instant(obj.get("eventTime")) or instant(obj["metadata"].get("creationTimestamp"))
            if seen is not None and seen < horizon:
                self._writes.store.delete(collection, key)


def _owner_uids(obj: Object | None) -> set[str]:
    if obj is None:
        return set()
    return {one.get("uid", "") for one in obj["metadata"].get("ownerReferences") or ()}


def _blocks(collection: Collection, key: Key, uid: str) -> bool:
    """Return whether a dependent exists and blocks the deletion of its owner."""
    version = collection.objects.get(key)
    owners = version.object["metadata"].get("ownerReferences") or () if version is not None else ()
    return any(one.get("uid") == uid and one.get("blockOwnerDeletion") for one in owners)


def _with_metadata(obj: Object, **changes: object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], **changes}}


def _without_owner(obj: Object, uid: str) -> Object:
    owners = [one for one in obj["metadata"].get("ownerReferences") or () if one.get("uid") != uid]
    metadata = {key: value for key, value in obj["metadata"].items() if key != "ownerReferences"}
    return {**obj, "metadata": {**metadata, "ownerReferences": owners} if owners else metadata}


def _without_finalizer(obj: Object, finalizer: str) -> Object:
    left = [one for one in obj["metadata"].get("finalizers") or () if one != finalizer]
    metadata = {key: value for key, value in obj["metadata"].items() if key != "finalizers"}
    return {**obj, "metadata": {**metadata, "finalizers": left} if left else metadata}
