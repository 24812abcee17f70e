// Room that is held for pods on their way to a node, and nodes of which nothing is known.

function heldSection() {
  return el("section", { id: "held", "aria-labelledby": "held-title" }, el("h2", { id: "held-title" }, "Pods on their way to a node"), el("p.quiet", {}, "Room is held for these pods until they arrive or until the time shown, so that no other pod gets it."), el("div.list"));
}

function drawHeld(section) {
  section.hidden = !all("held").size;
  const rows = sorted("held")
    .filter(([pod, held]) => found(pod, held.way, ...held.places.map(({ node }) => node)))
    .map(([pod, held]) => [pod, held.way, places(held), held.asks.map(([resource, amount]) => `${resource} ${amount}`).join(", "), until(held)]);
  section.querySelector(".list").replaceChildren(rows.length ? table(["Pod", "State", "Where", "Requests", "Held until"], rows, { label: "Pods that room is held for" }) : el("p.empty", {}, "No matching pods."));
}

// Each place a line: the pod comes to one of them.
const places = (held) => held.places.map(({ node, numaIDs }) => el("span.place", {}, nodeAnchor(node), numaIDs.length ? ` NUMA ${numaIDs.join(", ")}` : ""));
const until = (held) => (held.until ? clockTime(held.until) : "the scheduler decides otherwise");
const cpuWords = (held) => `${cpusOf(held)} ${cpusOf(held) === "1" ? "CPU" : "CPUs"}`;
const heldWords = (pod, held) => `${cpusOf(held) ? `${cpuWords(held)} ${cpusOf(held) === "1" ? "is" : "are"}` : "room is"} held for ${pod}, ${held.way}, until ${until(held)}`;

function unknownSection() {
  return el("section", { id: "unknown", "aria-labelledby": "unknown-title" }, el("h2", { id: "unknown-title" }, "Nodes whose state is unknown"), el("div.list"));
}

function drawUnknown(section) {
  const reasons = new Map();
  for (const [name, node] of sorted("node")) {
    if (!unknown(node) || !found(name, node.unknown)) continue;
    // Messages that differ in the node's own name alone are one reason.
    const reason = (node.unknown || "its CPUs are unknown").split(name).join("NODE");
    if (!reasons.has(reason)) reasons.set(reason, []);
    reasons.get(reason).push(name);
  }
  section.hidden = !totals().unknown;
  const rows = [...reasons].sort(([, one], [, other]) => other.length - one.length).map(([reason, names]) => [number(names.length), reason, nodeList(reason, names)]);
  section.querySelector(".list").replaceChildren(rows.length ? table(["Nodes", "Why", "Which"], rows, { label: "Why the state of nodes is unknown", right: [0] }) : el("p.empty", {}, "No matching nodes."));
}

function nodeList(reason, names) {
  const links = (some) => some.map((name, index) => [index ? ", " : "", nodeAnchor(name)]);
  if (names.length <= SHOWN) return el("span", {}, links(names));
  return el("div", {}, links(names.slice(0, SHOWN)), details(`unknown ${reason}`, `${number(names.length - SHOWN)} more`, links(names.slice(SHOWN))));
}
