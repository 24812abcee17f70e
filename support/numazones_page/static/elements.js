// Elements are made here and nowhere else. Texts from the cluster only ever become text nodes, attributes and
// values of properties of style, never markup.

function el(name, attributes, ...children) {
  const [tag, ...classes] = name.split(".");
  const made = document.createElement(tag);
  if (classes.length) made.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "style") for (const [name, text] of Object.entries(value)) made.style.setProperty(name, text);
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const natural = new Intl.Collator("en", { numeric: true }).compare;
const figures = new Intl.NumberFormat("en");
const number = (value) => figures.format(value);
const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
const percent = (share) => (share > 0 && share < 0.01 ? "<1%" : share > 0.99 && share < 1 ? ">99%" : `${Math.round(share * 100)}%`);

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
function bytes(amount) {
  let unit = 0;
  while (amount >= 1024 && unit < UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return `${amount < 10 && unit ? Math.floor(amount * 10) / 10 : Math.floor(amount)} ${UNITS[unit]}`;
}

// A bar of a share, decoration beside the figures that say the same.
function bar(share, kind) {
  return el(`span.bar${kind ? `.${kind}` : ""}`, { "aria-hidden": "true" }, el("span", { style: { width: `${Math.min(1, share) * 100}%` } }));
}

// On narrow screens rows are cards, and each cell says its column; the roles keep it a table for screen readers.
function table(columns, rows, { label, right = [] } = {}) {
  const aligned = (index) => (right.includes(index) ? { class: "right" } : {});
  const head = (name, index) => el("th", { scope: "col", role: "columnheader", ...aligned(index) }, name);
  const cell = (content, index) => el("td", { role: "cell", "data-label": columns[index], ...aligned(index) }, content);
  return el(
    "div.scroll",
    { tabindex: "0", role: "region", "aria-label": label },
    el(
      "table",
      { role: "table", "aria-label": label },
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, columns.map(head))),
      el("tbody", { role: "rowgroup" }, rows.map((row) => el("tr", { role: "row" }, row.map(cell)))),
    ),
  );
}

// Links to places of this page.
const nodeLink = (name, zone) => `#/node/${encodeURIComponent(name)}${zone === undefined ? "" : `/${zone}`}`;
// A sentence in which the name of a node leads there.
function linked(text, node) {
  const part = /[\w.-]/; // of a longer name, such as a pod's that ends like its node's
  for (let at = text.indexOf(node); node && at >= 0; at = text.indexOf(node, at + 1))
    if (!part.test(text[at - 1] || "") && !part.test(text[at + node.length] || "")) return [text.slice(0, at), nodeAnchor(node), text.slice(at + node.length)];
  return text;
}

const clockTime = (time) => time.replace(/^.*T/, "").replace("Z", " UTC");
const nodeAnchor = (name, zone) => el("a", { href: nodeLink(name, zone) }, zone === undefined ? name : `${name} · NUMA ${zone}`);

