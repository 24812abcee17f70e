// Pods that run, but not aligned: whose CPUs, memory or devices are on several NUMA nodes.

const MOST_MISALIGNED = 50;

function alignmentSection() {
  return el("section", { id: "alignment", "aria-labelledby": "alignment-title" }, el("h2", { id: "alignment-title" }, "Pods that are not aligned"), el("p.quiet", {}, "These pods run with CPUs, memory or devices on several NUMA nodes. ", el("code", {}, "kubectl numazones why POD"), " shows why a pod was admitted, and whether its node could align it."), el("div.list"));
}

// [node, pod] of all, the worst first.
function misalignedPods() {
  const pods = sorted("node").flatMap(([name, node]) => misalignedOf(node).map((pod) => [name, pod]));
  const worse = ([, one], [, other]) => one.badness.reduce((order, part, index) => order || other.badness[index] - part, 0) || natural(one.pod, other.pod);
  return pods.sort(worse);
}

function drawAlignment(section) {
  const pods = misalignedPods();
  section.hidden = !pods.length;
  const matching = pods.filter(([name, pod]) => found(pod.pod, name, pod.says));
  const rows = matching.slice(0, MOST_MISALIGNED).map(([name, pod]) => [pod.pod, nodeAnchor(name), pod.says, cpus(pod.apart).length ? number(cpus(pod.apart).length) : ""]);
  const more = matching.length - rows.length;
  section.querySelector(".list").replaceChildren(
    rows.length ? table(["Pod", "Node", "Alignment", "Remote CPUs"], rows, { label: "Pods that are not aligned", right: [3] }) : el("p.empty", {}, "No matching pods."),
    ...(more > 0 ? [el("p.quiet", {}, `${number(more)} more ${more === 1 ? "pod is" : "pods are"} less misaligned and not listed. To find a pod, search for its name or node.`)] : []),
  );
}
