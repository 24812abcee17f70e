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

function table(columns, rows, { label, right = [] } = {}) {
  const aligned = (index) => (right.includes(index) ? { class: "right" } : {});
  return el(
    "div.scroll",
    { tabindex: "0", role: "region", "aria-label": label },
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, columns.map((name, index) => el("th", { scope: "col", ...aligned(index) }, name)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, index) => el("td", aligned(index), cell))))),
    ),
  );
}

// Links to places of this page.
const nodeLink = (name, zone) => `#/node/${encodeURIComponent(name)}${zone === undefined ? "" : `/${zone}`}`;
const nodeAnchor = (name, zone) => el("a", { href: nodeLink(name, zone) }, zone === undefined ? name : `${name} · NUMA ${zone}`);

