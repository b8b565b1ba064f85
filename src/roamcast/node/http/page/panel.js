// The panel: connection, counters with rates and sparklines, layers, legend. Labels are inserted as text.

const SECONDS = 60; // shown by a sparkline
const RATE_OVER = 5; // seconds
const SVG = "http://www.w3.org/2000/svg";
const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const rate = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

const at = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** `events_accepted` and `eventsAccepted` become `Events accepted`. */
function humanised(name) {
  const words = name.replace(/^roamcast_|_total$/g, "").replace(/([a-z])([A-Z])/g, "$1 $2").replace(/[_.-]+/g, " ");
  const text = words.trim().toLowerCase();
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function showTitle(title) {
  at("title").textContent = title || "roamcast";
  document.title = title ? `${title} · roamcast` : "roamcast";
}

export function showState(state, text = state) {
  at("state").dataset.state = state;
  at("state").textContent = text;
}

/** A banner with what is wrong and since when; hidden if `problems` is empty. */
export function showProblems(problems) {
  const lines = problems.map(({ kind, since, detail }) => {
    const time = element("time", { datetime: since }, `since ${new Date(since).toLocaleString()}`);
    return element("li", {}, element("strong", {}, humanised(kind)), " ", time, element("p", {}, detail));
  });
  at("problems").replaceChildren(...lines);
  at("health").hidden = lines.length === 0;
}

/** What a subscription in this state receives. */
const RECEIVES = { starting: "only part", partial: "only part" };
const LISTED_AT_MOST = 20;

/** The subscriptions that receive nothing or only part, those that receive nothing first; hidden if there are none. */
export function showMissing(subscriptions) {
  const rank = ({ state }) => Number(state in RECEIVES);
  const sorted = [...subscriptions].sort((a, b) => rank(a) - rank(b) || a.label.localeCompare(b.label));
  const lines = sorted.slice(0, LISTED_AT_MOST).map(({ label, state, since, why }) => {
    const time = element("time", { datetime: since }, `since ${new Date(since).toLocaleString()}`);
    const text = `${state}, receives ${RECEIVES[state] ?? "nothing"}, `;
    return element("li", {}, element("strong", {}, label), element("div", {}, text, time), element("p", {}, why));
  });
  if (sorted.length > lines.length) lines.push(element("li", {}, `and ${sorted.length - lines.length} more`));
  at("missing-list").replaceChildren(...lines);
  at("missing-count").textContent = number.format(sorted.length);
  at("missing").hidden = lines.length === 0;
}

/** Counters of the node, each with its rate and a sparkline of the last minute. */
export class Counters {
  constructor() {
    this.rows = new Map();
    setInterval(() => this.#tick(), 1000);
  }

  update(values) {
    for (const [name, value] of Object.entries(values)) {
      const row = this.rows.get(name) ?? this.#add(name, value);
      if (value < row.value) row.history = []; // the node has restarted
      row.value = value;
      row.total.textContent = number.format(value);
    }
  }

  #add(name, value) {
    const [total, perSecond] = [element("span", { class: "total" }), element("span", { class: "rate" })];
    const svg = document.createElementNS(SVG, "svg");
    const [line, area] = [document.createElementNS(SVG, "polyline"), document.createElementNS(SVG, "polygon")];
    svg.setAttribute("viewBox", `0 0 ${SECONDS - 1} 24`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    svg.append(area, line);
    at("counters").append(
      element("div", {}, element("dt", {}, humanised(name)), element("dd", {}, total, perSecond), svg),
    );
    const row = { value, total, perSecond, svg, line, area, history: [] };
    this.rows.set(name, row);
    return row;
  }

  #tick() {
    for (const row of this.rows.values()) {
      row.history.push(row.value);
      if (row.history.length > SECONDS + 2) row.history.shift();
      const { history } = row;
      const back = Math.min(RATE_OVER, history.length - 1);
      // Over two seconds: the node updates its counters once a second, at other times than this.
      const steps = history.slice(2).map((value, i) => value - history[i]);
      const most = Math.max(1, ...steps);
      const still = history[0] === row.value;
      row.perSecond.textContent = still ? "" : `${rate.format((row.value - history.at(-1 - back)) / back)}/s`;
      row.svg.toggleAttribute("hidden", still);
      const points = steps.map((step, i) => `${SECONDS - steps.length + i},${(23 - (step / most) * 21).toFixed(1)}`);
      row.line.setAttribute("points", points.join(" "));
      row.area.setAttribute("points", [`${SECONDS - steps.length},24`, ...points, `${SECONDS - 1},24`].join(" "));
    }
  }
}

/** The layers with a checkbox and a count. `toggled(name, visible)` is called on changes. */
export class Layers {
  constructor(toggled) {
    this.toggled = toggled;
    this.rows = new Map();
  }

  update(layers) {
    for (const { name, count, visible } of layers) {
      const row = this.rows.get(name) ?? this.#add(name);
      row.box.checked = visible;
      row.count.textContent = number.format(count);
    }
  }

  #add(name) {
    const [box, count] = [element("input", { type: "checkbox" }), element("span", { class: "count" })];
    box.addEventListener("change", () => this.toggled(name, box.checked));
    at("layers").append(element("li", {}, element("label", {}, box, element("span", {}, humanised(name)), count)));
    const row = { box, count };
    this.rows.set(name, row);
    return row;
  }
}

/** One entry for each visible kind. */
export function showLegend(kinds) {
  const lines = kinds.map(({ kind, state, type, style }) => {
    const swatch = element("i", { class: `swatch ${type} ${style.shape ?? ""}` });
    swatch.style.setProperty("--swatch", style.swatch);
    if (style.dashArray) swatch.classList.add("dashed");
    if (style.fillOpacity < 1) swatch.classList.add("hollow");
    return element("li", {}, swatch, state ? `${humanised(kind)}, ${state}` : humanised(kind));
  });
  at("legend").replaceChildren(...lines);
}
