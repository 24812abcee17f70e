// What is known: a flat map of documents, as numazones_page.documents describes them, and questions to it.

const documents = new Map();
const kinds = new Map();

// Take changes in; null: gone. Returns the keys that changed, by kind.
function take(changes) {
  const changed = new Map();
  for (const [key, value] of Object.entries(changes)) {
    const kind = key.slice(0, key.indexOf("/"));
    const name = key.slice(kind.length + 1);
    if (!kinds.has(kind)) kinds.set(kind, new Map());
    if (value === null) {
      documents.delete(key);
      kinds.get(kind).delete(name);
    } else {
      documents.set(key, value);
      kinds.get(kind).set(name, value);
    }
    if (!changed.has(kind)) changed.set(kind, new Set());
    changed.get(kind).add(name);
  }
  return changed;
}

const all = (kind) => kinds.get(kind) || new Map();
const sorted = (kind) => [...all(kind)].sort(([one], [other]) => natural(one, other));
const isReading = () => !documents.has("cluster/") || Boolean(cluster().reading);
const cluster = () => documents.get("cluster/") || { source: "", shapes: [], generated: "", version: "", note: "", doubts: [] };

// "1-3,8" as numbers.
function cpus(list) {
  const found = [];
  for (const part of list ? list.split(",") : []) {
    const [first, last] = part.split("-").map(Number);
    for (let cpu = first; cpu <= (last === undefined ? first : last); cpu += 1) found.push(cpu);
  }
  return found;
}

const unknown = (node) => node.unknown !== undefined;
const zonesOf = (node) => node.zones || [];
const ratio = ([held, whole]) => (whole ? held / whole : 0);
const memoryOf = (zone) => zone.memory.find(([kind]) => kind === "memory");
const devicesOf = (zone) => zone.devices.reduce(([held, whole], [, one, all]) => [held + one, whole + all], [0, 0]);

// What is measured of a zone; null if nothing was measured.
const useOf = (name, zone) => ((documents.get(`use/${name}`) || { zones: [] }).zones.find((use) => use.id === zone.id) || null);
const busyOf = (name, zone) => { const use = useOf(name, zone); return use && use.used; };
const useUnknown = (name) => (documents.get(`use/${name}`) || { unknown: "" }).unknown;

// Pods of a node that are not aligned; none where that is not known.
const misalignedOf = (node) => node.misaligned || [];

// Zone id → the CPUs there, as sets, of a machine.
function zoneCpus(machine) {
  const found = new Map();
  for (const socket of machine.sockets)
    for (const zone of socket.zones)
      for (const cache of zone.caches)
        for (const core of cache.cores)
          for (const cpu of core) {
            if (!found.has(zone.id)) found.set(zone.id, new Set());
            found.get(zone.id).add(cpu);
          }
  return found;
}

function totals() {
  const found = { nodes: 0, unknown: 0, zones: 0, pods: 0, misaligned: 0, cpus: [0, 0], used: [0, 0], fit: cluster().shapes.map(() => [0, 0, 0, 0]) };
  for (const [name, node] of all("node")) {
    found.nodes += 1;
    if (unknown(node)) found.unknown += 1;
    found.pods += (node.aligned || 0) + misalignedOf(node).length;
    found.misaligned += misalignedOf(node).length;
    for (const zone of zonesOf(node)) {
      found.zones += 1;
      found.cpus[0] += zone.cpus[0];
      found.cpus[1] += zone.cpus[1];
      if (busyOf(name, zone) === null) continue;
      found.used[0] += busyOf(name, zone);
      found.used[1] += zone.cpus[0];
    }
    (node.fit || []).forEach((fit, index) => fit.forEach((value, part) => (found.fit[index][part] += value)));
  }
  return found;
}

// Who holds what in one zone of a node, most CPUs first.
function holdersOf(node, zone) {
  const here = zoneCpus(documents.get(`machine/${node.machine}`)).get(zone) || new Set();
  return node.pods
    .map((pod) => ({
      pod: pod.pod,
      cpus: cpus(pod.cpus).filter((cpu) => here.has(cpu)).length,
      memory: pod.memory.filter(([, , numas]) => numas.includes(zone)).reduce((sum, [, size]) => sum + size, 0),
      devices: pod.devices.filter(([, , numas]) => numas.includes(zone)).map(([kind, ids]) => `${ids.length} ${kind.split("/").pop()}`),
    }))
    .filter((holder) => holder.cpus || holder.memory || holder.devices.length)
    .sort((one, other) => other.cpus - one.cpus || natural(one.pod, other.pod));
}


// What people look for: parts of names and reasons.
const find = { words: [] };
const found = (...texts) => find.words.every((word) => texts.some((text) => text.toLowerCase().includes(word)));

// Pods that wait or were rejected.
const podCounts = () => documents.get("counts/") || { stuck: 0, headline: "", details: "" };
const nameOf = (group) => `${group.namespace}/${group.owner ? group.owner[1] : group.pods[0]}`;
const sizeOf = (group) => (group.verdict === "Rejected" ? group.rejected.count : group.pods.length);
const podsIn = (groups) => groups.reduce((count, group) => count + sizeOf(group), 0);

const ENDED = new Set(["Succeeded", "Failed", "Expired", "Superseded", "Rejected"]);
const inForce = () => sorted("plan").filter(([, plan]) => !ENDED.has(plan.phase));

// Node → [pod, zones there, held] for the room that is held on it.
function heldByNode() {
  const places = new Map();
  for (const [pod, held] of all("held"))
    for (const { node, numaIDs } of held.places) {
      if (!places.has(node)) places.set(node, []);
      places.get(node).push([pod, numaIDs, held]);
    }
  return places;
}
const cpusOf = (held) => (held.asks.find(([resource]) => resource === "cpu") || [])[1];
