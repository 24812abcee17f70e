"""Creating, replacing, patching, applying and deleting objects.

Everything here is synchronous and therefore atomic: the server is one thread, and a write reads,
decides and stores before anything else runs. HTTP and waiting are elsewhere.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from numazones.apimachinery import timestamp
from numazones_apiserver import custom_kinds, errors, fieldsets, ownership, patches
from numazones_apiserver.admission_policies.admission import PolicyAdmission
from numazones_apiserver.admission_policies.review import CREATE, DELETE, SERVER, UPDATE, Review, User
from numazones_apiserver.errors import Object, StatusError
from numazones_apiserver.kinds import Kind, Registry, name_of, namespace_of
from numazones_apiserver.objects import Validation, check, decode, generated_name, now
from numazones_apiserver.ownership import Ownership, OwnershipChange, Writer
from numazones_apiserver.store import Collection, Store, Version

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_SERVER_OWNED = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
# Groups whose objects may only be updated by somebody who says which version he has seen.
_VERSIONED_GROUPS = (
    "coordination.k8s.io",
    "policy",
    "apiextensions.k8s.io",
    "admissionregistration.k8s.io",
)
_KINDS_ANSWERED_WITH = (
    "pods",
    "serviceaccounts",
    "services",
    "persistentvolumes",
    "persistentvolumeclaims",
)
_PERMANENT_NAMESPACES = ("default", "kube-system", "kube-public")
_STATUS_RESET = frozenset({("f:spec",)})
# What policies are asked about; bindings, evictions and scales are writes of other kinds in Kubernetes.
_REVIEWED_SUBRESOURCES = ("", "status")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options in the query of a write."""

    manager: str = "unknown"
    subresource: str = ""
    dry_run: bool = False
    force: bool = False
    validation: Validation = field(default_factory=Validation)
    user: User = SERVER


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """The body or query of a delete."""

    grace: int | None = None
    propagation: str = ""
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False
    user: User = SERVER


class Writes:
    """All changes of the store that clients may ask for."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self.store = store
        self.registry = registry
        self._policies = PolicyAdmission(store, registry)

    # --- reading what is to be written --------------------------------------------------------

    def collection(self, kind: Kind) -> Collection:
        """Return the collection that stores objects of a kind."""
        return self.store.collection(*kind.collection)

    def live(self, kind: Kind, namespace: str, name: str) -> Version:
        """The stored object; raises StatusError 404."""
        found = self.collection(kind).objects.get((namespace, name))
        if found is None:
            raise errors.not_found(kind.group, kind.plural, name)
        return found

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """The object in the form of the kind's version; raises StatusError 404."""
        stored = self.live(kind, namespace, name).object
        return kind.from_storage(stored) if kind.from_storage is not None else stored

    # --- create -------------------------------------------------------------------------------

    def create(self, kind: Kind, namespace: str, obj: Any, options: WriteOptions) -> Object:
        """Store a new object; raises StatusError 400, 403, 404, 409 or 422."""
        obj = self._with_identity(kind, namespace, obj)
        metadata = obj["metadata"]
        if metadata.get("resourceVersion"):
            raise errors.internal("resourceVersion should not be set on objects to be created")
        tries = 8 if not metadata.get("name") and metadata.get("generateName") else 1
        for left in range(tries - 1, -1, -1):
            named = obj
            if tries > 1:
                named = {**obj, "metadata": {**metadata, "name": generated_name(metadata["generateName"])}}
            try:
                return self._create(kind, namespace, named, options, generated=tries > 1)
            except StatusError as error:
                if error.reason != "AlreadyExists" or not left:
                    raise
        raise AssertionError("unreachable: the last try returns or raises")

    def _create(
        self,
        kind: Kind,
        namespace: str,
        obj: Object,
        options: WriteOptions,
        *,
        owners: Ownership | None = None,
        generated: bool = False,
    ) -> Object:
        given = ("resourceVersion", "selfLink", "managedFields", *_SERVER_OWNED)
        metadata = {key: value for key, value in obj["metadata"].items() if key not in given}
        decoded = decode(kind, {**obj, "metadata": metadata}, options.validation)
        self._check_namespace(kind, namespace, name_of(decoded))
        identity: Object = {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
        if kind.generations:
            identity["generation"] = 1
        obj = made = _made(kind, decoded, identity)
        if self._policies.may_mutate:
            obj = self._mutated_creation(kind, made, decoded, options, generated=generated)
        check(kind, obj, None)
        self._validate(_review(CREATE, kind, options, obj, None), options)
        if (namespace, name_of(obj)) in self.collection(kind).objects:
            raise errors.already_exists(kind.group, kind.plural, name_of(obj))
        if owners is None:  # of what the writer sent: what policies make of it is nobody's
            writer = Writer(options.manager, "Update", kind.api_version, options.subresource)
            owners = ownership.update(None, made, writer, {}, self._change(kind, options.subresource))
        return self._store(kind, _with_owners(obj, owners), options)

    def _mutated_creation(
        self, kind: Kind, made: Object, decoded: Object, options: WriteOptions, *, generated: bool
    ) -> Object:
        """A new object as mutating policies make it; they see it without what the server will add."""
        metadata, name = made["metadata"], name_of(made)
        hidden = (*_SERVER_OWNED, *(("name",) if generated else ()))

        def view(obj: Object, decoded: Object) -> Object:
            seen = {key: value for key, value in obj.items() if key != "status"}
            if "status" in obj:
                seen["status"] = decoded.get("status", {})
            return {
                **seen,
                "metadata": {key: value for key, value in obj["metadata"].items() if key not in hidden},
            }

        def prepare(patched: Object) -> Object:
            decoded = decode(kind, patched, Validation("Ignore"))
            return view(kind.strategy.for_create(decoded), decoded)

        seen = view(made, decoded)
        changed = self._policies.mutated(_review(CREATE, kind, options, seen, None), prepare)
        if changed is seen:
            return made
        changed = self._with_identity(kind, metadata.get("namespace", ""), changed, "" if generated else name)
        changed["metadata"].setdefault("name", name)
        identity = {key: metadata[key] for key in _SERVER_OWNED if key in metadata}
        return _made(kind, decode(kind, changed, Validation("Ignore")), identity)

    def _mutated_update(self, kind: Kind, live: Object, obj: Object, options: WriteOptions) -> Object:
        """A changed object as mutating policies make it."""

        def prepare(patched: Object) -> Object:
            return decode(kind, patched, Validation("Ignore"))

        changed = self._policies.mutated(_review(UPDATE, kind, options, obj, live), prepare)
        if changed is obj:
            return obj
        namespace, name = live["metadata"].get("namespace", ""), name_of(live)
        changed = self._with_identity(kind, namespace, changed, name)
        kept = {key: live["metadata"][key] for key in _SERVER_OWNED if key in live["metadata"]}
        return {**changed, "metadata": {**changed["metadata"], **kept}}

    def _validate(self, review: Review, options: WriteOptions) -> None:
        """Raise StatusError when a validating policy denies a write; its warnings join those of the write."""
        if review.subresource in _REVIEWED_SUBRESOURCES:
            known = options.validation.warnings
            known += [warning for warning in self._policies.check(review) if warning not in known]

    def _check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        found = self.store.collection("", "namespaces").objects.get(("", namespace))
        if found is None:
            raise errors.not_found("", "namespaces", namespace)
        if found.object["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            error = errors.forbidden(kind.group, kind.plural, name, why)
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            error.details = {**(error.details or {}), "causes": [cause]}
            raise error

    def _with_identity(self, kind: Kind, namespace: str, obj: Any, name: str = "") -> Object:
        """The object once its kind, version, namespace and name agree with the request's path."""
        if not isinstance(obj, dict):
            raise errors.bad_request("the body of the request is not an object")
        said = (obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.kind)
        if said != (kind.api_version, kind.kind) and not kind.custom:
            version = said[0].rpartition("/")[2]
            raise errors.bad_request(
                f'{said[1]} in version "{version}" cannot be handled as a {kind.kind}: '
                f'no kind "{said[1]}" is registered for version "{said[0]}"'
            )
        if said != (kind.api_version, kind.kind):
            raise errors.bad_request(
                f"the API version in the data ({said[0]}, Kind={said[1]}) does not match the expected "
                f"API version ({kind.api_version}, Kind={kind.kind})"
            )
        metadata = obj.get("metadata") or {}
        if not isinstance(metadata, dict):
            raise errors.bad_request("metadata is not an object")
        metadata = dict(metadata)
        if kind.namespaced:
            if metadata.get("namespace") not in (None, "", namespace):
                raise errors.bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            metadata["namespace"] = namespace
        else:
            metadata.pop("namespace", None)
        if name:
            if metadata.get("name") not in (None, "", name):
                raise errors.bad_request(
                    f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
                )
            metadata["name"] = name
        return {**obj, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}

    # --- replace, patch, apply ----------------------------------------------------------------

    def replace(self, kind: Kind, namespace: str, name: str, obj: Any, options: WriteOptions) -> Object:
        """Replace an object, or its status; raises StatusError 404, 409 or 422."""
        live = self.get(kind, namespace, name)
        obj = self._with_identity(kind, namespace, obj, name)
        metadata = obj["metadata"]
        if not metadata.get("resourceVersion"):
            if kind.custom or kind.group in _VERSIONED_GROUPS:
                detail = "must be specified for an update"
                error = errors.FieldError(
                    "FieldValueInvalid", "metadata.resourceVersion", f"Invalid value: 0x0: {detail}"
                )
                raise errors.invalid(kind.group, kind.kind, name, [error])
            metadata["resourceVersion"] = live["metadata"]["resourceVersion"]
        return self._update(kind, live, obj, options)

    def patch(
        self, kind: Kind, namespace: str, name: str, content_type: str, body: Any, options: WriteOptions
    ) -> Object:
        """Change an object by a JSON, merge or strategic merge patch."""
        live = self.get(kind, namespace, name)
        if content_type == patches.JSON:
            patched = patches.json_patch(live, body)
        elif not isinstance(body, dict):
            raise errors.bad_request("the patch is not an object")
        elif content_type == patches.MERGE:
            patched = patches.merge(live, body)
        else:
            patched = patches.strategic_merge(live, body, kind.schema)
        if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
            raise errors.bad_request("the patch does not result in an object")
        metadata = dict(patched["metadata"])
        metadata.setdefault("resourceVersion", live["metadata"]["resourceVersion"])
        patched = {**patched, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        return self._update(kind, live, patched, options)

    def _update(self, kind: Kind, live: Object, obj: Object, options: WriteOptions) -> Object:
        before, metadata = live["metadata"], dict(obj["metadata"])
        if metadata.get("uid") not in (None, "", before["uid"]):
            given, stored = metadata["uid"], before["uid"]
            why = f"Precondition failed: UID in precondition: {given}, UID in object meta: {stored}"
            raise errors.conflict(kind.group, kind.plural, before["name"], why)
        if metadata["resourceVersion"] != before["resourceVersion"]:
            raise errors.conflict(kind.group, kind.plural, before["name"])
        said = metadata.pop("managedFields", None)
        forgets = ownership.is_reset(said)
        new, written = self._prepare(kind, live, {**obj, "metadata": metadata}, options)
        if _is_same(new, live) and (not said or said == before.get("managedFields")):
            return live
        owners: Ownership = {}
        if not forgets:
            known = ownership.read(said or before.get("managedFields"))
            writer = Writer(options.manager, "Update", kind.api_version, options.subresource)
            owners = ownership.update(live, written, writer, known, self._change(kind, options.subresource))
        return self._store(kind, _with_owners(new, owners), options)

    def apply(
        self, kind: Kind, namespace: str, name: str, config: Any, options: WriteOptions
    ) -> tuple[Object, bool]:
        """Server-side apply: the object, and whether it was created. Raises StatusError 409 on conflicts."""
        if not isinstance(config, dict) or not config.get("apiVersion") or not config.get("kind"):
            said = config if isinstance(config, dict) else {}
            group, _, version = str(said.get("apiVersion", "")).rpartition("/")
            raise errors.bad_request(f"invalid object type: {group}/{version}, Kind={said.get('kind', '')}")
        place = f"{(config.get('metadata') or {}).get('namespace', '')}/{name}"
        config = self._with_identity(kind, namespace, config, name)
        if config["metadata"].get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        config = self._decode_config(kind, config, place)
        writer = Writer(options.manager, "Apply", kind.api_version, options.subresource)
        change = self._change(kind, options.subresource)
        if (namespace, name) not in self.collection(kind).objects:
            if options.subresource:
                raise errors.not_found(kind.group, kind.plural, name)
            if config["metadata"].get("uid"):
                uid = config["metadata"]["uid"]
                why = (
                    f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                )
                raise errors.conflict(kind.group, kind.plural, name, why)
            _, owners = ownership.apply({}, config, writer, {}, change, force=options.force)
            return self._create(kind, namespace, config, options, owners=owners), True
        live = self.get(kind, namespace, name)
        version = config["metadata"].get("resourceVersion")
        if version and version != live["metadata"]["resourceVersion"]:
            raise errors.conflict(kind.group, kind.plural, name)
        known = ownership.read(live["metadata"].get("managedFields"))
        bare = {
            **live,
            "metadata": {key: value for key, value in live["metadata"].items() if key != "managedFields"},
        }
        merged, owners = ownership.apply(bare, config, writer, known, change, force=options.force)
        new, _ = self._prepare(kind, live, merged, options)
        if _is_same(new, live) and owners == known:
            return live, False
        return self._store(kind, _with_owners(new, owners), options), False

    def _decode_config(self, kind: Kind, config: Object, place: str) -> Object:
        """The configuration, rejected where it names fields that do not exist."""
        unknown = Validation("Warn")
        known = decode(kind, config, unknown, defaults=False)
        if unknown.fields:
            listing = "\n".join(f".{path}: field not declared in schema" for path in unknown.fields)
            what = f"{kind.group}/{kind.version}, Kind={kind.kind}"
            raise errors.internal(f"failed to create typed patch object ({place}; {what}): {listing}")
        return known

    def _prepare(self, kind: Kind, live: Object, obj: Object, options: WriteOptions) -> tuple[Object, Object]:
        """The object as it would be stored, and as its writer wants it; both say nothing of its ownership.

        Raises:
            StatusError: 400 or 422, and what policies deny.
        """
        before, metadata = live["metadata"], dict(obj["metadata"])
        metadata.pop("selfLink", None)
        for name in (*_SERVER_OWNED, "resourceVersion"):
            metadata.pop(name, None)
            if name in before:
                metadata[name] = before[name]
        obj = decode(kind, {**obj, "metadata": metadata}, options.validation)
        status = options.subresource == "status"
        place = kind.strategy.for_status if status else kind.strategy.for_update
        new = written = place(obj, live)
        if self._policies.may_mutate and options.subresource in _REVIEWED_SUBRESOURCES:
            seen = obj if status else {**written, **({"status": obj["status"]} if "status" in obj else {})}
            changed = self._mutated_update(kind, live, seen, options)
            new = place(changed, live) if changed is not seen else written
        check(kind, new, live)
        if kind.generations and _desired_state(kind, new) != _desired_state(kind, live):
            new = {**new, "metadata": {**new["metadata"], "generation": before.get("generation", 0) + 1}}
        self._validate(_review(UPDATE, kind, options, new, live), options)
        return new, written

    def _change(self, kind: Kind, subresource: str) -> OwnershipChange:
        reset = fieldsets.EMPTY
        if subresource == "status":
            reset = _STATUS_RESET | ({("f:metadata",)} if kind.custom else frozenset())
        elif "status" in kind.subresources:
            reset = frozenset({("f:status",)})
        return OwnershipChange(kind.schema, now(), reset)

    def _store(self, kind: Kind, obj: Object, options: WriteOptions) -> Object:
        """Store the object, or delete it when this write ended its deletion."""
        if options.dry_run:
            return obj
        collection = self.collection(kind)
        stored = kind.to_storage(obj) if kind.to_storage is not None else obj
        metadata = stored["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        if key in collection.objects and _may_go(stored):
            version = self.store.delete(collection, key, stored)
        else:
            version = self.store.put(collection, stored)
        return kind.from_storage(version.object) if kind.from_storage is not None else version.object

    def edit(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Callable[[Object], Object],
        *,
        manager: str,
        subresource: str = "",
    ) -> Object:
        """Change the current object as a controller does; nothing is written when nothing changed."""
        live = self.get(kind, namespace, name)
        changed = change(live)
        return self._update(
            kind, live, {**changed, "metadata": dict(changed["metadata"])}, WriteOptions(manager, subresource)
        )

    def bind(
        self, namespace: str, name: str, change: Callable[[Object], Object], options: WriteOptions
    ) -> None:
        """Store what ``pods.assign_node`` made of a pod: binding is the one way to change a pod's node."""
        kind = self.registry.find("", "v1", "pods")
        assert kind is not None  # noqa: S101 - the table of built-in kinds has pods
        live = self.live(kind, namespace, name).object
        new = change(live)
        writer = Writer(options.manager, "Update", "v1", "binding")
        known = ownership.read(live["metadata"].get("managedFields"))
        owners = ownership.update(live, new, writer, known, OwnershipChange(kind.schema, now()))
        self._store(kind, _with_owners(new, owners), options)

    def finalize(self, kind: Kind, name: str) -> None:
        """Delete a namespace that is being deleted and is empty."""
        live = self.live(kind, "", name).object
        self._store(kind, {**live, "spec": {**(live.get("spec") or {}), "finalizers": []}}, WriteOptions())

    # --- delete -------------------------------------------------------------------------------

    def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions) -> Object:
        """Delete an object, or begin to, and return the object or a ``Status``."""
        live = self.live(kind, namespace, name).object
        metadata = live["metadata"]
        if kind.plural == "namespaces" and not kind.group and name in _PERMANENT_NAMESPACES:
            raise errors.forbidden("", "namespaces", name, "this namespace may not be deleted")
        check_preconditions(kind, metadata, options)
        shown = kind.from_storage(live) if kind.from_storage is not None else live
        self._policies.check(
            Review(
                DELETE,
                kind,
                _review_namespace(kind, live),
                name,
                None,
                shown,
                options.user,
                "",
                options.dry_run,
            )
        )
        dying = _begin_deletion(kind, live, options)
        if dying is live:
            return live
        if _may_go(dying):
            if not options.dry_run:
                dying = self.store.delete(self.collection(kind), (namespace, name), dying).object
            return (
                dying
                if kind.plural in _KINDS_ANSWERED_WITH and not kind.custom
                else _deletion_status(kind, dying)
            )
        if options.dry_run:
            return dying
        stored = self.store.put(self.collection(kind), dying).object
        return kind.from_storage(stored) if kind.from_storage is not None else stored


def _made(kind: Kind, decoded: Object, identity: Object) -> Object:
    """A new object with its identity and its defaults."""
    return kind.strategy.for_create({**decoded, "metadata": {**decoded["metadata"], **identity}})


def _review(operation: str, kind: Kind, options: WriteOptions, obj: Object, old: Object | None) -> Review:
    """A write as it is put to policies."""
    return Review(
        operation,
        kind,
        _review_namespace(kind, obj),
        name_of(obj),
        obj,
        old,
        options.user,
        options.subresource,
        options.dry_run,
    )


def _review_namespace(kind: Kind, obj: Object) -> str:
    """The namespace of a request for an object; namespaces are in themselves."""
    if not kind.group and kind.plural == "namespaces":
        return name_of(obj)
    return namespace_of(obj)


def check_preconditions(kind: Kind, metadata: Object, options: DeleteOptions) -> None:
    """Raise StatusError 409 unless the object is the one, and the version of it, that is to be deleted."""
    if options.uid and options.uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({metadata['uid']}). The object might have been deleted and then recreated"
        )
        raise errors.conflict(kind.group, kind.kind, metadata["name"], why)
    if options.resource_version and options.resource_version != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
            f"ResourceVersion in record ({metadata['resourceVersion']}). The object might have been modified"
        )
        raise errors.conflict(kind.group, kind.kind, metadata["name"], why)


def _with_owners(obj: Object, owners: Ownership) -> Object:
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    if owners:
        metadata["managedFields"] = ownership.write(owners)
    return {**obj, "metadata": metadata}


def _is_same(new: Object, live: Object) -> bool:
    """Return whether nothing changed except the owners of fields."""
    if new.keys() != live.keys():
        return False
    for key, value in new.items():
        if key != "metadata" and value != live[key]:
            return False
    ignored = ("managedFields", "resourceVersion")
    return {key: value for key, value in new["metadata"].items() if key not in ignored} == {
        key: value for key, value in live["metadata"].items() if key not in ignored
    }


def _desired_state(kind: Kind, obj: Object) -> Object:
    """The part of an object whose changes its generation counts."""
    ignored = ("metadata", "status") if "status" in kind.subresources else ("metadata",)
    return {key: value for key, value in obj.items() if key not in ignored}


def _may_go(obj: Object) -> bool:
    """Return whether a deletion has nothing left to wait for."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if obj["kind"] == "Namespace" and (obj.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _begin_deletion(kind: Kind, live: Object, options: DeleteOptions) -> Object:
    """The object with its deletion begun or brought forward; the same object when nothing changes."""
    metadata = dict(live["metadata"])
    grace = _grace(kind, live, options)
    begun = metadata.get("deletionTimestamp")
    if begun and grace >= metadata.get("deletionGracePeriodSeconds", 0) and not _may_go(live):
        return live
    at = datetime.now(UTC) + timedelta(seconds=grace)
    if not begun or grace < metadata.get("deletionGracePeriodSeconds", 0):
        metadata["deletionTimestamp"] = timestamp.format(at)
    metadata["deletionGracePeriodSeconds"] = grace
    if metadata.get("generation") and not begun:
        metadata["generation"] += 1
    finalizers = [one for one in metadata.get("finalizers") or () if one not in (FOREGROUND, ORPHAN)]
    if options.propagation == "Foreground":
        finalizers.append(FOREGROUND)
    elif options.propagation == "Orphan":
        finalizers.append(ORPHAN)
    elif not options.propagation:
        finalizers = list(metadata.get("finalizers") or ())
    metadata.pop("finalizers", None)
    if finalizers:
        metadata["finalizers"] = finalizers
    dying = {**live, "metadata": metadata}
    if kind.plural == "namespaces" and not kind.group:
        dying["status"] = {**(live.get("status") or {}), "phase": "Terminating"}
    if kind.plural == "customresourcedefinitions" and custom_kinds.CLEANUP not in finalizers:
        metadata["finalizers"] = [*finalizers, custom_kinds.CLEANUP]
    return dying


def _grace(kind: Kind, live: Object, options: DeleteOptions) -> int:
    """Seconds until a pod must end; 0 when no kubelet has it or nothing of it runs."""
    if kind.plural != "pods" or kind.group:
        return 0
    spec = live.get("spec") or {}
    if not spec.get("nodeName") or (live.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    return options.grace if options.grace is not None else int(spec.get("terminationGracePeriodSeconds", 30))


def _deletion_status(kind: Kind, obj: Object) -> Object:
    details: Object = {"name": name_of(obj), "kind": kind.plural, "uid": obj["metadata"]["uid"]}
    if kind.group:
        details["group"] = kind.group
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
