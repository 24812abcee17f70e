// The cluster: a tile for each node, a part of it for each zone, in the detail that there is room for. Few nodes
// show their CPUs one by one, many a colour a zone.

const DETAILED = 40;
const LABELLED = 150;

const METRICS = {
  cpus: { label: "CPUs held", of: (node, zone) => (node.exclusive ? ratio(zone.cpus) : null) },
  memory: { label: "memory held", of: (_node, zone) => (memoryOf(zone) ? ratio(memoryOf(zone).slice(1)) : null) },
  devices: { label: "devices held", of: (_node, zone) => (zone.devices.length ? ratio(devicesOf(zone)) : null) },
};

const USED = { label: "held CPUs in use", of: (_node, zone, name) => (busyOf(name, zone) !== null ? ratio([busyOf(name, zone), zone.cpus[0]]) : null) };

function metrics() {
  const stranded = cluster().shapes.map((shape, index) => [
    `stranded${index}`,
    {
      label: `free CPUs that ${shape} cannot use`,
      warm: true,
      of: (node) => (node.fit && node.fit[index] && node.fit[index][0] ? 1 - node.fit[index][1] / node.fit[index][0] : null),
    },
  ]);
  const used = [...all("use").values()].some((use) => use.zones.length) ? { used: USED } : {};
  return { ...METRICS, ...used, ...Object.fromEntries(stranded) };
}

const usedWords = (name, zone) => (busyOf(name, zone) !== null ? `, ${busyOf(name, zone).toFixed(1)} of them in use` : "");

const ORDERS = {
  name: { label: "name", by: ([one], [other]) => natural(one, other) },
  full: { label: "fullest first", by: ([, one], [, other]) => load(other) - load(one) },
  room: { label: "largest free block first", by: ([, one], [, other]) => largest(other) - largest(one) },
};
const load = (node) => (unknown(node) ? -1 : ratio(zonesOf(node).reduce(([held, whole], zone) => [held + zone.cpus[0], whole + zone.cpus[1]], [0, 0])));
const largest = (node) => Math.max(-1, ...zonesOf(node).map((zone) => zone.free));

// 0 … 5: nothing, below a quarter, a half, three quarters, below all, all.
const level = (share) => (share === null ? "none" : share <= 0 ? 0 : share >= 1 ? 5 : 1 + Math.floor(share * 4));

const heat = { metric: "cpus", order: "name", choices: {}, tiles: new Map(), focused: null };

function heatmap() {
  const choose = (name, label) => {
    heat.choices[name] = el("select", { "data-key": `heat-${name}`, onchange: (event) => { heat[name] = event.target.value; drawHeat(); } });
    return el("label.field", {}, label, heat.choices[name]);
  };
  heat.list = el("ul.tiles", { onkeydown: walk, onfocusin: hover, onmouseover: hover });
  heat.legend = el("p.legend");
  heat.detail = el("p.detail");
  heat.controls = el(
    "div.controls",
    {},
    choose("metric", "Colour"),
    choose("order", "Order"),
  );
  heat.body = el("div", {}, heat.controls, heat.legend, heat.list, heat.detail);
  heat.tiles.clear();
  return el("section", { id: "zones", "aria-labelledby": "zones-title" }, el("h2", { id: "zones-title" }, "NUMA nodes"), heat.body);
}

// What there is to choose from, where that has changed: news may bring it.
function offer(name, options) {
  const offered = JSON.stringify(Object.entries(options).map(([key, option]) => [key, option.label]));
  const select = heat.choices[name];
  if (select.dataset.offered === offered) return;
  select.dataset.offered = offered;
  select.replaceChildren(...Object.entries(options).map(([key, option]) => el("option", { value: key, selected: heat[name] === key }, option.label)));
}

function drawHeat() {
  const offers = metrics();
  offer("metric", offers);
  offer("order", ORDERS);
  const metric = offers[heat.metric] || METRICS.cpus;
  const held = heldByNode();
  const matching = ([name, node]) => !find.words.length || found(name, ...(node.pods || []).map((pod) => pod.pod), ...(held.get(name) || []).map(([pod]) => pod));
  const shown = sorted("node").filter(matching).sort(ORDERS[heat.order].by);
  const size = all("node").size <= DETAILED ? "detailed" : all("node").size <= LABELLED ? "labelled" : "dense";
  heat.list.className = `tiles ${size}${metric.warm ? " warm" : ""}`;
  const names = new Set(shown.map(([name]) => name));
  if (!names.has(heat.focused)) heat.focused = shown.length ? shown[0][0] : null;
  const items = shown.map(([name, node]) => {
    let item = heat.tiles.get(name);
    if (!item || item.size !== size) {
      item = { size, link: el("a.node", { href: nodeLink(name), "data-key": `node-${name}`, "data-node": name }) };
      item.element = el("li", {}, item.link);
      heat.tiles.set(name, item);
    }
    fill(item, name, node, metric, held.get(name) || []);
    item.link.tabIndex = name === heat.focused ? 0 : -1;
    return item.element;
  });
  place(heat.list, items);
  legend(metric, size, shown);
  heat.detail.textContent = shown.length ? "" : all("node").size ? "No matching nodes." : "There are no nodes.";
}

// Put the items into the list, and touch what is in its place already as little as possible.
function place(list, items) {
  items.forEach((item, index) => {
    if (list.children[index] !== item) list.insertBefore(item, list.children[index] || null);
  });
  while (list.children.length > items.length) list.lastElementChild.remove();
}

function fill(item, name, node, metric, coming) {
  const drawn = JSON.stringify([node, documents.get(`use/${name}`), heat.metric, coming]);
  if (item.drawn === drawn) return;
  item.drawn = drawn;
  const parts = unknown(node)
    ? [el("span.zone", { "data-level": "unknown" })]
    : zonesOf(node).map((zone) => el(`span.zone${coming.some(([, zones]) => zones.includes(zone.id)) ? ".coming" : ""}`, { "data-level": level(metric.of(node, zone, name)) }, item.size === "detailed" ? [el("b", {}, zone.id), el("span.cells", {}, cells(node, zone))] : null));
  const label = [
    el("span.name", {}, name),
    item.size === "detailed" && el("span.note", {}, unknown(node) ? "state unknown" : `${headline(node)}${node.cordoned ? " · cordoned" : ""}${coming.length ? ` · ${number(coming.length)} on the way` : ""}${misalignedOf(node).length ? ` · ${number(misalignedOf(node).length)} not aligned` : ""}`),
  ];
  item.link.replaceChildren(...(item.size === "dense" ? [] : label).filter(Boolean), el("span.zones", { "aria-hidden": "true" }, parts));
  item.link.setAttribute("aria-label", `${name}: ${described(name, node, coming)}`);
}

function headline(node) {
  if (!node.exclusive) return "no exclusive CPUs";
  const free = zonesOf(node).map((zone) => zone.free);
  return `${free.join(" + ")} CPUs free`;
}

function described(name, node, coming) {
  const held = coming.map(([pod, , room]) => `; ${heldWords(pod, room)}`).join("");
  if (unknown(node)) return `state unknown${node.unknown ? `, ${node.unknown}` : ""}`;
  const zones = zonesOf(node)
    .map((zone) => {
      const memory = memoryOf(zone);
      const parts = [node.exclusive ? `${zone.cpus[0]} of ${zone.cpus[1]} CPUs${usedWords(name, zone)}` : null, memory && `${bytes(memory[1])} of ${bytes(memory[2])}`];
      return `NUMA ${zone.id} ${parts.filter(Boolean).join(", ") || "no exclusive CPUs"}`;
    })
    .join("; ");
  const misaligned = misalignedOf(node).map((pod) => `; ${pod.pod} ${pod.says}`).slice(0, SHOWN).join("");
  return `${zones}${useUnknown(name) ? `; usage unknown: ${useUnknown(name)}` : ""}${misaligned}${held}`;
}

// One zone's CPUs, a cell each, threads of a core together.
function cells(node, zone) {
  const held = new Set(node.pods.flatMap((pod) => cpus(pod.cpus)));
  const reserved = new Set(cpus(node.reserved));
  const machine = documents.get(`machine/${node.machine}`);
  const cores = machine.sockets.flatMap((socket) => socket.zones.filter((one) => one.id === zone.id).flatMap((one) => one.caches.flatMap((cache) => cache.cores)));
  const apart = apartOf(node);
  const kind = (cpu) => (held.has(cpu) ? (apart.has(cpu) ? "held.apart" : "held") : reserved.has(cpu) ? "reserved" : node.exclusive ? "free" : "shared");
  return cores.map((core) => el("span.core", {}, core.map((cpu) => el(`i.${kind(cpu)}`))));
}

function legend(metric, size, shown) {
  const present = new Set(shown.flatMap(([name, node]) => (unknown(node) ? ["unknown"] : zonesOf(node).map((zone) => String(level(metric.of(node, zone, name)))))));
  const steps = [["0", "0%"], ["1", "<25%"], ["2", "<50%"], ["3", "<75%"], ["4", "<100%"], ["5", "100%"]];
  const swatch = (kind, text) => el("span.key", {}, el("span.swatch", { "data-level": kind, "aria-hidden": "true" }), text);
  heat.legend.className = `legend${metric.warm ? " warm" : ""}`;
  heat.legend.replaceChildren(
    el("span.title", {}, `Each part of a tile is a NUMA node; ${metric.label}:`),
    ...steps.map(([kind, text]) => swatch(kind, text)),
    ...(present.has("none") ? [swatch("none", "not applicable")] : []),
    ...(present.has("unknown") ? [swatch("unknown", "unknown")] : []),
    ...(all("held").size ? [el("span.key", {}, el("span.swatch.coming", { "aria-hidden": "true" }), "room held for a pod")] : []),
    ...(size === "detailed"
      ? [el("span.title", {}, "Each cell is a CPU:"), ...[["held", "held"], ...(shown.some(([, node]) => misalignedOf(node).some((pod) => pod.apart)) ? [["held.apart", "on a different NUMA node from the rest of its container"]] : []), ["free", "free"], ["reserved", "reserved"], ...(shown.some(([, node]) => node.exclusive === false) ? [["shared", "shared"]] : [])].map(([kind, text]) => el("span.key", {}, el(`i.${kind}`, { "aria-hidden": "true" }), text))]
      : []),
  );
}

// Arrows walk over the tiles, as they lie; Tab leaves them.
function walk(event) {
  const links = [...heat.list.querySelectorAll("a.node")];
  const at = links.indexOf(document.activeElement);
  if (at < 0) return;
  const top = links[0].offsetTop;
  const columns = Math.max(1, links.findIndex((link) => link.offsetTop > top) === -1 ? links.length : links.findIndex((link) => link.offsetTop > top));
  const steps = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + columns, ArrowUp: at - columns, Home: 0, End: links.length - 1 };
  const target = links[steps[event.key]];
  if (!target) return;
  event.preventDefault();
  links[at].tabIndex = -1;
  target.tabIndex = 0;
  heat.focused = target.dataset.node;
  target.focus();
}

function hover(event) {
  const link = event.target.closest("a.node");
  const node = link && all("node").get(link.dataset.node);
  if (!node) return;
  heat.detail.replaceChildren(el("strong", {}, link.dataset.node), ` ${described(link.dataset.node, node, heldByNode().get(link.dataset.node) || [])}`);
}

