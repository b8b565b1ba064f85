// The live page: connects the node's scene stream to the map and the panel.

import { Counters, Layers, showLegend, showMissing, showProblems, showState, showTitle } from "./panel.js";
import { Scene } from "./scene.js";

const HEALTH_EVERY = 5_000; // ms

const SPACES = {
  geographic: { crs: L.CRS.EPSG3857, minZoom: 1, maxZoom: 22 },
  planar: { crs: L.CRS.Simple, minZoom: -12, maxZoom: 10 },
};

/** Lines at round coordinates, about 120 pixels apart. */
function addGrid(map) {
  map.createPane("grid").style.zIndex = 450;
  const lines = L.layerGroup().addTo(map);
  const options = { pane: "grid", renderer: L.svg({ pane: "grid" }), interactive: false, className: "grid", weight: 1 };
  const drawLines = () => {
    const view = map.getBounds().pad(0.1);
    const [west, east, south, north] = [view.getWest(), view.getEast(), view.getSouth(), view.getNorth()];
    const rough = (120 * (east - west)) / map.getSize().x;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
    const ends = [];
    for (let x = Math.ceil(west / step) * step; x < east; x += step) ends.push([[south, x], [north, x]]);
    for (let y = Math.ceil(south / step) * step; y < north; y += step) ends.push([[y, west], [y, east]]);
    lines.clearLayers();
    lines.addLayer(L.polyline(ends, options));
  };
  map.on("moveend resize", drawLines);
}

function addFitButton(map, fit) {
  const control = L.control({ position: "topleft" });
  control.onAdd = () => {
    const bar = L.DomUtil.create("div", "leaflet-bar");
    const button = L.DomUtil.create("button", "fit", bar);
    Object.assign(button, { type: "button", title: "Show the whole scene", textContent: "⤢" });
    button.setAttribute("aria-label", "Show the whole scene");
    L.DomEvent.disableClickPropagation(bar);
    button.addEventListener("click", fit);
    return bar;
  };
  control.addTo(map);
}

/** Builds the map for a space. The view follows the scene until the user moves it. */
function openMap(space) {
  const map = L.map("map", { ...SPACES[space], preferCanvas: true, zoomSnap: 0.1, attributionControl: false });
  let touched = false; // by the user
  let stale = false; // the panel is
  const scene = new Scene(map, () => { stale = true; });
  const layers = new Layers((name, visible) => {
    scene.show(name, visible);
    stale = true;
  });

  function fit(bounds) {
    if (bounds) map.fitBounds(bounds, { padding: [28, 28], maxZoom: SPACES[space].maxZoom - 4 });
  }
  function follow(bounds) {
    if (touched || !bounds || scene.zooming) return;
    const seen = map.getBounds();
    const tiny = seen.getEast() - seen.getWest() > 3 * (bounds.getEast() - bounds.getWest());
    if (tiny || !seen.contains(bounds)) fit(bounds);
  }
  for (const kind of ["pointerdown", "wheel", "keydown"]) {
    map.getContainer().addEventListener(kind, () => { touched = true; }, true);
  }
  addFitButton(map, () => {
    touched = false;
    fit(scene.bounds());
  });
  L.control.scale({ imperial: false, position: "bottomleft" }).addTo(map);
  addGrid(map);
  map.setView([0, 0], 3);
  setInterval(() => {
    if (!stale) return;
    stale = false;
    const { layers: list, kinds } = scene.summary();
    layers.update(list);
    showLegend(kinds);
    showMissing(scene.missing.values());
    follow(scene.bounds());
  }, 250);
  return scene;
}

/** The error of a node that has no scene. */
async function sceneError() {
  try {
    const { error } = await (await fetch("/v1/scene")).json();
    return `${error.message}: ${error.hint}`;
  } catch {
    return "no scene, retrying";
  }
}

/** Keeps the banner up to date. A node that does not respond is shown by the state of the connection. */
async function watchHealth() {
  for (;;) {
    try {
      showProblems((await (await fetch("/healthz")).json()).problems);
    } catch {
      // retried below
    }
    await new Promise((resume) => { setTimeout(resume, HEALTH_EVERY); });
  }
}

function connect() {
  const counters = new Counters();
  let scene = null;
  let space = null;
  let wait = 500; // ms

  function open() {
    const stream = new EventSource("/v1/scene/stream");
    const listen = (name, then) => stream.addEventListener(name, (event) => then(JSON.parse(event.data)));
    stream.addEventListener("open", () => {
      wait = 500;
      showState("live");
    });
    // The browser reconnects after a break, but not after a response that is not a stream.
    stream.addEventListener("error", async () => {
      showState("broken", "connection lost, retrying");
      if (stream.readyState !== EventSource.CLOSED) return;
      setTimeout(open, wait);
      wait = Math.min(10_000, wait * 2);
      showState("broken", await sceneError());
    });
    listen("snapshot", (snapshot) => {
      if (space && snapshot.space !== space) location.reload();
      space = snapshot.space;
      scene ??= openMap(space);
      showTitle(snapshot.title);
      counters.update(snapshot.counters);
      scene.replace(snapshot.layers);
    });
    listen("change", (change) => scene.change(change));
    listen("counters", (values) => counters.update(values));
  }
  open();
}

connect();
watchHealth();
