// Plans, played through: every zone concerned is a track as long as its CPUs, every pod a block on it. A step
// moves a block; the browser animates the way from where it was, unless people asked for less motion.

const ROW = 58;
const PHASES = { Succeeded: "good", Failed: "alert", Executing: "busy", Approved: "busy" };
const steps = new Map();

function plansSection() {
  return el("section", { id: "plans", "aria-labelledby": "plans-title" }, el("h2", { id: "plans-title" }, "Plans"), el("div.cards"), el("div.ended"));
}

function drawPlans(section) {
  const matching = ([key, plan]) => found(key, plan.goal, ...plan.moves.map((move) => move.pod), ...plan.placements.map((placed) => placed.pod));
  const ended = sorted("plan").filter(([, plan]) => ENDED.has(plan.phase));
  section.hidden = !all("plan").size;
  renew(section.querySelector(".cards"), inForce().filter(matching), planCard, inForce().length ? "No matching plans." : "No plan is proposed or running.");
  const past = ended.filter(matching);
  section.querySelector(".ended").replaceChildren(...(past.length ? [details("ended plans", `${counted(past.length, "plan")} that ${past.length === 1 ? "has" : "have"} ended`, el("div.cards", {}, past.map(([key, plan]) => planCard(key, plan))))] : []));
}

function planCard(key, plan) {
  const script = scriptOf(plan);
  const [before, after] = plan.counts;
  const tone = PHASES[plan.phase] || "unsure";
  return el(
    "article.card.plan",
    { id: `plan-${key}` },
    el("header", {}, el("h3", {}, plan.goal), plan.phase && el(`span.badge.${tone}`, {}, plan.phase)),
    el("p.sentence", {}, `${before} now, ${after} after ${counted(plan.moves.length, "eviction")}${plan.minimal ? ", the fewest possible" : ""}`, el("span.quiet", {}, ` · ${key}`)),
    plan.message && el("p.history", {}, plan.message),
    plan.phase === "Proposed" && plan.policy && decision(key, plan),
    plan.zones.length ? player(key, plan, script) : el("p.history", {}, "What these NUMA nodes held before the plan is no longer known."),
    el("ol.moves", {}, plan.moves.map((move) => el("li", {}, el("strong", {}, move.pod), ` from ${placeName(move.from)} to ${placeName(move.to)}`, move.phase && el("span.chip", {}, move.phase), move.why && el("span.quiet", {}, ` — ${move.why}`))), plan.placements.map((placed) => el("li", {}, el("strong", {}, placed.pod), ` fits on ${placeName(placed.to)}`))),
  );
}

// What people may do about a proposal: no command is shown that would have no effect.
function decision(key, plan) {
  const command = (verb) => el("code", {}, `kubectl numazones ${verb} ${key}`);
  if (plan.objection) return el("p", {}, `This plan cannot be approved: ${plan.objection}.`);
  if (plan.approved) return el("p", {}, "Approved. The operator checks the plan again before it starts. To stop it: ", command("reject"));
  return el("p", {}, "Approve or reject: ", command("approve"), ", ", command("reject"));
}

const placeName = ({ node, numaIDs }) => `${node}${numaIDs.length ? ` NUMA ${numaIDs.join(", ")}` : ""}`;
const trackKey = (node, zone) => `${node} ${zone}`;

// What happens, step by step: each a pod, where it goes (null: evicted, not yet running again), and words.
function scriptOf(plan) {
  const moves = plan.moves.map((move) => ({ pod: move.pod, cpus: move.cpus, to: move.to, says: `${move.pod} moves from ${placeName(move.from)} to ${placeName(move.to)}` }));
  const placed = plan.placements.map((item) => ({ pod: item.pod, cpus: item.cpus, to: item.to, says: `${item.pod} runs on ${placeName(item.to)}` }));
  if (!plan.last) return [...moves, ...placed];
  const evicted = plan.moves.map((move) => ({ pod: move.pod, cpus: move.cpus, to: null, says: `${move.pod} is evicted from ${placeName(move.from)}` }));
  return [...evicted, ...placed, ...moves];
}

// Track → [pod, CPUs] in order, after so many steps. The track "" is for pods that wait.
function arrangement(plan, script, step) {
  const tracks = new Map([["", plan.placements.map((item) => [item.pod, item.cpus || 1])]]);
  for (const zone of plan.zones) tracks.set(trackKey(zone.node, zone.id), zone.pods.map((pod) => [...pod]));
  for (const { pod, cpus: size, to } of script.slice(0, step)) {
    let held = 0;
    for (const [track, blocks] of tracks) {
      held += blocks.filter(([name]) => name === pod).reduce((sum, [, count]) => sum + count, 0);
      tracks.set(track, blocks.filter(([name]) => name !== pod));
    }
    const count = size || held || 1;
    const targets = to ? to.numaIDs.map((zone) => trackKey(to.node, zone)).filter((track) => tracks.has(track)) : [""];
    for (const track of targets) tracks.get(track).push([pod, count / targets.length]);
  }
  return tracks;
}

function player(key, plan, script) {
  const rows = [["", "waiting for a node", 0], ...plan.zones.map((zone) => [trackKey(zone.node, zone.id), `${zone.node} · NUMA ${zone.id}`, zone.cpus])];
  const widest = Math.max(...rows.map(([, , count]) => count), plan.placements.reduce((sum, item) => sum + (item.cpus || 1), 0), 1);
  const moving = new Set(plan.moves.map((move) => move.pod));
  const arriving = new Set(plan.placements.map((item) => item.pod));
  const stage = el("div.stage", { "aria-hidden": "true", style: { height: `${rows.length * ROW}px` } });
  rows.forEach(([, label, count], index) => {
    const free = el("span.room");
    stage.append(el("div.track", { style: { top: `${index * ROW}px` } }, el("span.label", {}, label, free), count > 0 && el("div.rail", { style: { width: `${(count / widest) * 100}%`, "--cpus": count } })));
  });
  const blocks = new Map();
  const says = el("output", { "aria-live": "polite" });
  const slider = el("input", { type: "range", min: 0, max: script.length, value: 0, "aria-label": `Steps of the plan ${key}`, "data-key": `slider-${key}`, oninput: () => { stop(); show(Number(slider.value)); } });
  let timer = 0;
  const button = (text, act, name) => el("button", { type: "button", "data-key": `${name}-${key}`, onclick: act }, text);
  const playing = button("Play", () => (timer ? stop() : play()), "play");
  const back = button("Before", () => { stop(); show(0); }, "before");
  const forth = button("After", () => { stop(); show(script.length); }, "after");

  function stop() {
    clearInterval(timer);
    timer = 0;
    playing.textContent = "Play";
  }
  function play() {
    if (Number(slider.value) >= script.length) show(0);
    playing.textContent = "Stop";
    timer = setInterval(() => {
      if (!stage.isConnected) return stop();
      show(Number(slider.value) + 1);
      if (Number(slider.value) >= script.length) stop();
    }, 1100);
  }
  function show(step) {
    steps.set(key, step);
    slider.value = step;
    says.textContent = step === 0 ? `Before: ${counted(script.length, "step")} to go` : `Step ${step} of ${script.length}: ${script[step - 1].says}`;
    const seen = new Set();
    const tracks = arrangement(plan, script, step);
    rows.forEach(([track, , count], row) => {
      let from = 0;
      const parts = tracks.get(track);
      for (const [pod, size] of parts) {
        let part = 0;
        while (seen.has(`${pod}#${part}`)) part += 1;
        const id = `${pod}#${part}`;
        seen.add(id);
        if (!blocks.has(id)) {
          blocks.set(id, el(`div.block${arriving.has(pod) ? ".arriving" : moving.has(pod) ? ".moving" : ""}`, { title: pod }, el("span", {}, pod.split("/").pop())));
          stage.append(blocks.get(id));
        }
        const block = blocks.get(id);
        block.style.top = `${row * ROW + 22}px`;
        block.style.left = `${(from / widest) * 100}%`;
        block.style.width = `${(size / widest) * 100}%`;
        from += size;
      }
      stage.children[row].querySelector(".room").textContent = count ? ` ${number(count - from)} of ${number(count)} CPUs free` : parts.length ? "" : " none";
    });
    for (const [id, block] of blocks)
      if (!seen.has(id)) {
        block.remove();
        blocks.delete(id);
      }
  }
  show(Math.min(steps.get(key) || 0, script.length));
  return el("div.player", {}, stage, el("div.controls", {}, playing, back, forth, slider), says);
}

