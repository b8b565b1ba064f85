// The map: named layers of points, lines and areas, updated from the stream.
// Changes are collected and applied once per frame. Points slide to their new positions; removed features fade out.

import { SCENERY_BELOW, onTheme, styleOf } from "./style.js";

const GROW = 350; // ms
const FADE = 450;
const SMOOTH_UP_TO = 2000; // features; more of them jump, because each frame of a movement draws all
const NAMED_AT_MOST = 80;
const GEOMETRIES = { Point: "point", LineString: "line", Polygon: "area" };
const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** A point on the canvas: a circle or a square. */
const Spot = L.CircleMarker.extend({
  _updatePath() {
    const renderer = this._renderer;
    if (this.options.shape !== "square") return renderer._updateCircle(this);
    if (!renderer._drawing || this._empty()) return undefined;
    const [side, context] = [this._radius * 1.8, renderer._ctx];
    context.beginPath();
    context.roundRect(this._point.x - side / 2, this._point.y - side / 2, side, side, side / 4);
    return renderer._fillStroke(context, this);
  },
});

/** GeoJSON has x, y; Leaflet needs y, x. */
const flip = ([x, y]) => [y, x];

const corners = ({ coordinates }, type) =>
  type === "line" ? coordinates.map(flip) : coordinates.map((ring) => ring.map(flip));

const between = (from, to, share) => from.map((start, i) => start + (to[i] - start) * share);

function draw(geometry, type, style) {
  if (type === "point") return new Spot(flip(geometry.coordinates), style);
  return (type === "line" ? L.polyline : L.polygon)(corners(geometry, type), style);
}

/** Labels are untrusted: they become text nodes, never markup. */
function words(tag, text, className) {
  const node = document.createElement(tag);
  node.textContent = text;
  if (className) node.className = className;
  return node;
}

/** What is on the map beside a feature that is named there. */
const nameOf = ({ label, state }) => (state ? `⚠ ${label} (${state})` : label);

export class Scene {
  /** `changed` is called after frames that added or removed features or layers. */
  constructor(map, changed) {
    this.map = map;
    this.changed = changed;
    this.layers = new Map(); // name -> { group, features: Map(id -> feature), visible }
    this.pending = new Map(); // name -> Map(id -> description, or null: remove)
    this.missing = new Map(); // layer and id -> description of a feature that has a state; not all have a geometry
    this.motions = new Map(); // path -> { start, length, step, done }
    this.count = 0;
    this.named = 0;
    this.framed = false;
    this.restack = false;
    this.zooming = false;
    map.on("zoomanim", () => { this.zooming = true; });
    map.on("zoomend", () => {
      this.zooming = false;
      this.#schedule();
    });
    onTheme(() => this.#restyle());
  }

  /** Replaces the whole scene. */
  replace(layers) {
    for (const name of this.layers.keys()) if (!Object.hasOwn(layers, name)) this.change({ layer: name, clear: true });
    for (const [layer, set] of Object.entries(layers)) this.change({ layer, set, clear: true });
  }

  change({ layer, set = {}, remove = [], clear = false }) {
    if (!this.pending.has(layer)) this.pending.set(layer, new Map());
    const [waiting, present] = [this.pending.get(layer), this.layers.get(layer)?.features ?? new Map()];
    const missing = [...this.missing.keys()].filter((key) => key.startsWith(`${layer}\n`));
    const unseen = new Set(missing.map((key) => key.slice(layer.length + 1))); // without geometry, perhaps
    // A feature set and removed between two frames (a hidden tab has none) leaves nothing behind.
    const drop = (id) => (present.has(id) || unseen.has(id) ? waiting.set(id, null) : waiting.delete(id));
    if (clear) for (const id of [...waiting.keys(), ...present.keys(), ...unseen]) drop(id);
    for (const id of remove) drop(id);
    for (const [id, description] of Object.entries(set)) waiting.set(id, description);
    this.#schedule();
  }

  show(name, visible) {
    const layer = this.layers.get(name);
    layer.visible = visible;
    if (visible) layer.group.addTo(this.map);
    else layer.group.remove();
    this.restack = true;
    this.#schedule();
  }

  /** Layers with their counts, and the visible kinds. */
  summary() {
    const kinds = new Map();
    for (const { features, visible } of this.layers.values()) {
      if (!visible) continue;
      for (const { kind, state, type, style } of features.values()) {
        if (style.order >= SCENERY_BELOW) kinds.set(`${kind}\n${state}\n${type}`, { kind, state, type, style });
      }
    }
    const layers = [...this.layers].map(([name, { features, visible }]) => ({ name, count: features.size, visible }));
    const sorted = [...kinds.values()].sort((a, b) => b.style.order - a.style.order || a.kind.localeCompare(b.kind));
    return { layers, kinds: sorted };
  }

  /** The bounds to show; null for an empty scene. */
  bounds() {
    const bounds = L.latLngBounds([]);
    for (const { features, visible } of this.layers.values()) {
      if (!visible) continue;
      for (const { path, style } of features.values()) {
        if (!style.far) bounds.extend(path.getBounds?.() ?? path.getLatLng());
      }
    }
    return bounds.isValid() ? bounds : null;
  }

  #schedule() {
    if (this.framed) return;
    this.framed = true;
    requestAnimationFrame((now) => this.#frame(now));
  }

  #frame(now) {
    this.framed = false;
    if (this.zooming) return; // positions mean nothing half-way; `zoomend` schedules again
    const changed = this.pending.size > 0;
    for (const [name, waiting] of this.pending) this.#apply(name, waiting, now);
    this.pending.clear();
    for (const [path, { start, length, step, done }] of this.motions) {
      const share = Math.min(1, (now - start) / length);
      step(share);
      if (share < 1) continue;
      this.motions.delete(path);
      done?.();
    }
    if (this.restack) this.#stack();
    if (changed) this.changed();
    if (this.motions.size) this.#schedule();
  }

  #apply(name, waiting, now) {
    if (!this.layers.has(name)) {
      const group = L.featureGroup().bindTooltip((path) => this.#tooltip(path), { sticky: true, className: "tip" });
      this.layers.set(name, { group: group.addTo(this.map), features: new Map(), visible: true });
    }
    const layer = this.layers.get(name);
    for (const [id, description] of waiting) {
      const feature = layer.features.get(id);
      const type = GEOMETRIES[description?.geometry?.type];
      const [kind, state] = [description?.kind || type, description?.state];
      if (state) this.missing.set(`${name}\n${id}`, description);
      else this.missing.delete(`${name}\n${id}`);
      const isSame = feature && feature.type === type && feature.kind === kind && feature.state === state;
      if (isSame) this.#update(feature, description, now);
      else {
        if (feature) this.#remove(layer, id, feature, now);
        if (type) this.#add(layer, id, type, kind, description, now);
      }
    }
  }

  #add(layer, id, type, kind, { geometry, label, state, since, why }, now) {
    const style = styleOf(kind, type, state);
    const path = draw(geometry, type, style);
    const feature = { kind, type, label, state, since, why, style, path, seen: now };
    path.feature = feature;
    if (style.named && label && this.named < NAMED_AT_MOST) {
      this.named += 1;
      feature.name = words("span", nameOf(feature));
      const above = [0, state ? -18 : 0]; // a subscriber may be in the centre
      const at = type === "point" ? { direction: "bottom", offset: [0, style.radius] } : { direction: "center", offset: above };
      path.bindTooltip(feature.name, { permanent: true, className: `name ${type}${state ? " missing" : ""}`, ...at });
    }
    layer.features.set(id, feature);
    this.count += 1;
    layer.group.addLayer(path);
    if (type !== "point" && !style.grows) this.restack = true;
    if (style.grows) {
      const points = corners(geometry, type);
      const [last, before] = [points.at(-1), points.at(-2)];
      const step = (share) => path.setLatLngs([...points.slice(0, -1), between(before, last, share)]);
      this.#move(path, { start: now, length: GROW, step });
    }
  }

  #update(feature, { geometry, label, since, why }, now) {
    Object.assign(feature, { label, since, why });
    if (feature.name) feature.name.textContent = nameOf(feature);
    if (feature.type !== "point") return feature.path.setLatLngs(corners(geometry, feature.type));
    const { lat, lng } = feature.path.getLatLng();
    const [from, to] = [[lat, lng], flip(geometry.coordinates)];
    // As long as the previous step, so that regular steps make smooth movement.
    const length = Math.min(1500, Math.max(150, now - feature.seen));
    feature.seen = now;
    if (lat === to[0] && lng === to[1]) return undefined;
    const step = (share) => feature.path.setLatLng(between(from, to, share));
    return this.#move(feature.path, { start: now, length, step });
  }

  #remove(layer, id, { path, type, name, style }, now) {
    layer.features.delete(id);
    this.count -= 1;
    if (name) {
      this.named -= 1;
      path.unbindTooltip();
    }
    const { opacity = 1, fillOpacity = 0.2, radius } = { ...path.options, ...style };
    const step = (share) => {
      const left = 1 - share;
      path.setStyle({ opacity: opacity * left, fillOpacity: fillOpacity * left });
      if (type === "point") path.setRadius(radius * (1 + share));
    };
    this.#move(path, { start: now, length: FADE, step, done: () => layer.group.removeLayer(path) });
  }

  #move(path, motion) {
    const length = calm.matches || this.count > SMOOTH_UP_TO ? 1 : motion.length;
    this.motions.set(path, { ...motion, length });
  }

  #tooltip({ feature }) {
    const box = document.createElement("div");
    box.append(words("strong", feature.label), words("span", feature.kind));
    if (feature.state) {
      box.append(words("span", `${feature.state} since ${new Date(feature.since).toLocaleString()}`));
      box.append(words("span", feature.why));
    }
    return box;
  }

  /** One canvas draws everything, so that every feature gets pointer events: keep its drawing order. */
  #stack() {
    this.restack = false;
    const shown = [...this.layers.values()].filter((layer) => layer.visible);
    const features = shown.flatMap((layer) => [...layer.features.values()]);
    for (const { path } of features.sort((a, b) => a.style.order - b.style.order)) path.bringToFront();
  }

  #restyle() {
    for (const { features } of this.layers.values()) {
      for (const feature of features.values()) {
        feature.style = styleOf(feature.kind, feature.type, feature.state);
        feature.path.setStyle(feature.style);
      }
    }
    this.changed();
  }
}
