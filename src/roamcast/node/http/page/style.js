// The style of each kind. Other kinds get the defaults of their geometry and a colour derived from their name, so that
// a new scenario needs no change here.
//
//   color  [on light, on dark]           shape  of a point: circle or square
//   order  of drawing, low is behind     named  its label is on the map, not only in the tooltip
//   far    ignored when the view is fitted
//   grows  a new line is drawn from its first point to its last
// All other fields are Leaflet path options. Kinds below SCENERY_BELOW are not in the legend.

const KINDS = {
  sea: { color: ["#c7dbe6", "#0e2836"], fillOpacity: 1, stroke: false, interactive: false, far: true, order: 0 },
  district: { color: ["#aaa290", "#445161"], fillOpacity: 0.16, weight: 1, interactive: false, named: true, order: 1 },
  park: { color: ["#9cc28b", "#2b4a35"], fillOpacity: 0.55, stroke: false, order: 2 },
  river: { color: ["#c7dbe6", "#0e2836"], weight: 12, opacity: 1, interactive: false, far: true, order: 3 },
  "ferry line": { color: ["#8fb0c4", "#2f5468"], weight: 1.5, dashArray: "2 6", order: 3 },
  street: { color: ["#ffffff", "#323c48"], weight: 2.5, opacity: 1, order: 4 },
  "main street": { color: ["#ffffff", "#434f5d"], weight: 5, opacity: 1, order: 5 },
  quay: { color: ["#aaa290", "#445161"], weight: 4, opacity: 1, order: 5 },
  subscription: { color: ["#7b5ea7", "#b79be0"], fillOpacity: 0.06, weight: 1.5, dashArray: "5 5", order: 6 },
  letter: { color: ["#d97706", "#ffc857"], weight: 2, interactive: false, grows: true },
  event: { color: ["#d97706", "#ffc857"], radius: 11, weight: 2, fillOpacity: 0.15, interactive: false },
  domain: { color: ["#8aa0b8", "#3d5268"], fillOpacity: 0.14, weight: 1.5, interactive: false, order: 1 },
  office: { color: ["#334e68", "#b3c7dd"], shape: "square", radius: 10, named: true, order: 8 },
  place: { color: ["#b08900", "#8f7420"], fillOpacity: 0.12, weight: 1.5, named: true, order: 2 },
  room: { color: ["#8b95a1", "#5b6875"], fillOpacity: 0.04, weight: 3, interactive: false, order: 1 },
  track: { color: ["#b9b3a5", "#4a5664"], weight: 2, dashArray: "1 7", lineCap: "round", interactive: false, order: 3 },
  cable: { color: ["#c9ccd1", "#333d48"], weight: 1, interactive: false, order: 3 },
  binding: { color: ["#1a7f4b", "#5fd198"], weight: 4, opacity: 0.75 },
  sensor: { color: ["#8b95a1", "#64717e"], radius: 8, named: true },
  sending: { color: ["#1a7f4b", "#5fd198"], radius: 9 },
  agent: { color: ["#7b5ea7", "#b79be0"], radius: 8, named: true },
  traveller: { color: ["#c2410c", "#ff8a5c"], radius: 7, named: true },
  subscriber: { color: ["#7b5ea7", "#b79be0"], radius: 8, named: true },
  person: { color: ["#7b5ea7", "#b79be0"], radius: 8, named: true },
  source: { color: ["#14717c", "#4fc3cf"] },
  "smoke sensor": { color: ["#c2410c", "#ff8a5c"] },
  "air sensor": { color: ["#14717c", "#4fc3cf"] },
  "flood sensor": { color: ["#1d5fc4", "#74a9ff"] },
  "noise sensor": { color: ["#9a3b7c", "#e58cc6"] },
  bus: { color: ["#8a5a00", "#e7b94a"], shape: "square", radius: 7 },
  bike: { color: ["#3f7d20", "#8fd06a"], shape: "square", radius: 5.5 },
  ferry: { color: ["#334e68", "#b3c7dd"], shape: "square", radius: 8 },
};

const GEOMETRIES = {
  area: { fillOpacity: 0.12, weight: 1.5, order: 6 },
  line: { weight: 3, opacity: 0.9, fill: false, order: 7 },
  point: { radius: 6.5, fillOpacity: 1, weight: 1.5, shape: "circle", order: 9 },
};

export const SCENERY_BELOW = 6;

const darkness = matchMedia("(prefers-color-scheme: dark)");

/** Calls `then` when the colour scheme changes. */
export const onTheme = (then) => darkness.addEventListener("change", then);

/** A stable hue for a name (FNV-1a). */
function hue(name) {
  let hash = 0x811c9dc5;
  for (const character of name) hash = Math.imul(hash ^ character.codePointAt(0), 0x01000193);
  return (hash >>> 0) % 360;
}

/** A feature with a state, which is not simply active. */
const MISSING = { color: ["#9a5b00", "#ffc857"], weight: 2.5, dashArray: "2 5", fillOpacity: 0.14, named: true };

/** How a kind is drawn as an area, a line or a point, in the current theme. `swatch` is its colour. */
export function styleOf(kind, geometry, state) {
  const known = { ...(Object.hasOwn(KINDS, kind) ? KINDS[kind] : {}), ...(state ? MISSING : {}) };
  const style = { ...GEOMETRIES[geometry], ...known };
  const colors = known.color ?? [`hsl(${hue(kind)} 65% 38%)`, `hsl(${hue(kind)} 70% 68%)`];
  const swatch = colors[Number(darkness.matches)];
  const solid = geometry === "point" && style.fillOpacity === 1;
  const rim = darkness.matches ? "#10151b" : "#ffffff";
  return { ...style, swatch, fillColor: swatch, color: solid ? rim : swatch };
}
