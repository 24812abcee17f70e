// Pods that wait: what they ask for, why they fit nowhere, who holds what they lack, and what would help.

const VERDICTS = { Inadmissible: ["alert", "fits nowhere"], Unknown: ["unsure", "unknown"], Admissible: ["good", "would be admitted"] };
const URGENCY = { Inadmissible: 0, Unknown: 1, Admissible: 2 };

function waitingSection() {
  return el("section", { id: "waiting", "aria-labelledby": "waiting-title" }, el("h2", { id: "waiting-title" }, "Waiting pods"), el("div.cards"));
}

function drawWaiting(section) {
  const groups = sorted("waiting").sort(([, one], [, other]) => URGENCY[one.verdict] - URGENCY[other.verdict]);
  renew(section.querySelector(".cards"), groups, waitingCard, "No pod that NUMA placement concerns waits for a node.");
}

function waitingCard(key, group) {
  const [tone, verdict] = VERDICTS[group.verdict];
  const name = `${group.namespace}/${group.owner ? group.owner[1] : group.pods[0]}`;
  return el(
    `article.card.${tone}`,
    {},
    el("header", {}, el("h3", {}, name, group.pods.length > 1 && el("span.times", {}, ` × ${group.pods.length}`)), el(`span.badge.${tone}`, {}, verdict)),
    el("p.chips", {}, group.owner && el("span.chip", {}, group.owner[0]), group.asks.map(([resource, amount]) => el("span.chip", {}, el("span", {}, resource), ` ${amount}`))),
    el("p.sentence", {}, group.sentence),
    group.rejected && el("p.history", {}, `${counted(group.rejected.count, "pod")} rejected since ${group.rejected.since}, the latest with ${group.rejected.reason}${group.rejected.message ? `: ${group.rejected.message}` : ""}`),
    group.reasons.length > 0 && reasons(group),
    group.advice.length > 0 && el("div", {}, el("h4", {}, "What would help"), el("ul.advice", {}, group.advice.map(([node, sentence]) => el("li", {}, sentence, " — ", nodeAnchor(node))))),
    group.plans.length > 0 && el("p", {}, "A plan places it: ", group.plans.map((plan) => el("a", { href: `#plan-${encodeURIComponent(plan)}` }, plan, " "))),
    holders(group),
    group.pods.length > 1 && el("details", {}, el("summary", {}, counted(group.pods.length, "pod")), el("p.names", {}, group.pods.join(", "))),
  );
}

function reasons(group) {
  const [admissible, evaluated, stale, excluded] = group.nodes;
  const rows = group.reasons.map((reason) => [number(reason.count), reason.source, why(reason), reason.node ? nodeAnchor(reason.node) : ""]);
  const summary = [
    evaluated > 0 && `${number(admissible)} of ${counted(evaluated, "node")} would admit it`,
    stale > 0 && `${number(stale)} unknown`,
    excluded > 0 && `the scheduler passes over ${number(excluded)}${evaluated || stale ? "" : excluded === 1 ? " node" : " nodes, all there are"}`,
  ].filter(Boolean).join("; ");
  return el("details", { open: group.verdict !== "Admissible" }, el("summary", {}, summary), table(["Nodes", "By", "Why", "For example"], rows, { label: "Why nodes do not take it", right: [0] }));
}

// The reason's word, and the sentence, which may begin with it.
function why({ reason, sentence, message }) {
  const text = sentence || message;
  return el("span", {}, el("strong", {}, reason), text.startsWith(reason) ? text.slice(reason.length) : ` ${text}`);
}

// Who holds what on the node that comes nearest.
function holders(group) {
  const nearest = group.verdict === "Inadmissible" && group.reasons.find((reason) => reason.node && reason.source !== "Scheduler");
  const node = nearest && all("node").get(nearest.node);
  if (!node || unknown(node) || !node.pods.length) return null;
  const rows = zonesOf(node).flatMap((zone) =>
    holdersOf(node, zone.id).map((holder) => [String(zone.id), holder.pod, holder.cpus ? number(holder.cpus) : "", holder.memory ? bytes(holder.memory) : "", holder.devices.join(", ")]),
  );
  return el("details", {}, el("summary", {}, `Who holds what on ${nearest.node}, which comes nearest`), table(["NUMA", "Pod", "CPUs", "Memory", "Devices"], rows, { label: `Holders on ${nearest.node}`, right: [0, 2, 3] }));
}

// Bring cards in line with documents: those that did not change stay as they are, opened parts stay open.
function renew(list, entries, draw, nothing) {
  const before = new Map([...list.children].map((child) => [child.dataset.card, child]));
  const cards = entries.map(([key, value]) => {
    const drawn = JSON.stringify(value);
    const old = before.get(key);
    if (old && old.drawn === drawn) return old;
    const card = draw(key, value);
    card.dataset.card = key;
    card.drawn = drawn;
    if (old) old.querySelectorAll("details").forEach((part, index) => { const same = card.querySelectorAll("details")[index]; if (same) same.open = part.open; });
    return card;
  });
  place(list, cards.length ? cards : [el("p.empty", {}, nothing)]);
}

