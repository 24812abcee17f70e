// The page as a whole: what is at the top, which view is shown, and where news come from.

const root = document.getElementById("page");
const parts = {};
let view = null;

function overview() {
  parts.hero = el("section.hero", { "aria-label": "Current state" });
  parts.word = el("p.word", { role: "status" });
  parts.says = el("p.says");
  parts.figures = el("div.figures");
  parts.hero.append(el("div", {}, parts.word, parts.says), parts.figures);
  parts.note = el("div");
  parts.find = el("input", {
    type: "search", placeholder: "pod, node or reason", "data-key": "find", value: find.words.join(" "),
    oninput: (event) => { find.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean); draw(null); },
  });
  parts.heat = heatmap();
  parts.single = el("div.single.view");
  parts.heat.append(parts.single);
  parts.rest = el("section", { id: "fragmentation", "aria-labelledby": "fragmentation-title" }, el("h2", { id: "fragmentation-title" }, "Fragmentation"), el("div.shapes"));
  parts.waiting = waitingSection();
  parts.plans = plansSection();
  parts.held = heldSection();
  parts.unknown = unknownSection();
  parts.alignment = alignmentSection();
  parts.tables = el("div");
  parts.accuracy = el("div");
  return [parts.hero, parts.note, el("label.field.find", {}, "Find", parts.find), parts.waiting, parts.plans, parts.held, parts.unknown, parts.alignment, parts.heat, parts.rest, parts.tables, parts.accuracy];
}

// The word at the top: what hurts, or that nothing does. It is said aloud when it changes.
function drawWord() {
  const { stuck, headline, details: says } = podCounts();
  const reading = isReading();
  const [tone, word] = reading ? ["unsure", "Reading the cluster"] : [stuck ? "alert" : "good", headline];
  parts.hero.className = `hero ${tone}`;
  if (parts.word.textContent !== word) parts.word.replaceChildren(stuck && !reading ? el("a", { href: "#waiting", "data-key": "word" }, word) : word);
  parts.says.textContent = reading ? "" : says ? `${says}.` : "Every pod with NUMA requirements has a node.";
}

// Figures, each a link to what it counts.
function drawFigures() {
  // What is not known yet is not counted as none.
  const reading = isReading();
  for (const part of [parts.heat, parts.rest]) part.hidden = reading;
  if (reading) return parts.figures.replaceChildren();
  const sum = totals();
  const plans = inForce();
  const figure = (place, value, label, more, tone) => el(`a.figure${tone ? `.${tone}` : ""}`, { href: `#${place}`, "data-key": `figure-${place}-${label}` }, el("span.value", {}, value), el("span.label", {}, label), more);
  const evictions = plans.reduce((count, [, plan]) => count + plan.moves.length, 0);
  parts.figures.replaceChildren(
    ...(plans.length ? [figure("plans", number(plans.length), plans.length === 1 ? "plan" : "plans", el("span.more", {}, counted(evictions, "eviction")))] : []),
    ...(all("held").size ? [figure("held", number(all("held").size), all("held").size === 1 ? "pod on its way" : "pods on their way", el("span.more", {}, "room is held"))] : []),
    ...(sum.unknown ? [figure("unknown", number(sum.unknown), sum.unknown === 1 ? "node in unknown state" : "nodes in unknown state", el("span.more", {}, `of ${number(sum.nodes)}`), "unsure")] : []),
    ...(sum.misaligned ? [figure("alignment", number(sum.misaligned), sum.misaligned === 1 ? "pod not aligned" : "pods not aligned", el("span.more", {}, `of ${number(sum.pods)}`), "unsure")] : []),
    figure("zones", number(sum.nodes), sum.nodes === 1 ? "node" : "nodes", el("span.more", {}, counted(sum.zones, "NUMA node"))),
    figure("zones", sum.cpus[1] ? percent(ratio(sum.cpus)) : "–", "of exclusive CPUs held", [bar(ratio(sum.cpus)), el("span.more", {}, `${number(sum.cpus[0])} of ${number(sum.cpus[1])}`)]),
    ...(sum.used[1] ? [figure("zones", percent(ratio(sum.used)), "of held CPUs in use", [bar(ratio(sum.used)), el("span.more", {}, `${number(Math.round(sum.used[0]))} of ${number(sum.used[1])}`)])] : []),
    ...accuracyFigure(figure),
  );
}

function accuracyFigure(figure) {
  const counts = accuracyCounts();
  return counts ? [figure("accuracy", percent(counts.right / counts.judged), "of predictions came true", el("span.more", {}, `${number(counts.right)} of ${number(counts.judged)}`), counts.model ? "alert" : "good")] : [];
}

function accuracyCounts() {
  const known = documents.get("accuracy/");
  if (!known) return null;
  const { right = 0, race = 0, stale = 0, model = 0, unknown = 0 } = known.counts;
  const judged = right + race + stale + model;
  return judged ? { right, race, stale, model, unknown, judged } : null;
}

function drawFragmentation() {
  const sum = totals();
  parts.rest.querySelector(".shapes").replaceChildren(
    ...cluster().shapes.map((shape, index) => {
      const [free, usable, fitting, open] = sum.fit[index];
      const lost = free ? 1 - usable / free : 0;
      return el(
        "div.shape",
        {},
        el("h3", {}, shape),
        el("div.split", { "aria-hidden": "true" }, el("span.usable", { style: { width: `${(1 - lost) * 100}%` } }), el("span.lost", { style: { width: `${lost * 100}%` } })),
        el("p", {}, el("strong", {}, `${number(fitting)} more fit`), free ? `; ${percent(lost)} of the ${number(free)} free CPUs are of no use to such pods` : open ? "" : "; no exclusive CPUs are free", open ? `; unknown for ${counted(open, "node")}, because the scheduler chooses the devices` : ""),
      );
    }),
  );
}

// One node alone needs no map: its machine stands in the map's place.
function drawSingle() {
  const [name, node] = all("node").size === 1 ? [...all("node")][0] : [];
  const alone = name !== undefined && !unknown(node);
  heat.body.hidden = alone;
  if (!alone) return parts.single.replaceChildren();
  const marks = marksOf(node);
  parts.single.replaceChildren(el("h3", {}, nodeAnchor(name)), useUnknown(name) && el("p.notice", {}, `Usage unknown: ${useUnknown(name)}`), el("div.machine", {}, machinePicture(name, node, marks, undefined, heldByNode().get(name))), el("h3", {}, "Who holds what"), holdersTable(node, marks));
}

function drawTables() {
  const tables = sorted("table");
  parts.tables.replaceChildren(
    ...(tables.length
      ? [el("section", { id: "whatif", "aria-labelledby": "whatif-title" }, el("h2", { id: "whatif-title" }, "What if"), tables.map(([, item]) => el("div.card", {}, el("h3", {}, item.title), item.note && el("p.quiet", {}, item.note), table(item.columns, item.rows, { label: item.title, right: item.columns.map((_, index) => index).filter((index) => index && item.rows.every((row) => /^[-+<>≥≤]?[\d.,]/.test(row[index]) || row[index] === "")) }))))]
      : []),
  );
}

function drawAccuracy() {
  const known = documents.get("accuracy/");
  const counts = accuracyCounts();
  if (!known) return parts.accuracy.replaceChildren();
  const words = { right: "came true", race: "wrong: pods came or went in the meantime", stale: "wrong: the NUMAZones were out of date", model: "wrong: bug in the model", unknown: "no prediction" };
  const whole = counts ? counts.judged + counts.unknown : 0;
  parts.accuracy.replaceChildren(
    el(
      "section",
      { id: "accuracy", "aria-labelledby": "accuracy-title" },
      el("h2", { id: "accuracy-title" }, "Predictions compared with outcomes"),
      known.note && el("p.quiet", {}, known.note),
      counts ? el("dl.accuracy", {}, Object.entries(words).map(([key, text]) => el("div", { class: key }, el("dt", {}, text), el("dd", {}, bar(counts[key] / whole), number(counts[key]))))) : el("p.empty", {}, "No pod has been bound since this page started counting."),
    ),
  );
}

function drawHeader() {
  const { source, generated, version, note, doubts } = cluster();
  document.title = `${source || "cluster"} · numazones`;
  const entry = (id, text, count) => el("a", { href: `#${id}`, "data-key": `nav-${id}` }, text, count ? el("span.count", {}, number(count)) : null);
  parts.source.textContent = source;
  parts.when.textContent = generated ? `as of ${generated.replace("T", " ").replace("Z", " UTC")}` : "";
  parts.version.textContent = version ? `numazones ${version}` : "numazones";
  parts.nav.replaceChildren(
    ...(all("waiting").size ? [entry("waiting", "Stuck pods", podCounts().stuck)] : []),
    ...(all("plan").size ? [entry("plans", "Plans", inForce().length)] : []),
    ...(all("held").size ? [entry("held", "On their way", all("held").size)] : []),
    ...(totals().misaligned ? [entry("alignment", "Not aligned", totals().misaligned)] : []),
    entry("zones", "NUMA nodes"),
    entry("fragmentation", "Fragmentation"),
    ...(all("table").size ? [entry("whatif", "What if")] : []),
    ...(documents.has("accuracy/") ? [entry("accuracy", "Accuracy")] : []),
  );
  if (parts.note) parts.note.replaceChildren(...(note ? [el("p.notice", {}, note)] : []), ...doubts.map((line) => el("p.quiet", {}, `Not certain: ${line}`)));
}

// Draw what has changed; null: everything.
function draw(changed) {
  const touched = (...names) => !changed || names.some((name) => changed.has(name));
  const focused = document.activeElement && document.activeElement.dataset.key;
  drawHeader();
  if (view) {
    const [name, zone] = view;
    const machine = (all("node").get(name) || {}).machine;
    if (touched("held") || ["node", "use"].some((kind) => (changed.get(kind) || new Set()).has(name)) || (changed.get("machine") || new Set()).has(machine)) parts.main.replaceChildren(nodeView(name, zone));
  } else {
    drawWord();
    drawFigures();
    if (touched("waiting")) drawWaiting(parts.waiting);
    if (touched("plan", "waiting")) drawPlans(parts.plans);
    if (touched("held")) drawHeld(parts.held);
    if (touched("node")) drawUnknown(parts.unknown);
    if (touched("node")) drawAlignment(parts.alignment);
    if (touched("node", "machine", "cluster", "held", "use")) drawHeat();
    if (touched("node", "machine", "cluster")) drawFragmentation();
    if (touched("node", "machine", "held", "use")) drawSingle();
    if (touched("table")) drawTables();
    if (touched("accuracy")) drawAccuracy();
  }
  if (focused && document.activeElement === document.body) {
    const again = root.querySelector(`[data-key="${CSS.escape(focused)}"]`);
    if (again) again.focus({ preventScroll: true });
  }
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand
  }
}

// #/node/NAME[/ZONE] is a node; everything else is a place of the overview.
function route() {
  const [, name, zone] = /^#\/node\/([^/]+)(?:\/(\d+))?$/.exec(location.hash) || [];
  const before = view;
  view = name ? [decoded(name), zone] : null;
  if (view) {
    draw(null);
    window.scrollTo(0, 0);
    parts.main.focus({ preventScroll: true });
    return;
  }
  if (before || !parts.heat) {
    parts.main.replaceChildren(...overview());
    draw(null);
    const left = before && heat.tiles.get(before[0]);
    if (left) left.link.focus();
  }
  const target = location.hash.length > 1 && document.getElementById(decoded(location.hash.slice(1)));
  if (!target) return;
  const closed = target.closest("details:not([open])");
  if (closed) closed.open = true;
  target.scrollIntoView();
  target.setAttribute("tabindex", "-1");
  target.focus({ preventScroll: true });
}

function build() {
  parts.source = el("span.source");
  parts.when = el("span.when");
  parts.state = el("span.state", { role: "status" });
  parts.nav = el("nav", { "aria-label": "Sections of the page" });
  parts.main = el("main", { id: "main", tabindex: "-1" });
  parts.version = el("span");
  root.replaceChildren(
    el("a.skip", { href: "#main" }, "Skip to content"),
    el("header.top", {}, el("div.brand", {}, el("span.logo", { "aria-hidden": "true" }, el("i"), el("i"), el("i"), el("i")), el("h1", {}, "numazones"), parts.source), parts.nav, el("div.status", {}, parts.when, parts.state)),
    parts.main,
    el("footer", {}, parts.version),
  );
}

// News, from the block of JSON in a report or from the operator's stream of events.

function follow(address) {
  let waiting = new Map();
  let scheduled = false;
  const events = new EventSource(address);
  const say = (text, tone) => {
    parts.state.textContent = text;
    parts.state.className = `state ${tone}`;
  };
  say("connecting", "unsure");
  events.addEventListener("reset", () => {
    const gone = Object.fromEntries([...documents.keys()].map((key) => [key, null]));
    note(take(gone));
  });
  events.addEventListener("documents", (event) => {
    note(take(JSON.parse(event.data)));
    say("live", "good");
  });
  events.addEventListener("error", () => say(events.readyState === EventSource.CLOSED ? "not available: reload to try again" : "connection lost, trying again", "alert"));
  function note(changed) {
    for (const [kind, names] of changed) waiting.set(kind, new Set([...(waiting.get(kind) || []), ...names]));
    if (scheduled) return;
    scheduled = true;
    setTimeout(() => {
      scheduled = false;
      const now = waiting;
      waiting = new Map();
      draw(now);
    }, 50);
  }
}

const address = document.currentScript.dataset.events;
build();
if (!address) take(JSON.parse(document.getElementById("documents").textContent));
route();
window.addEventListener("hashchange", route);
if (address) follow(address);
