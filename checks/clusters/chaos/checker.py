"""Says of a recorded history which rule was broken. It shares no code with the programs, on purpose.

A history is a list of events, oldest first; each is a dict with ``t`` (seconds) and ``kind``:

- ``object``: a change of an object: its ``resource``, ``name``, ``type`` (ADDED, MODIFIED, DELETED), how it
  is ``after`` it, and the request that did it: ``client``, ``verb``, ``sub`` (subresource) and ``body``;
  empty where the cluster's own controllers did it;
- ``kubelet``: what a kubelet did: ``node``, ``uid``, ``what`` (admitted, rejected, removed), and afterwards
  ``free`` (zone → free CPUs) and ``pods`` (uid → [zone, CPUs]);
- ``denied``: what the API server forbade to a ``client``, and its ``message``;
- ``fault``: what the API server or a program suffered, with ``until``;
- ``calm``: no more faults from here on; ``end``: when that calm ended.

The model behind it is that of the clusters that are driven: the topology policy single-numa-node, pods of one
Guaranteed container with whole CPUs, the kubelet taking the lowest zone that has enough of them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]
Free = dict[str, dict[str, int]]
"""Node → zone → free CPUs."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Deadlines that a machine must meet, in seconds."""

    lag: float = 5.0
    """What a program may need from hearing of something to acting on it."""
    promised: float = 90.0
    """Within which everything is right again after the last fault."""


PACE = Pace()

GATE = "numazones.io/admission"
_PLAN = ("Proposed", "Approved", "Executing", "ended")
_MOVE = ("Pending", "Evicting", "Evicted", "Placed", "ended")
_OPERATOR = "numazones-operator"
_EXPORTER = "numazones-exporter"


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken."""

    rule: str
    t: float
    what: str

    def __str__(self) -> str:
        return f"{self.t:9.3f} s  {self.rule}: {self.what}"


@dataclass(slots=True)
class Moment:
    """The true state of the nodes from a time on."""

    t: float
    free: Free
    pods: dict[str, dict[str, tuple[str, int]]]
    """Node → uid → zone and CPUs."""


@dataclass(slots=True)
class World:
    """Everything that the events so far have led to."""

    moments: list[Moment] = field(default_factory=lambda: [Moment(float("-inf"), {}, {})])
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    """uid → pod as the API server has it."""
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """(resource, name) → object of any other kind."""
    faults: list[tuple[float, float]] = field(default_factory=list)
    pace: Pace = PACE
    released: dict[str, float] = field(default_factory=dict)
    """uid → when the operator took its gate away to certain nodes."""
    waited: dict[str, tuple[float, dict[str, Any]]] = field(default_factory=dict)
    """uid → when a pod ceased to wait, and the pod as it waited last."""

    def take(self, event: Event) -> None:
        """Take in one event."""
        if event["kind"] == "fault":
            self.faults.append((event["t"], event["until"]))
        elif event["kind"] == "kubelet":
            last = self.moments[-1]
            node = event["node"]
            pods = {uid: (zone, cpus) for uid, (zone, cpus) in event["pods"].items()}
            self.moments.append(
                Moment(event["t"], {**last.free, node: event["free"]}, {**last.pods, node: pods})
            )
        elif event["kind"] == "object":
            self._take_object(event)

    def _take_object(self, event: Event) -> None:
        after, resource = event["after"], event["resource"]
        key: Any = after["metadata"]["uid"] if resource == "pods" else (resource, event["name"])
        known: dict[Any, dict[str, Any]] = self.pods if resource == "pods" else self.objects
        before = known.get(key)
        waits = event["type"] != "DELETED" and _waits(after)
        if resource == "pods" and before is not None and _waits(before) and not waits:
            self.waited[key] = (event["t"], before)
        if event["type"] == "DELETED":
            known.pop(key, None)
        else:
            known[key] = after
        if resource == "pods" and _is_release(event):
            self.released[key] = event["t"]

    def window(self, start: float, end: float) -> Iterator[Moment]:
        """Yield what was the case at some time between."""
        first = max(0, bisect_left(self.moments, start, key=lambda moment: moment.t) - 1)
        last = bisect_right(self.moments, end, key=lambda moment: moment.t)
        yield from self.moments[first:last]

    def known_since(self, t: float) -> float:
        """From when on what a program knows at a time may be: since before the faults that it suffered."""
        since = t - self.pace.lag
        for begin, end in sorted(self.faults, reverse=True):
            if end + self.pace.lag >= since and begin <= t:
                since = min(since, begin - self.pace.lag)
        return since


def violations(history: Sequence[Event], pace: Pace = PACE) -> list[Violation]:
    """Return every rule that was broken, in the order of time."""
    final = World(pace=pace)
    for event in history:
        final.take(event)
    found: list[Violation] = []
    world = World(pace=pace)
    statuses = _Statuses()
    evictions = _Evictions()
    zones = _ZoneOrder(final)
    for event in history:
        if event["kind"] == "object":
            found += _eviction(event, world, final)
            found += evictions.check(event, world)
            found += _prediction(event, world, final)
            found += statuses.check(event)
            found += zones.check(event)
        elif event["kind"] == "kubelet" and event["what"] == "rejected":
            found += _opening(event, world, history)
        elif event["kind"] == "denied" and event["client"] in (_OPERATOR, _EXPORTER):
            found.append(Violation("denied", event["t"], f"{event['client']} was denied: {event['message']}"))
        world.take(event)
    return sorted([*found, *_calms(history, pace)], key=lambda violation: violation.t)


# No eviction without a proof that held at that moment; no budget exceeded


def _eviction(event: Event, world: World, final: World) -> Iterator[Violation]:
    if not _is_eviction(event):
        return
    t, name = event["t"], event["name"]
    pod = world.pods.get(event["after"]["metadata"]["uid"])
    if pod is None or pod["metadata"].get("deletionTimestamp"):
        return  # asked for again
    plan = _announcing(world, pod["metadata"]["uid"])
    if plan is None:
        yield Violation("eviction", t, f"{name} was evicted, and no plan in execution had announced it")
        return
    policy = world.objects.get(("rebalancepolicies", plan["spec"]["policy"]))
    if policy is None or not _allows(policy, plan):
        yield Violation("eviction", t, f"{name} was evicted, and the policy did not want it")
    if not any(_gains(plan, pod, moment, policy, world, t) for moment in final.window(t - final.pace.lag, t)):
        yield Violation("eviction", t, f"{name} was evicted, and at no moment before would that have gained")
    for (resource, budget), body in world.objects.items():
        if resource == "poddisruptionbudgets" and _covers(body, pod):
            healthy = sum(_is_healthy(one) and _covers(body, one) for one in world.pods.values())
            least = int(body["spec"]["minAvailable"])
            if healthy - 1 < least:
                yield Violation("budget", t, f"{name}: {budget} wants {least}, and {healthy} were there")


class _Evictions:
    """Evictions of each plan: one for each move, and none for a less important or a hostile pod."""

    def __init__(self) -> None:
        self._evicted: dict[str, set[str]] = {}
        """UID of a plan → pods that were evicted for it."""

    def check(self, event: Event, world: World) -> Iterator[Violation]:
        """Check one eviction."""
        uid = event["after"]["metadata"]["uid"]
        pod = world.pods.get(uid)
        if not _is_eviction(event) or pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        if event["type"] != "DELETED" and not event["after"]["metadata"].get("deletionTimestamp"):
            return  # the condition DisruptionTarget, which comes first
        plan = _announcing(world, uid)
        if plan is None:
            return  # told as another rule
        t, name = event["t"], event["name"]
        evicted = self._evicted.setdefault(plan["metadata"]["uid"], set())
        moved = {move["pod"]["uid"] for move in plan["spec"]["moves"]}
        if uid in evicted or uid not in moved or len(evicted) >= len(moved):
            yield Violation("double", t, f"{name} was evicted beyond the {len(moved)} moves of its plan")
        evicted.add(uid)
        for one in plan["spec"].get("placements") or ():
            waits = world.pods.get(one["pod"]["uid"]) or world.waited.get(one["pod"]["uid"], (0.0, None))[1]
            if waits is None:
                continue
            waiting = waits["metadata"]["name"]
            if _is_hostile(waits):
                yield Violation(
                    "outranked", t, f"{name} was evicted for {waiting}, which may ask for nothing"
                )
            elif _priority(pod) > _priority(waits):
                yield Violation("outranked", t, f"{name} was evicted for {waiting}, which it outranks")


def _is_hostile(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is the hostile tenant's: nothing is promised to it."""
    return "hostile" in (pod["metadata"].get("labels") or {})


def _priority(pod: Mapping[str, Any]) -> int:
    return int(pod["spec"].get("priority") or 0)


def _is_eviction(event: Event) -> bool:
    """Return whether a pod was evicted, or deleted by the operator, which must evict it instead."""
    if event["resource"] != "pods":
        return False
    deleted: bool = event["client"] == _OPERATOR and event["verb"] == "delete"
    return deleted or event["sub"] == "eviction"


def _announcing(world: World, uid: str) -> dict[str, Any] | None:
    for (resource, _), body in world.objects.items():
        status = body.get("status") or {}
        if resource == "rebalancerecommendations" and status.get("phase") == "Executing":
            for one in status.get("progress") or ():
                if one["pod"]["uid"] == uid and one["phase"] == "Evicting":
                    return body
    return None


def _allows(policy: Mapping[str, Any], plan: Mapping[str, Any]) -> bool:
    spec = policy["spec"]
    if (spec.get("schedule") or {}).get("suspend"):
        return False
    return spec["mode"] == "Auto" or (spec["mode"] == "Approve" and bool(plan["spec"].get("approved")))


def _gains(
    plan: Mapping[str, Any], pod: Mapping[str, Any], at: Moment, policy: Any, world: World, t: float
) -> bool:
    """Return whether the moves that are left would raise what the goal counts."""
    placements = plan["spec"].get("placements") or ()
    if placements:
        lists = _waiting(placements, world, t - world.pace.lag)
        return any(_makes_room(plan, pod, at, waiting) for waiting in lists)
    shapes = ((policy or {}).get("spec") or {}).get("goals", {}).get("shapes") or ()
    size = next((int(one["resources"]["cpu"]) for one in shapes), 0)
    after = _after_moves(plan, pod, at, ())
    return bool(size) and after is not None and _count(after, size) > _count(at.free, size)


def _makes_room(
    plan: Mapping[str, Any], pod: Mapping[str, Any], at: Moment, waiting: Sequence[tuple[int, str]]
) -> bool:
    """Return whether pods that wait, with CPUs and node, all find room after the moves and did not before."""
    return (
        bool(waiting)
        and not _all_placed(at.free, [cpus for cpus, _node in waiting])
        and _after_moves(plan, pod, at, waiting) is not None
    )


def _waiting(
    placements: Iterable[Mapping[str, Any]], world: World, since: float
) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Return a plan's pods that wait (CPUs, node): those that do now, and all that did since then."""
    now: list[tuple[int, str]] = []
    lately: list[tuple[int, str]] = []
    for one in placements:
        uid, node = one["pod"]["uid"], one["target"]["node"]
        known = world.pods.get(uid)
        ended, before = world.waited.get(uid, (float("-inf"), {}))
        if known is not None and _waits(known):
            now.append((cpus_of(known), node))
            lately.append((cpus_of(known), node))
        elif ended >= since:
            lately.append((cpus_of(before), node))
    return now, lately


def _after_moves(
    plan: Mapping[str, Any], pod: Mapping[str, Any], at: Moment, waiting: Iterable[tuple[int, str]]
) -> Free | None:
    """Return what is free after the moves that are left and the pods that wait; None: one finds no room."""
    free = {node: dict(zones) for node, zones in at.free.items()}
    late: list[tuple[int, str]] = []
    done = {one["pod"]["uid"]: one["phase"] for one in plan["status"].get("progress") or ()}
    for move in plan["spec"]["moves"]:
        uid = move["pod"]["uid"]
        if done.get(uid) in ("Verified", "Placed") and uid != pod["metadata"]["uid"]:
            continue
        place = at.pods.get(move["source"]["node"], {}).get(uid)
        if place is None:
            return None
        zone, cpus = place
        free[move["source"]["node"]][zone] += cpus
        if move.get("afterPending"):
            late.append((cpus, move["target"]["node"]))
        elif not _take(free.get(move["target"]["node"], {}), cpus):
            return None
    if not all(_take(free.get(node, {}), cpus) for cpus, node in (*waiting, *late)):
        return None
    return free


def _take(zones: dict[str, int], cpus: int) -> bool:
    """Take CPUs as a kubelet does; False: it rejects the pod."""
    zone = lowest_zone(zones, cpus)
    if zone is not None:
        zones[zone] -= cpus
    return zone is not None


def _all_placed(at: Free, sizes: Iterable[int]) -> bool:
    """Return whether all fit somewhere as it is, the largest first where it fits most tightly."""
    zones = [cpus for node in at.values() for cpus in node.values()]
    for size in sorted(sizes, reverse=True):
        fitting = [cpus for cpus in zones if cpus >= size]
        if not fitting:
            return False
        zones[zones.index(min(fitting))] -= size
    return True


def _count(free: Free, size: int) -> int:
    return sum(cpus // size for zones in free.values() for cpus in zones.values())


def lowest_zone(zones: Mapping[str, int], cpus: int) -> str | None:
    """The zone that a kubelet takes; None: it rejects the pod."""
    return next((zone for zone in sorted(zones, key=int) if zones[zone] >= cpus), None)


def _covers(budget: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    wanted = budget["spec"]["selector"]["matchLabels"]
    labels = pod["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in wanted.items())


def _is_healthy(pod: Mapping[str, Any]) -> bool:
    running = (pod.get("status") or {}).get("phase") == "Running"
    return running and not pod["metadata"].get("deletionTimestamp")


# No opening beyond the room


def _is_release(event: Event) -> bool:
    body = event["body"] if isinstance(event["body"], dict) else {}
    spec = body.get("spec") or {}
    return event["client"] == _OPERATOR and "schedulingGates" in spec and "affinity" in spec


def _opening(event: Event, world: World, history: Sequence[Event]) -> Iterator[Violation]:
    """A pod that came through the gate is not rejected, unless others came to its node past the gate."""
    released = world.released.get(event["uid"])
    if released is None:
        return
    since = world.known_since(released)
    for other in history:
        if other["kind"] != "kubelet" or other["node"] != event["node"] or other["what"] == "removed":
            continue
        if since <= other["t"] <= event["t"] and other["uid"] not in world.released:
            return
    if since < released - world.pace.lag:  # released on what was known before a fault
        return
    pod = (world.pods.get(event["uid"]) or {"metadata": {"name": event["uid"]}})["metadata"]["name"]
    yield Violation("opening", event["t"], f"{pod} came through the gate, and {event['node']} rejected it")


# No prediction that contradicts what was known


def cpus_of(pod: Mapping[str, Any]) -> int:
    """The CPUs of a pod's one container."""
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def _prediction(event: Event, world: World, final: World) -> Iterator[Violation]:
    if (event["resource"], event["sub"]) != ("admissionpredictions", "status"):
        return
    after = event["after"]
    status, uid = after.get("status") or {}, str((after.get("spec") or {}).get("podUID"))
    pod = world.pods.get(uid)
    verdict = status.get("verdict")
    if pod is None or pod["spec"].get("nodeName") or "outcome" in status or event["client"] != _OPERATOR:
        return
    if _is_hostile(pod):
        return
    if verdict not in ("Admissible", "Inadmissible"):
        return
    t, cpus = event["t"], cpus_of(pod)
    window = final.window(world.known_since(t), t + final.pace.lag)
    if not any(_fits(moment.free, cpus) == (verdict == "Admissible") for moment in window):
        yield Violation("prediction", t, f"{after['metadata']['name']} with {cpus} CPUs was called {verdict}")


def _fits(free: Free, cpus: int) -> bool:
    return any(lowest_zone(zones, cpus) is not None for zones in free.values())


# No status older than one before it


class _Statuses:
    """Phases of plans and moves only go on."""

    def __init__(self) -> None:
        self._plans: dict[str, int] = {}
        self._moves: dict[tuple[str, str], int] = {}

    def check(self, event: Event) -> Iterator[Violation]:
        """Check one write."""
        if (event["resource"], event["sub"]) != ("rebalancerecommendations", "status"):
            return
        uid, status = event["after"]["metadata"]["uid"], event["after"].get("status") or {}
        rank = _rank(_PLAN, status.get("phase") or "Proposed")
        before = self._plans.get(uid, 0)
        if rank < before or before == len(_PLAN) - 1:
            yield Violation(
                "status", event["t"], f"{event['name']} went from {_PLAN[before]} to {status['phase']}"
            )
        self._plans[uid] = max(rank, before)
        for one in status.get("progress") or ():
            key = (uid, one["pod"]["uid"])
            rank, before = _rank(_MOVE, one["phase"]), self._moves.get(key, 0)
            withdrawn = (_MOVE[before], one["phase"]) == ("Evicting", "Pending")
            if rank < before and not withdrawn:
                yield Violation(
                    "status",
                    event["t"],
                    f"{event['name']}: a move went from {_MOVE[before]} to {one['phase']}",
                )
            self._moves[key] = rank


def _rank(order: Sequence[str], phase: str) -> int:
    return order.index(phase) if phase in order else len(order) - 1


class _ZoneOrder:
    """The rule that Ready zones show a past true state, and never one older than they showed before."""

    def __init__(self, final: World) -> None:
        self._moments = final.moments
        self._at: dict[str, int] = {}

    def check(self, event: Event) -> Iterator[Violation]:
        """Check one write."""
        if (event["resource"], event["sub"]) != ("numazones", "status") or event["client"] != _EXPORTER:
            return
        zone = event["after"]
        free = free_of(zone)
        if free is None:
            return
        node, number = zone["spec"]["nodeName"], str(zone["spec"]["numaID"])
        for index in range(self._at.get(event["name"], 0), len(self._moments)):
            moment = self._moments[index]
            if moment.t > event["t"]:
                break
            if moment.free.get(node, {}).get(number) == free:
                self._at[event["name"]] = index
                return
        yield Violation(
            "zone",
            event["t"],
            f"{event['name']} says {free} CPUs are free, which was not so since it spoke last",
        )


def free_of(zone: Mapping[str, Any]) -> int | None:
    """The free CPUs that a zone tells; None: it is not Ready, or has no status."""
    status = zone.get("status") or {}
    ready = {one["type"]: one["status"] for one in status.get("conditions") or ()}.get("Ready")
    for one in status.get("resources") or ():
        if one["name"] == "cpu" and ready == "True":
            return int(one["allocatable"]) - int(one.get("assigned", 0))
    return None


# Everything right again within the promised time


def _calms(history: Sequence[Event], pace: Pace) -> Iterator[Violation]:
    world = World()
    began: float | None = None
    for event in history:
        world.take(event)
        if event["kind"] == "calm":
            began = event["t"]
        elif event["kind"] == "end" and began is not None:
            wrong = list(wrongs(world))
            if wrong:
                yield Violation(
                    "calm", event["t"], f"{event['t'] - began:.0f} s without faults, and {wrong[0]}"
                )
            elif event["t"] - began > pace.promised:
                yield Violation("calm", event["t"], f"it took {event['t'] - began:.0f} s until all was right")
            began = None


def wrongs(world: World) -> Iterator[str]:
    """Say what is not as it should be once nothing happens any more."""
    free = world.moments[-1].free
    for (resource, name), zone in world.objects.items():
        if resource == "numazones" and zone["spec"]["nodeName"] in free:
            told, real = (
                free_of(zone),
                free.get(zone["spec"]["nodeName"], {}).get(str(zone["spec"]["numaID"])),
            )
            if told != real:
                yield f"zone {name} says {told} CPUs are free, and {real} are"
    executing = any(
        resource == "rebalancerecommendations" and (body.get("status") or {}).get("phase") == "Executing"
        for (resource, _), body in world.objects.items()
    )
    if executing:
        yield "a plan is still being carried out"
    yield from _wrong_pods(world, free)


def _wrong_pods(world: World, free: Free) -> Iterator[str]:
    predictions = {
        (body.get("spec") or {}).get("podUID"): (body.get("status") or {}).get("verdict")
        for (resource, _), body in world.objects.items()
        if resource == "admissionpredictions"
    }
    waiting = [pod for pod in world.pods.values() if _waits(pod) and not _is_hostile(pod)]
    for pod in waiting:
        name, cpus = pod["metadata"]["name"], cpus_of(pod)
        expected = "Admissible" if _fits(free, cpus) else "Inadmissible"
        said = predictions.get(pod["metadata"]["uid"])
        if said != expected:
            yield f"pod {name} with {cpus} CPUs is called {said}, and is {expected}"
        if expected == "Admissible" and pod["spec"].get("schedulingGates"):
            yield f"pod {name} with {cpus} CPUs waits at the gate, and there is room"
    for pod in world.pods.values():
        phase = (pod.get("status") or {}).get("phase") or "Pending"
        if pod["spec"].get("nodeName") and phase == "Pending":
            yield f"pod {pod['metadata']['name']} is bound and not decided on"


def _waits(pod: Mapping[str, Any]) -> bool:
    ended = (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")
    return not pod["spec"].get("nodeName") and not ended and not pod["metadata"].get("deletionTimestamp")


def after(history: Iterable[Event]) -> World:
    """Return what a history has led to."""
    world = World()
    for event in history:
        world.take(event)
    return world
