// One node as lstopo draws it: sockets, zones, last-level caches, cores, threads; and whose each CPU is.

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const COLOURS = 8;

function nodeView(name, wanted) {
  const node = all("node").get(name);
  const back = el("nav.crumbs", { "aria-label": "Location" }, el("a", { href: "#/", "data-key": "back" }, "Cluster"), el("span", { "aria-hidden": "true" }, "›"), el("span", { "aria-current": "page" }, name));
  if (!node) return el("section.view", {}, back, el("h2", {}, name), el("p.empty", {}, "This node does not exist, or no longer exists."));
  if (unknown(node)) return el("section.view", {}, back, el("h2", {}, name), el("p.notice", {}, `The state of this node is unknown: ${node.unknown}`));
  const marks = marksOf(node);
  const coming = heldByNode().get(name) || [];
  return el(
    "section.view",
    {},
    back,
    el("h2", {}, name),
    el("p.chips", {}, node.cordoned && el("span.chip.alert", {}, "cordoned"), !node.ready && el("span.chip.alert", {}, "not ready"), node.approximate && el("span.chip", {}, "from NodeResourceTopology: approximate"), node.settings.map(([key, value]) => el("span.chip", {}, el("span", {}, key), ` ${value}`))),
    coming.map(([pod, , held]) => el("p.notice", {}, sentence(heldWords(pod, held)))),
    useUnknown(name) && el("p.notice", {}, `Usage unknown: ${useUnknown(name)}`),
    el("div.machine", {}, machinePicture(name, node, marks, wanted, coming)),
    el("h3", {}, "Who holds what"),
    holdersTable(node, marks),
  );
}

// CPU → {kind, letter, colour, pod}.
function marksOf(node) {
  const marks = new Map();
  for (const cpu of cpus(node.reserved)) marks.set(cpu, { kind: "reserved", title: "reserved" });
  const apart = apartOf(node);
  node.pods.forEach((pod, index) => {
    for (const cpu of cpus(pod.cpus)) marks.set(cpu, { kind: apart.has(cpu) ? "held.apart" : "held", letter: LETTERS[index % LETTERS.length], colour: index % COLOURS, pod: pod.pod, title: apart.has(cpu) ? `${pod.pod}, on a different NUMA node from the rest of its container` : pod.pod });
  });
  return marks;
}

// The CPUs that are not on the NUMA node that has most of their container.
const apartOf = (node) => new Set(misalignedOf(node).flatMap((pod) => cpus(pod.apart)));

const sentence = (words) => words[0].toUpperCase() + words.slice(1);

function machinePicture(name, node, marks, wanted, coming = []) {
  const figures = new Map(zonesOf(node).map((zone) => [zone.id, zone]));
  return documents.get(`machine/${node.machine}`).sockets.map((socket) =>
    el(
      "div.socket",
      {},
      el("h3", {}, socket.id === null ? "without CPUs" : `Socket ${socket.id}`),
      el("div.zones", {}, socket.zones.map((zone) => zoneCard(name, node, zone, figures.get(zone.id), marks, wanted, coming))),
    ),
  );
}

function zoneCard(name, node, zone, whole, marks, wanted, coming) {
  const amounts = [];
  // A NUMA node on several sockets shows its amounts on the first.
  const use = zone.continued === undefined ? whole : undefined;
  if (use && node.exclusive && zone.caches.length) amounts.push(["CPUs", `${use.cpus[0]} of ${use.cpus[1]}`, ratio(use.cpus)]);
  if (use) amounts.push(...measured(useOf(name, zone), use.cpus[0], zone.memory));
  for (const [kind, held, whole] of use ? use.memory : []) amounts.push([kind, `${bytes(held)} of ${bytes(whole)}`, whole ? held / whole : 0]);
  for (const [kind, held, whole] of use ? use.devices : []) amounts.push([kind.split("/").pop(), `${held} of ${whole}`, whole ? held / whole : 0]);
  if (zone.memory && !amounts.some(([kind]) => kind === "memory")) amounts.push(["memory", `${bytes(zone.memory)}, not managed per NUMA node`, 0]);
  return el(
    `div.zonecard${String(zone.id) === wanted ? ".wanted" : ""}`,
    {},
    el("h4", {}, `NUMA ${zone.id}${zone.continued === undefined ? "" : `, continued from socket ${zone.continued}`}`),
    coming.filter(([, zones]) => zones.includes(zone.id)).map(([pod, , held]) => el("p.chip.coming", {}, `held for ${pod}${cpusOf(held) ? `: ${cpuWords(held)}` : ""}`)),
    el("dl.amounts", {}, amounts.map(([kind, text, share]) => el("div", {}, el("dt", {}, kind), el("dd", {}, bar(share), text)))),
    el(
      "div.caches",
      { role: "img", "aria-label": `CPUs of NUMA ${zone.id}: ${whole && node.exclusive ? `${whole.cpus[0]} of ${whole.cpus[1]} held exclusively` : "none are allocated exclusively"}` },
      zone.caches.map((cache) => el("div.cache", {}, cache.id !== null && el("span.cachename", {}, `L3 ${cache.id}`), el("div.cores", {}, cache.cores.map((core) => el("span.core", {}, core.map((cpu) => cell(node, cpu, marks.get(cpu)))))))),
      zone.offline && el("div.cache", {}, el("span.cachename", {}, "offline"), el("div.cores", {}, zone.offline.map((cpu) => el("span.core", {}, cell(node, cpu, { kind: "offline", title: "offline" }))))),
    ),
  );
}

// What is really used of a zone, as [what, text, share].
function measured(use, held, memory) {
  if (!use) return [];
  return [
    use.used !== null && ["CPUs in use", `${use.used.toFixed(1)} of ${held} held`, ratio([use.used, held])],
    use.shared !== null && ["shared pool", `${percent(use.shared)} busy`, use.shared],
    use.reserved !== null && ["reserved CPUs", `${percent(use.reserved)} busy`, use.reserved],
    use.memory !== null && memory > 0 && ["memory in use", `${bytes(use.memory)} of ${bytes(memory)}`, ratio([use.memory, memory])],
  ].filter(Boolean);
}

function cell(node, cpu, mark) {
  const kind = mark ? mark.kind : node.exclusive ? "free" : "shared";
  const title = `CPU ${cpu}: ${mark ? mark.title : node.exclusive ? "free" : "shared"}`;
  return el(`i.${kind}`, { title, "data-colour": mark && mark.colour, "data-pod": mark && mark.pod }, mark && mark.letter);
}

function holdersTable(node, marks) {
  if (!node.pods.length) return el("p.empty", {}, "No pod holds anything exclusively here.");
  const mark = (pod, index) => (pod.cpus ? el("i.held", { "data-colour": index % COLOURS, "aria-hidden": "true" }, LETTERS[index % LETTERS.length]) : "");
  const lying = new Map(misalignedOf(node).map((pod) => [pod.pod, pod]));
  const remote = (pod, numas) => lying.has(pod) && numas.some((numa) => lying.get(pod).memory.includes(numa));
  const blocks = (pod) => pod.memory.map(([kind, size, numas], index) => [index ? "; " : "", `${bytes(size)}${kind === "memory" ? "" : ` ${kind}`} on ${numas.join(", ")}`, remote(pod.pod, numas) && el("span.misaligned", {}, " (remote)")]);
  const alignment = (pod) => (lying.has(pod) ? el("span.misaligned", {}, lying.get(pod).says) : node.aligned === null ? "" : "aligned");
  const rows = node.pods.map((pod, index) => [
    el("button.pod", { type: "button", "aria-pressed": "false", "data-key": `pod-${pod.pod}`, onclick: (event) => single(event.currentTarget, pod.pod) }, mark(pod, index), el("span", {}, pod.pod)),
    pod.cpus,
    el("span", {}, blocks(pod)),
    pod.devices.map(([kind, ids]) => `${kind.split("/").pop()}: ${ids.join(", ")}`).join("; "),
    alignment(pod.pod),
  ]);
  return table(["Pod", "CPUs", "Memory (NUMA node)", "Devices", "Alignment"], rows, { label: "Pods that hold resources" });
}

// Show one pod's CPUs alone; asked again, all.
function single(button, pod) {
  const pressed = button.getAttribute("aria-pressed") === "true";
  const view = button.closest(".view");
  for (const other of view.querySelectorAll("button.pod")) other.setAttribute("aria-pressed", "false");
  button.setAttribute("aria-pressed", String(!pressed));
  for (const mark of view.querySelectorAll(".machine i")) mark.classList.toggle("dim", !pressed && mark.dataset.pod !== pod);
}

