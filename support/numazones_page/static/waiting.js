// Pods that wait: why, what would help, and then what there is to know besides. Many are grouped by the reason.

const FEW = 8;
const SHOWN = 5;
const opened = new Map();

function waitingSection() {
  return el("section", { id: "waiting", "aria-labelledby": "waiting-title" }, el("h2", { id: "waiting-title" }, "Stuck pods"), el("div.cards"), el("div.grouped"));
}

function waitingGroups() {
  const urgency = (group) => (group.stuck ? Number(group.verdict === "Unknown") : 2);
  return sorted("waiting")
    .filter(([, group]) => found(nameOf(group), group.sentence, ...group.pods, ...group.waits, ...(group.rejected ? group.rejected.pods : [])))
    .sort(([, one], [, other]) => urgency(one) - urgency(other) || (one.since < other.since ? -1 : one.since > other.since ? 1 : 0));
}

function drawWaiting(section) {
  const groups = waitingGroups();
  section.hidden = !all("waiting").size;
  const stuck = groups.filter(([, group]) => group.stuck);
  const rejected = groups.filter(([, group]) => group.verdict === "Rejected");
  const fitting = groups.filter(([, group]) => !group.stuck && group.verdict !== "Rejected");
  const reasons = new Map();
  for (const entry of stuck) {
    const reason = entry[1].reason || "Other reasons";
    if (!reasons.has(reason)) reasons.set(reason, []);
    reasons.get(reason).push(entry);
  }
  const grouped = stuck.length > FEW;
  renew(section.querySelector(".cards"), grouped ? [] : stuck, waitingCard, groups.length || grouped ? "" : "No matching pods.");
  section.querySelector(".grouped").replaceChildren(
    ...(grouped ? [...reasons].sort(([, one], [, other]) => other.length - one.length).map(([reason, entries]) => reasonGroup(reason, entries)) : []),
    ...(rejected.length ? [reasonGroup("Rejected and not retried", rejected)] : []),
    ...(fitting.length ? [reasonGroup("Not stuck, about to get a node", fitting)] : []),
  );
}

// The owners that wait for one reason: a line each, opened one by one; more of them when asked for.
function reasonGroup(reason, entries) {
  const limit = `more ${reason}`;
  const shown = opened.get(limit) ? entries : entries.slice(0, SHOWN);
  const rest = entries.length - shown.length;
  return el(
    "section.group",
    { "aria-label": reason },
    el("h3", {}, reason, el("span.times", {}, `: ${counted(podsIn(entries.map(([, group]) => group)), "pod")}${entries.length > 1 ? ` of ${counted(entries.length, "owner")}` : ""}`)),
    shown.map(([key, group]) => waitingRow(key, group)),
    (rest > 0 || opened.get(limit)) &&
      el("button.more", { type: "button", "data-key": limit, onclick: () => { opened.set(limit, rest > 0); drawWaiting(parts.waiting); } }, rest > 0 ? `Show ${number(rest)} more` : "Show fewer"),
  );
}

function waitingRow(key, group) {
  const [tone, verdict] = verdictOf(group);
  const row = el(
    `details.card.row.${tone}`,
    { open: opened.get(key) || false },
    el("summary", { "data-key": `row-${key}` }, el("strong", {}, nameOf(group)), sizeOf(group) > 1 && el("span.times", {}, ` × ${number(sizeOf(group))}`), el(`span.badge.${tone}`, {}, verdict), el("span.says", {}, group.waits[0] || group.sentence)),
  );
  const fill = () => row.children.length === 1 && row.append(el("div.body", {}, waitingBody(key, group)));
  if (row.open) fill();
  row.addEventListener("toggle", () => {
    opened.set(key, row.open);
    if (row.open) fill();
  });
  return row;
}

function verdictOf(group) {
  if (group.verdict === "Inadmissible") return ["alert", "fits nowhere"];
  if (group.verdict === "Unknown") return ["unsure", "unknown"];
  if (group.verdict === "Rejected") return ["unsure", "rejected"];
  return group.waits.length ? ["unsure", "blocked"] : ["good", "fits"];
}

function waitingCard(key, group) {
  const [tone, verdict] = verdictOf(group);
  return el(
    `article.card.${tone}`,
    {},
    el("header", {}, el("h3", {}, nameOf(group), group.pods.length > 1 && el("span.times", {}, ` × ${group.pods.length}`)), el(`span.badge.${tone}`, {}, verdict)),
    el("p.sentence", {}, group.waits[0] || group.sentence),
    waitingBody(key, group),
  );
}

function waitingBody(key, group) {
  return [
    group.waits.slice(1).map((wait) => el("p", {}, `Also: ${wait}`)),
    group.waits.length > 0 && el("p", {}, `Nodes: ${group.sentence}`),
    !group.waits.length && group.scheduler && el("p.history", {}, `The scheduler says: ${group.scheduler}`),
    group.held.map((line) => el("p", {}, line)),
    group.hopeless && el("p", {}, group.hopeless),
    help(group),
    group.doubts.map((line) => el("p.quiet", {}, `Not certain: ${line}`)),
    el("p.chips", {}, group.owner && el("span.chip", {}, group.owner[0]), group.asks.map(([resource, amount]) => el("span.chip", {}, el("span", {}, resource), ` ${amount}`)), group.since && el("span.chip", {}, el("span", {}, "since"), ` ${group.since.replace("T", " ").replace("Z", " UTC")}`)),
    rejections(key, group),
    group.reasons.length > 0 && reasons(key, group),
    holders(key, group),
    group.pods.length > 1 && details(`${key} pods`, counted(group.pods.length, "pod"), el("p.names", {}, group.pods.join(", "))),
  ];
}

// The owner's rejected pods: how many, why, and the latest by name.
function rejections(key, { rejected }) {
  if (!rejected) return null;
  const more = rejected.count - rejected.pods.length;
  return details(
    `${key} rejected`,
    `${counted(rejected.count, "pod")} rejected since ${rejected.since.replace("T", " ").replace("Z", " UTC")}, the latest with ${rejected.reason}`,
    rejected.message && el("p", {}, rejected.message),
    el("p.names", {}, rejected.pods.join(", ") + (more > 0 ? ` and ${number(more)} more` : "")),
  );
}

// What would help, in the sentences of `kubectl numazones why`.
function help(group) {
  const advice = group.advice || [];
  if (advice.length || group.plans.length)
    return el(
      "div.help",
      {},
      el("h4", {}, "What would help"),
      el("ul.advice", {}, advice.map(([node, line]) => el("li", {}, linked(line, node))), group.plans.map(([name, line]) => el("li", {}, line, " ", el("a", { href: `#plan-${encodeURIComponent(name)}` }, "play the plan")))),
    );
  return group.advice === null && !group.hopeless ? el("p.quiet", {}, "Computing what would help …") : null;
}

// A part that people open, and that stays as they left it when it is drawn anew.
function details(key, summary, ...content) {
  const made = el("details", { open: opened.get(key) || false }, el("summary", { "data-key": `details-${key}` }, summary), content);
  made.addEventListener("toggle", () => opened.set(key, made.open));
  return made;
}

function reasons(key, group) {
  const { admissible, evaluated, unknown: stale, excluded } = group.nodes;
  const rows = group.reasons.map((reason) => [number(reason.nodes), reason.source, why(reason), reason.example ? nodeAnchor(reason.example) : ""]);
  const summary = [
    evaluated > 0 && (evaluated === 1 ? `the only node considered would ${admissible ? "" : "not "}admit it` : `${number(admissible)} of ${counted(evaluated, "node")} would admit it`),
    stale > 0 && `${number(stale)} unknown`,
    excluded > 0 && `the scheduler rules out ${evaluated || stale ? number(excluded) : excluded === 1 ? "the only node" : `all ${number(excluded)} nodes`}`,
  ].filter(Boolean).join("; ");
  return details(`${key} reasons`, summary, table(["Nodes", "Decided by", "Why", "Example"], rows, { label: `Why nodes reject ${nameOf(group)}`, right: [0] }));
}

// The reason's word, and the sentence, which may begin with it.
function why({ reason, sentence: text }) {
  return el("span", {}, el("strong", {}, reason), text.startsWith(reason) ? text.slice(reason.length) : ` ${text}`);
}

// Who holds what on the node that comes nearest.
function holders(key, group) {
  const nearest = group.verdict === "Inadmissible" && group.reasons.find((reason) => reason.example && reason.source !== "Scheduler");
  const node = nearest && all("node").get(nearest.example);
  if (!node || unknown(node) || !node.pods.length) return null;
  const rows = zonesOf(node).flatMap((zone) =>
    holdersOf(node, zone.id).map((holder) => [String(zone.id), holder.pod, holder.cpus ? number(holder.cpus) : "", holder.memory ? bytes(holder.memory) : "", holder.devices.join(", ")]),
  );
  return details(`${key} holders`, `Who holds what on ${nearest.example}, the closest node`, table(["NUMA", "Pod", "CPUs", "Memory", "Devices"], rows, { label: `Who holds what on ${nearest.example}`, right: [0, 2, 3] }));
}

// Bring cards in line with documents: those that did not change stay as they are.
function renew(list, entries, draw, nothing) {
  const before = new Map([...list.children].map((child) => [child.dataset.card, child]));
  const cards = entries.map(([key, value]) => {
    const drawn = JSON.stringify(value);
    const old = before.get(key);
    if (old && old.drawn === drawn) return old;
    const card = draw(key, value);
    card.dataset.card = key;
    card.drawn = drawn;
    return card;
  });
  place(list, cards.length || !nothing ? cards : [el("p.empty", {}, nothing)]);
}
