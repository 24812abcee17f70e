"""Every rejection of recorded kubelets: same reason, true numbers, advice that is admitted when applied.

What ``why`` prints is read back, number by number, and held against the recorder's raw files
(``raw_cluster``); a number that nothing here recomputes fails the test.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kubectl_numazones.reading import recorded_files, recording
from numazones import cpuset
from numazones.api.zones_from_node import zones_from_node
from numazones.apimachinery.defaulting import created_spec
from numazones.kubelet.admission import Admission, admit, remove
from numazones.kubelet.explanation import explain
from numazones.kubelet.hints import Hint
from numazones.kubelet.node import Node
from numazones.kubelet.node_admission import NodeAdmission, admit_to_node
from numazones.kubelet.node_info import NodeInfo, PodInfo
from numazones.kubelet.pod import Pod
from numazones.kubelet.topology_manager import TopologyManager
from tests.kubectl import raw_cluster
from tests.kubectl.raw_cluster import Moment, Numas, RawNode, Share, amount, ids, is_bytes
from tests.kubectl.small_cluster import TIME, written
from tests.numazones.kubelet.slow_merge import slow_merge

_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
_NUMAS = r"NUMA nodes? [\d,-]+"
_BINDS = (
    rf"memory in use binds (?P<groups>{_NUMAS}.*), "
    "and other pods can use memory there only in the same combination"
)


@dataclass(frozen=True)
class Decided:
    """One decision about an arrival, as the replay came to it."""

    line: Mapping[str, Any]
    before: Node
    said: NodeAdmission

    @property
    def seq(self) -> int:
        return int(self.line["seq"])


@pytest.fixture(scope="module")
def replayed(shared: Path) -> dict[Path, dict[str, list[Decided]]]:
    """Recording → node → every decision, in order; all are those of the kubelets."""
    found: dict[Path, dict[str, list[Decided]]] = {}
    with pytest.MonkeyPatch.context() as patch:
        for path in sorted((shared / "recordings").iterdir()):
            if not recorded_files.is_recording(path):
                continue
            lines = {line["uid"]: line for line in raw_cluster.history(path) if line["op"] == "create"}
            nodes = found.setdefault(path, {})

            def watched(
                node: NodeInfo,
                pod: PodInfo,
                lines: Mapping[str, Mapping[str, Any]] = lines,
                nodes: dict[str, list[Decided]] = nodes,
            ) -> NodeAdmission:
                said = admit_to_node(node, pod)
                line = lines[pod.pod.uid]
                nodes.setdefault(line["node"], []).append(Decided(line, node.state, said))
                return said

            patch.setattr("numazones.whatif.history.admit_to_node", watched)
            assert recording.compare(path).differ == []
    assert found
    return found


def numas_in(text: str) -> Numas:
    """The NUMA nodes that ``NUMA nodes 0-1,3`` names."""
    return frozenset(ids(text.rpartition(" ")[2]))


def shows(text: str, exact: Fraction | int) -> bool:
    """Return whether a figure stands for an amount: plain ones exactly, others rounded down to a tenth."""
    unit = Fraction(amount(f"1{text.lstrip('0123456789.')}"))
    shown = amount(text)
    return bool(shown == exact or (unit > 1 and 0 <= exact - shown < unit / 10))


def amounts_in(text: str) -> dict[str, str]:
    """Resource → figure of ``1Gi hugepages-2Mi, 576Mi memory and 2 exclusive CPUs``."""
    pairs = [part.split(" ", 1) for part in re.split(r", | and ", text)]
    return {"cpu" if noun.startswith("exclusive CPU") else noun: figure for figure, noun in pairs}


class Reader:
    """Reads what ``why`` prints about one pod, and recomputes every number in it."""

    def __init__(
        self, moments: Mapping[str, Moment], states: Mapping[str, Node], body: dict[str, Any]
    ) -> None:
        self.moments, self.states, self.body = moments, states, body
        self.pod = Pod.from_manifest({**body, "metadata": {**body["metadata"], "uid": "newcomer"}})
        self.lacks = {name: self._lacks(moment) for name, moment in moments.items()}
        self.excluded = {name for name, lacks in self.lacks.items() if lacks or not self._selects(name)}
        self.decisions = {name: admit(states[name], self.pod) for name in states if name not in self.excluded}
        self.figures = 0

    def true(self, figure: str, exact: Fraction | int, text: str) -> None:
        assert shows(figure, exact), f"{figure} in {text!r} is {exact}"
        self.figures += 1

    def _lacks(self, moment: Moment) -> dict[str, tuple[Fraction, Fraction]]:
        asked = raw_cluster.scheduled(self.body)
        free = {name: moment.unrequested(name) for name in asked}
        return {name: (value, free[name]) for name, value in asked.items() if value > free[name]}

    def _selects(self, name: str) -> bool:
        labels = self.moments[name].node.body["metadata"]["labels"]
        wanted: Mapping[str, str] = self.body["spec"].get("nodeSelector") or {}
        return all(labels.get(key) == value for key, value in wanted.items())

    # Answers

    def explanation_lines(self, text: str, outcome: Mapping[str, Any]) -> None:
        """The answer in text."""
        said = str(outcome["message"]).removeprefix("Pod was rejected: ")
        first, loop, *rest = text.splitlines()
        name = f"{self.body['metadata']['namespace']}/{self.body['metadata']['name']}"
        past = f"{name}: rejected on {outcome['node']} with {outcome['reason']} ({said}); now: "
        assert first.startswith(past)
        self.sentence(first.removeprefix(past))
        assert loop == (f"It was created at {TIME}; a rejected pod is not retried: delete and recreate it")
        self.figures += 3
        rows = 0
        for line in rest:
            if line.startswith("  - "):
                self.advice(line[4:])
            elif line[:6].strip() in self.moments:
                node, verdict, why = re.split(r" {2,}", line.strip(), maxsplit=2)
                self.row(node, verdict, why)
                rows += 1
            else:
                assert not re.search(r"\d", line), line
        assert rows == len(self.moments)

    def sentence(self, text: str) -> None:
        """The prediction in a sentence: about all nodes, or about the nearest one."""
        empty = re.fullmatch(
            r"(.* (?:on |\(|Closest: )(\S+?)\)?(?:, the closest of \d+ nodes| \(\S+ free\))?); "
            r"(?:(?:even when|in addition, the pod needs .* even when) empty.*|"
            r"the node would not admit it even when empty)",
            text,
        )
        if empty:
            assert not admit(self.states[empty[2]].emptied, self.pod).admitted, text
            text = empty[1]
        of_all = re.fullmatch(
            rf"(\d+) of (\d+) nodes would admit it; best is (\S+)(?: on ({_NUMAS}.*))?", text
        )
        if of_all:
            self.true(of_all[1], sum(one.admitted for one in self.decisions.values()), text)
            self.true(of_all[2], len(self.decisions), text)
            self.zones(of_all[3], of_all[4] or "")
            return
        at_all = re.fullmatch(r"no node has (\S+?)(?: of)? (\S+) at all; the most is (\S+), on (\S+)", text)
        if at_all:
            resource = "cpu" if at_all[2] in {"CPU", "CPUs"} else at_all[2]
            totals = {
                one: amount(moment.node.body["status"]["allocatable"].get(resource, "0"))
                for one, moment in self.moments.items()
            }
            self.true(at_all[3], max(totals.values()), text)
            assert totals[at_all[4]] == max(totals.values()) < amount(at_all[1]), text
            return
        if text.startswith("Insufficient "):
            lacks, node, count = self._nearest(text)
            self.scheduler(lacks, node)
            first = re.match(r"Insufficient (\S+):", lacks)
            assert first
            alike = [one for one, lacking in self.lacks.items() if lacking and self.counted(one) == first[1]]
            self.true(str(count), len(alike), text)
            assert share(self.lacks[node]) == max(share(self.lacks[one]) for one in alike)
            return
        closest = re.fullmatch(r"No node has (\S+?)(?: of)? (\S+) free\. Closest: (\S+) \((\S+) free\)", text)
        if closest:
            resource = "cpu" if closest[2] in {"CPU", "CPUs"} else closest[2]
            free = {one: lacking[resource][1] for one, lacking in self.lacks.items()}
            assert free.keys() == self.states.keys()
            self.true(closest[1], self.lacks[closest[3]][resource][0], text)
            self.true(closest[4], free[closest[3]], text)
            assert free[closest[3]] == max(free.values()), text
            return
        about = re.search(r"(?: of | \()(rig-[a-d])\)?$", text)
        assert about, text
        # The name of the node may stand within the brackets of the NUMA node.
        end = ")" if about[0].startswith(" of ") and about[0].endswith(")") else ""
        self.shortfall(text[: about.start()] + end, about[1])

    def counted(self, name: str) -> str:
        """By which lack a node counts: first what all nodes lack, then what it lacks even when empty."""
        lacking = self.lacks[name]
        common = set.intersection(*(set(self.lacks[other]) for other in self.states))
        there = self.moments[name].node.body["status"]["allocatable"]

        def order(resource: str) -> tuple[bool, Fraction, str]:
            asked, free = lacking[resource]
            return amount(there.get(resource, "0")) >= asked, free / asked, resource

        return min([one for one in lacking if one in common] or lacking, key=order, default="")

    def _nearest(self, text: str) -> tuple[str, str, int]:
        match = re.fullmatch(r"(.*) on (\S+?)(?:, the closest of (\d+) nodes)?", text)
        assert match, text
        return match[1], match[2], int(match[3] or 1)

    def document(self, text: str) -> None:
        """The answer as JSON: the counts of nodes."""
        found = json.loads(text)
        admitted = sum(one.admitted for one in self.decisions.values())
        counts = {
            "evaluated": len(self.decisions),
            "admissible": admitted,
            "unknown": 0,
            "excluded": len(self.excluded),
        }
        assert found["nodes"] == counts
        by_reason: Counter[str] = Counter(
            one.reason for one in self.decisions.values() if not one.admitted and one.reason
        )
        for name in self.excluded:
            by_reason[
                f"Insufficient {self.counted(name)}"
                if self._selects(name)
                else "node(s) didn't match Pod's node affinity/selector"
            ] += 1
        assert {item["reason"]: item["nodes"] for item in found["reasons"]} == by_reason
        self.figures += len(counts) + len(by_reason)
        for item in found["reasons"]:
            if item["sentence"] != item["reason"]:
                self.sentence(item["sentence"])
        for item in found["advice"]:
            self.advice(f"{item['sentence']} ({item['node']})")

    def row(self, node: str, verdict: str, why: str) -> None:
        """One line of the table of nodes."""
        if verdict == "Excluded":
            assert node in self.excluded
            self.scheduler(why, node)
            return
        decision = self.decisions[node]
        assert verdict == ("Admissible" if decision.admitted else "Inadmissible")
        if decision.admitted:
            self.zones(node, why.removeprefix("on ") if why != "in the shared pool" else "")
            return
        reason, _, shortfall = why.partition(": ")
        assert reason == decision.reason
        self.shortfall(shortfall, node)

    def scheduler(self, text: str, node: str) -> None:
        """Check what the scheduler has against a node."""
        for part in text.split("; "):
            lack = re.fullmatch(r"Insufficient (\S+): (\S+) requested, (\S+) free", part)
            if lack is None:
                assert not re.search(r"\d", part), part
                assert not self._selects(node)
                continue
            asked, free = self.lacks[node][lack[1]]
            self.true(lack[2], asked, text)
            self.true(lack[3], free, text)

    def zones(self, node: str, text: str) -> None:
        """Check where a node would put the pod."""
        moment, given = self.moments[node], given_to(self.decided(node), self.moments[node].node)
        near = {numa for numa, cpus in moment.node.cpus_of.items() if cpus & given.cpus}
        near |= {numa for _, numas, size in given.blocks for numa in numas if size}
        near |= {numa for kind, device in given.devices for numa in moment.node.devices[kind][device]}
        assert (numas_in(text) if text else frozenset()) == near, text
        self.figures += len(near)

    # One node

    def node(self, text: str, name: str, outcome: Mapping[str, Any]) -> None:
        """Everything about one node."""
        moment = self.moments[name]
        told, _, holders = text.partition("\nWho holds what:\n")
        hints: list[Hint] = []
        steps: list[tuple[Mapping[str, Fraction], Moment]] = []
        for line in told.splitlines()[1:]:
            said = line.strip()
            container = re.fullmatch(r"(?:container (\S+)|pod): (.*)", said)
            if container:
                if not hints:
                    steps.append(self.step(container[1], name))
                offers = re.fullmatch(r"(\S+) offers (.*)", container[2])
                if offers:
                    hints.append(Hint(None, preferred=True))
                    self.offers(offers[1], offers[2], *steps[-1])
                else:
                    self.merged(container[2], *steps[-1], policy=self.states[name].kubelet.topology)
                    hints = []
            elif said.startswith("scheduler: "):
                self.scheduler(said.removeprefix("scheduler: "), name)
            elif said == f"{outcome['reason']}: {str(outcome['message']).removeprefix('Pod was rejected: ')}":
                self.figures += len(re.findall(r"\d+", said))  # the kubelet's own words
            elif said.startswith("admitted"):
                self.zones(name, said.removeprefix("admitted, on ") if "," in said else "")
            else:
                self.shortfall(said, name)
        self.holders(holders, moment)

    def step(self, container: str | None, name: str) -> tuple[Mapping[str, Fraction], Moment]:
        """Return what is requested when hints are made for a container (or the pod), and the node then."""
        moment = self.moments[name]
        if container is None:
            return raw_cluster.total(self.body, lambda part: raw_cluster.managed(self.body, part)), moment
        parts = raw_cluster.containers(self.body)
        position = [part["name"] for part in parts].index(container)
        return raw_cluster.managed(self.body, parts[position]), self.after(position, name)

    def after(self, position: int, name: str) -> Moment:
        """The node once it has admitted the containers before one."""
        if not position:
            return self.moments[name]
        before = raw_cluster.containers(self.body)[:position]
        plain = self.body["spec"].get("initContainers") or ()
        assert not any(part in plain and "restartPolicy" not in part for part in before), "no reuse"
        admitted = admit(self.states[name], replace(self.pod, containers=self.pod.containers[:position]))
        assert admitted.admitted
        return self.moments[name].with_share("newcomer", given_to(admitted, self.moments[name].node))

    def offers(self, resource: str, text: str, asked: Mapping[str, Fraction], moment: Moment) -> None:
        """The hints for one resource."""
        expected = moment.hints(resource, asked)
        free_of_numa = moment.node.without_topology(resource)
        if free_of_numa or (is_bytes(resource) and not expected):
            assert text == "no preference"
        elif not expected:
            assert text == "nothing that fits"
        else:
            found = re.findall(rf"({_NUMAS}) \((preferred|not preferred)\)", text)
            assert {numas_in(numas): said == "preferred" for numas, said in found} == expected, text
            self.figures += len(found)

    def merged(
        self, text: str, asked: Mapping[str, Fraction], moment: Moment, *, policy: TopologyManager
    ) -> None:
        """Check the result of merging the hints."""
        best = merge(asked, moment, policy)
        where = "any NUMA node" if best.affinity is None else None
        match = re.fullmatch(
            rf"merged to (any NUMA node|{_NUMAS}) \((preferred|not preferred)\), (admitted|rejected)", text
        )
        assert match, text
        assert match[2] == ("preferred" if best.preferred else "not preferred"), text
        if where is None:
            assert numas_in(match[1]) == frozenset(cpuset.ids(best.affinity or 0)), text
            self.figures += 1
        else:
            assert match[1] == where, text

    def alignment(self, word: str, mine: Share, moment: Moment) -> None:
        """Check what is said of a pod that holds everything on one NUMA node."""
        used = {numa for numa, cpus in moment.node.cpus_of.items() if mine.cpus & cpus}
        used |= {numa for _, numas, size in mine.blocks if size for numa in numas}
        near = [moment.node.devices[kind][one] for kind, one in mine.devices]
        if len(used) == 1 and all(not numas or numas & used for numas in near):
            assert word == "aligned"

    def holders(self, text: str, moment: Moment) -> None:
        """Check who holds what, NUMA node by NUMA node."""
        rows = set()
        head, *lines = text.splitlines() or [""]
        starts = [head.index(title) for title in ("POD", "DEVICES", "ALIGNMENT")] if lines else []
        for line in lines:
            numa, (pod, *rest) = line[: starts[0]].strip(), line[starts[0] : starts[1]].split(None, 1)
            held = " ".join(rest)
            cpus = re.match(r"[\d,-]+(?= {2,}|$)", held)
            memory = held[cpus.end() if cpus else 0 :].strip()
            rows.add((numa, pod))
            (mine,) = [one for one in moment.shares.values() if one.name == pod]
            near = frozenset({int(numa)} if numa != "any" else ())
            assert ids(cpus[0] if cpus else "") == mine.cpus & moment.node.cpus(near), line
            blocks = sorted((size, kind, numas) for kind, numas, size in mine.blocks if near & numas and size)
            said = []
            for part in re.split(r", (?=[\d.]+[KMGT]i)", memory) if memory else ():
                form = re.fullmatch(rf"(\S+?)(?: (hugepages-\S+))?(?: over ({_NUMAS}))?", part)
                assert form, part
                said.append((form[1], form[2] or "memory", numas_in(form[3]) if form[3] else near))
            assert len(said) == len(blocks)
            for figure, kind, numas in said:
                (block,) = [one for one in blocks if one[1:] == (kind, numas) and shows(figure, one[0])][:1]
                blocks.remove(block)
            devices = {
                (kind, one)
                for kind, one in mine.devices
                if (near & moment.node.devices[kind][one] if near else not moment.node.devices[kind][one])
            }
            told = {
                (kind, one)
                for group in line[starts[1] : starts[2]].split()
                for kind, _, listed in [group.partition(":")]
                for one in listed.split(",")
            }
            assert told == {(kind.rpartition("/")[2], one) for kind, one in devices}, line
            self.alignment(line[starts[2] :], mine, moment)
            self.figures += len(re.findall(r"\d+", line))
        expected = {
            (str(numa), one.name)
            for one in moment.shares.values()
            for numa, cpus in moment.node.cpus_of.items()
            if one.cpus & cpus
            or any(numa in numas and size for _, numas, size in one.blocks)
            or any(numa in moment.node.devices[kind][device] for kind, device in one.devices)
        }
        expected |= {
            ("any", one.name)
            for one in moment.shares.values()
            if any(not moment.node.devices[kind][device] for kind, device in one.devices)
        }
        assert rows == (expected if text else set()), text

    # What was missing

    def shortfall(self, text: str, name: str) -> None:
        """Check what a pod came closest to on a node, and what was lacking there."""
        decision, node = self.decided(name), self.moments[name].node
        if node.scope == "pod" and decision.reason == "TopologyAffinityError":
            asked, moment = self.step(None, name)
        else:
            position = next(
                count
                for count in range(len(self.pod.containers))
                if not admit(
                    self.states[name], replace(self.pod, containers=self.pod.containers[: count + 1])
                ).admitted
            )
            asked, moment = self.step(self.pod.containers[position].name, name)
        for form, check in self.forms():
            match = re.fullmatch(form, text)
            if match:
                check(match, asked, moment)
                return
        raise AssertionError(f"nothing recomputes the numbers in {text!r}")

    def decided(self, name: str) -> Admission:
        return self.decisions.get(name) or admit(self.states[name], self.pod)

    def forms(self) -> Sequence[tuple[str, Callable[[re.Match[str], Mapping[str, Fraction], Moment], None]]]:
        return (
            (
                (
                    r"needs (?P<needed>\S+ (?:exclusive CPUs?|\S+)) on (?P<width>\w+) NUMA nodes?"
                    r"(?P<never>, more than any has even when empty)?; "
                    r"(?:at most (?P<offer>\S+) (?:is|are) free on (?P=width) NUMA nodes? "
                    rf"\((?P<where>{_NUMAS})\)|none is free)"
                    rf"(?: \({_BINDS}\))?"
                ),
                self.fullest,
            ),
            (
                (
                    rf"the Topology Manager chose (?P<chosen>{_NUMAS}) for it, but (?P<needed>.+?) "
                    r"(?:is|are) not available there, even together with other NUMA nodes"
                    rf"(?:; at most (?P<most>.+?) (?:is|are) free, on (?P<where>{_NUMAS}))?"
                    rf"(?:(?:; | \(){_BINDS}\)?)?"
                ),
                self.around,
            ),
            (
                (
                    r"needs (?P<needed>\S+ (?:exclusive CPUs?|\S+)), "
                    r"but (?:only (?P<left>\S+) (?:is|are)|none is) free"
                ),
                self.left,
            ),
            (
                (
                    rf"no NUMA node has everything free at once; the closest, (?P<where>{_NUMAS}), "
                    r"lacks (?P<lacks>.*)"
                ),
                self.nearest,
            ),
            (
                (
                    r"(?P<empty>on an empty node )?(?P<narrow>.+) would fit on (?P<few>\w+) NUMA nodes?, "
                    r"(?P<wide>.+) only on (?P<many>\w+); policy \S+ requires the same NUMA nodes for all"
                    rf"(?:; now at most (?P<now>\S+ of .+ on {_NUMAS}) are free)?"
                ),
                self.widths,
            ),
            (
                (
                    r"requests (?P<cpus>\d+) CPUs?, which is not a multiple of (?P<threads>\d+), "
                    r"the threads per core"
                ),
                self.cores,
            ),
        )

    def fewest(self, resource: str, asked: Mapping[str, Fraction], node: RawNode) -> int:
        """The least number of NUMA nodes that hold what is asked for of a resource on an empty node."""
        kinds = [name for name in asked if is_bytes(name)] if is_bytes(resource) else [resource]
        return min(
            (
                len(numas)
                for numas in node.numa_sets
                if all(node.capacity(kind, numas) >= asked[kind] for kind in kinds)
            ),
            default=len(node.cpus_of),
        )

    def fullest(self, match: re.Match[str], asked: Mapping[str, Fraction], moment: Moment) -> None:
        ((resource, needed),) = amounts_in(match["needed"]).items()
        self.true(needed, asked[resource], match[0])
        node = moment.node
        width = 1 if node.policy == "single-numa-node" else self.fewest(resource, asked, node)
        self.true(str(_WORDS.index(match["width"])), width, match[0])
        sets = [numas for numas in node.numa_sets if len(numas) == width]
        best = max(moment.free(resource, numas) for numas in sets)
        assert best < asked[resource]
        self.true(match["offer"] or "0", best, match[0])
        if match["where"]:
            assert moment.free(resource, numas_in(match["where"])) == best
        assert bool(match["never"]) == all(node.capacity(resource, one) < asked[resource] for one in sets)
        self.binds(match["groups"], moment)

    def around(self, match: re.Match[str], asked: Mapping[str, Fraction], moment: Moment) -> None:
        chosen = numas_in(match["chosen"])
        policy = self.states[moment.node.name].kubelet.topology
        whole, then = self.step(None, moment.node.name) if moment.node.scope == "pod" else (asked, moment)
        assert chosen == frozenset(cpuset.ids(merge(whole, then, policy).affinity or 0))
        needed = amounts_in(match["needed"].replace(" of ", " "))
        assert needed.keys() == {name for name in asked if is_bytes(name)}
        for resource, figure in needed.items():
            self.true(figure, asked[resource], match[0])
        wider = [numas for numas in moment.node.numa_sets if chosen <= numas]
        assert not any(
            all(moment.free(resource, numas) >= asked[resource] for resource in needed) for numas in wider
        )
        for resource, figure in amounts_in(match["most"]).items() if match["most"] else ():
            self.true(figure, moment.free(resource, numas_in(match["where"])), match[0])
            self.true(figure, max(moment.free(resource, numas) for numas in wider), match[0])
            assert chosen <= numas_in(match["where"])
        self.binds(match["groups"], moment)

    def left(self, match: re.Match[str], asked: Mapping[str, Fraction], moment: Moment) -> None:
        ((resource, needed),) = amounts_in(match["needed"]).items()
        self.true(needed, asked[resource], match[0])
        self.true(match["left"] or "0", moment.free(resource, frozenset(moment.node.cpus_of)), match[0])

    def nearest(self, match: re.Match[str], asked: Mapping[str, Fraction], moment: Moment) -> None:
        bound = {name: value for name, value in asked.items() if not moment.node.without_topology(name)}
        lacking = {
            numa: [name for name in bound if moment.free(name, frozenset({numa})) < bound[name]]
            for numa in moment.node.cpus_of
        }
        assert all(lacking.values())
        where = numas_in(match["where"])
        told = [part.partition(" of the ") for part in re.split(r", | and ", match["lacks"])]
        for lack, _, needed in told:
            ((resource, figure),) = amounts_in(needed).items()
            self.true(figure, asked[resource], match[0])
            self.true(lack, asked[resource] - moment.free(resource, where), match[0])
        assert len(told) == len(lacking[min(where)]) == min(map(len, lacking.values()))

    def widths(self, match: re.Match[str], asked: Mapping[str, Fraction], moment: Moment) -> None:
        for names, count in ((match["narrow"], match["few"]), (match["wide"], match["many"])):
            for resource in re.split(r", | and ", names):
                self.true(str(_WORDS.index(count)), self.fewest(resource, asked, moment.node), match[0])
        told = {}
        for part in re.split(r"(?<=\d) and |(?<=\d), (?=\S+ of)", match["now"] or ""):
            form = re.fullmatch(rf"(\S+) of (.+) on ({_NUMAS})", part)
            if form:
                ((resource, needed),) = amounts_in(form[2]).items()
                self.true(form[1], moment.free(resource, numas_in(form[3])), match[0])
                self.true(needed, asked[resource], match[0])
                told[resource] = moment.free(resource, numas_in(form[3]))
        aligned = [name for name in asked if not moment.node.without_topology(name)]
        best = {
            name: max(
                moment.free(name, numas)
                for numas in moment.node.numa_sets
                if len(numas) == self.fewest(name, asked, moment.node)
            )
            for name in aligned
        }
        assert told == {name: free for name, free in best.items() if free < asked[name]}, match[0]
        assert bool(match["empty"]) == bool(told)

    def cores(self, match: re.Match[str], asked: Mapping[str, Fraction], moment: Moment) -> None:
        self.true(match["cpus"], asked["cpu"], match[0])
        self.true(match["threads"], moment.node.threads, match[0])
        assert asked["cpu"] % moment.node.threads

    def binds(self, text: str | None, moment: Moment) -> None:
        """Check how memory in use binds NUMA nodes."""
        if text is None:
            return
        told = re.findall(rf"({_NUMAS}) (by itself|together)", text)
        assert {numas_in(numas) for numas, _ in told} == moment.groups, text
        assert all((said == "by itself") == (len(numas_in(numas)) == 1) for numas, said in told)
        assert not re.search(r"\d", re.sub(_NUMAS, "", text)), text
        self.figures += len(told)

    # What would help

    def advice(self, text: str) -> None:
        """Apply a piece of advice as it is worded, and see it admitted."""
        would = re.fullmatch(r"(\S+) would admit it, but ([^\d]*)(?: \(\1\))?", text)
        if would:
            assert not self._selects(would[1])
            assert admit(self.states[would[1]], self.pod).admitted
            return
        setting = re.fullmatch(
            r"set (topologyManagerPolicy|topologyManagerScope): (\S+) on (\S+?)(?:, which [^\d]*)? "
            r"\(on a drained node\)(?: \(\3\))?",
            text,
        )
        form = re.fullmatch(r"(.*) \((\S+)\)", text)
        assert setting or form, text
        said, name = ("", setting[3]) if setting else (form[1], form[2]) if form else ("", "")
        state, moment = self.states[name], self.moments[name]
        wanted = r"(?:request| and) (.*?)(?: instead of (\S+))? in container (\S+)"
        asks = list(re.finditer(wanted, said)) if said.startswith("request ") else []
        move = re.fullmatch(
            r"(?:move|remove) (\S+?)(?:, which holds (\S+) (\S+?))?(?:,? to (\S+)| \(no [^\d]*\))", said
        )
        pod = self.pod
        if asks:
            assert "".join(ask[0] for ask in asks) == said
            body = deepcopy(self.body)
            for ask in asks:
                (part,) = [one for one in raw_cluster.containers(body) if one["name"] == ask[3]]
                for wish in ask[1].split(" and "):
                    figure, noun = wish.split(" ", 1)
                    resource = "cpu" if noun in {"CPU", "CPUs"} else noun
                    if ask[2]:
                        self.true(ask[2], amount(part["resources"]["limits"][resource]), text)
                    for asked in part["resources"].values():
                        if resource in asked:
                            asked[resource] = figure
                    self.figures += 1
            pod = Pod.from_manifest({**body, "metadata": {**body["metadata"], "uid": "newcomer"}})
        elif move:
            (uid,) = [uid for uid, one in moment.shares.items() if one.name == move[1]]
            if move[2]:
                self.true(move[2], moment.shares[uid].held("cpu" if "CPU" in move[3] else move[3]), text)
            assert move[4] is None or move[4] in self.states, text
            state = remove(state, uid)
        else:
            assert setting, text
            name = setting[1].removeprefix("topologyManager").lower()
            state = state.with_topology_settings(**{name: setting[2]})
        assert admit(state, pod).admitted, text


def scarcest(lacks: Mapping[str, tuple[Fraction, Fraction]]) -> str:
    """Return the resource with the smallest share available; of equals the first by name."""
    return min(lacks, key=lambda name: (lacks[name][1] / lacks[name][0], name), default="")


def share(lacks: Mapping[str, tuple[Fraction, Fraction]]) -> Fraction:
    asked, free = lacks[scarcest(lacks)]
    return free / asked


def given_to(admission: Admission, node: RawNode) -> Share:
    """Return what an admission gave to a pod."""
    given = Share({"metadata": {"namespace": "", "name": "newcomer"}, "spec": {"containers": []}})
    for part in admission.containers.values():
        given.cpus |= set(cpuset.ids(part.cpus))
        given.blocks += [
            (block.type, frozenset(cpuset.ids(block.affinity)), block.size) for block in part.memory
        ]
        given.devices |= {(kind, one) for kind, listed in part.devices.items() for one in listed}
    assert all(one in node.devices[kind] for kind, one in given.devices)
    return given


def merge(asked: Mapping[str, Fraction], moment: Moment, policy: TopologyManager) -> Hint:
    """The best of all combinations of hints."""
    lists: list[list[Hint]] = []
    for resource in asked:
        if moment.node.without_topology(resource):
            continue
        hints = moment.hints(resource, asked)
        if not hints:
            lists.append([Hint(None, preferred=is_bytes(resource))])
        else:
            lists.append([Hint(cpuset.of(numas), preferred) for numas, preferred in hints.items()])
    return slow_merge(policy, lists)


def test_every_number_that_why_tells_of_recorded_rejections_is_true(
    replayed: dict[Path, dict[str, list[Decided]]], run: Callable[..., Result], tmp_path: Path
) -> None:
    checked: Counter[str] = Counter()
    for path, decisions in replayed.items():
        lines = list(raw_cluster.history(path))
        machines = {name: raw_cluster.node(path / name) for name in decisions}
        by_uid = {line["uid"]: line for line in lines if line["op"] == "create"}
        for name, one in rejections(decisions):
            # The other nodes as they were when they last decided.
            last = {
                other: max((item for item in made if item.seq <= one.seq), key=by_seq, default=made[0])
                for other, made in decisions.items()
            }
            moments = {other: Moment(machines[other], lines, item.seq) for other, item in last.items()}
            states = {other: item.before for other, item in last.items()}
            reader = Reader(moments, states, one.line["pod"])
            dump = written(tmp_path / "dump.json", dumped(one.line, moments, states, by_uid))
            outcome = one.line["outcome"]
            ask = ("why", raw_name(one.line["pod"]), "-f", dump)
            reader.explanation_lines(run(*ask, "-o", "wide").output, outcome)
            reader.document(run(*ask, "-o", "json").output)
            reader.node(run(*ask, "--node", name).output, name, outcome)
            checked += Counter(rejections=1, figures=reader.figures)
    assert checked["rejections"] > 0
    assert checked["figures"] > 10 * checked["rejections"], checked


def test_holders_of_what_recorded_rejections_lacked_hold_that_much(
    replayed: dict[Path, dict[str, list[Decided]]],
) -> None:
    checked = 0
    for path, decisions in replayed.items():
        lines = list(raw_cluster.history(path))
        machines = {name: raw_cluster.node(path / name) for name in decisions}
        for name, one in rejections(decisions):
            if one.said.managers is None or one.said.managers.admitted:
                continue
            found = explain(one.said.managers)
            moment = Moment(machines[name], lines, one.seq)
            for short in found.shortages[:1]:
                near = frozenset(short.numas)
                held = {uid: moment.held(uid, short.resource, near) for uid in moment.shares}
                order = sorted((uid for uid in held if held[uid]), key=lambda uid: (-held[uid], uid))
                assert [uid for uid, _ in found.holders] == order
                for uid, told in found.holders:
                    ((resource, figure),) = amounts_in(told).items()
                    assert resource == short.resource
                    assert shows(figure, held[uid])
                    checked += 1
    assert checked > 0


def by_seq(one: Decided) -> int:
    return one.seq


def rejections(decisions: Mapping[str, list[Decided]]) -> Iterable[tuple[str, Decided]]:
    return ((name, one) for name, made in decisions.items() for one in made if not one.said.admitted)


def raw_name(body: Mapping[str, Any]) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"


def dumped(
    line: Mapping[str, Any],
    moments: Mapping[str, Moment],
    states: Mapping[str, Node],
    by_uid: Mapping[str, Mapping[str, Any]],
) -> Iterable[dict[str, Any]]:
    """The cluster as objects: its nodes with their zones and pods, and the pod that was rejected."""
    for name, moment in moments.items():
        yield moment.node.body
        version = moment.node.body["status"]["nodeInfo"]["kubeletVersion"]
        names = {
            uid: (
                str(by_uid[uid]["pod"]["metadata"]["namespace"]),
                str(by_uid[uid]["pod"]["metadata"]["name"]),
            )
            for uid in moment.shares
        }
        for zone in zones_from_node(states[name], node_name=name, pods=names, version=version):
            yield zone.to_api()
        for uid in moment.shares:
            yield pod_of(by_uid[uid], phase="Running")
    outcome = line["outcome"]
    yield pod_of(line, phase="Failed", reason=outcome["reason"], message=outcome["message"])


def pod_of(line: Mapping[str, Any], **status: Any) -> dict[str, Any]:
    body = line["pod"]
    return {
        **body,
        "metadata": {**body["metadata"], "uid": line["uid"], "creationTimestamp": TIME},
        "spec": {
            **created_spec(body["spec"], namespace=body["metadata"]["namespace"]),
            "nodeName": line["node"],
        },
        "status": status,
    }
