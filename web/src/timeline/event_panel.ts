// What is known of an event of the timeline: in the tip, in the panel below, and the kinds' colours.

import { definitions } from "../definitions";
import { h, name } from "../dom";
import { format, share } from "../format";
import type { Context } from "../registry";
import type { Tree } from "../tree";
import type { Events } from "./events";
import { Palette } from "./paint";

const WORDS: Record<string, string> = {
  compute: "kernel",
  "idle: host": "the device waits for the host",
  "idle: device": "the device's pause between two pieces of work",
  "idle: other": "the device waits: other causes",
  "idle: unknown": "the device waits: the file does not say for what",
  call: "call of the runtime",
  python: "Python function",
  pause: "pause of the device",
  launch: "from a launch to its work",
  host: "the host, on the critical path",
  merged: "events too short to be drawn",
};
const MOST_LAUNCHED = 8;

export interface Acts {
  go: (event: number) => void;
  next: (back: boolean) => void;
  fit: () => void;
}

export function tipLines(events: Events, event: number): HTMLElement[] {
  const [layer, phase] = placeOf(events, event);
  const count = events.count(event);
  const about = [kindText(events, event), layer, phase].filter(Boolean);
  return [
    h("strong", {}, name(count > 1 ? `${count.toLocaleString("en")} ${events.name(event)}` : events.name(event))),
    h("div", {}, format(events.time(event), "time"), " · ", name(about.join(" · "))),
  ];
}

export function eventPanel(events: Events, event: number, context: Context, acts: Acts): HTMLElement[] {
  const { begin, end, launch } = events.columns;
  const [layer, phase] = placeOf(events, event);
  const row = events.row(event);
  const rows: [string, string, string][] = [];
  const add = (label: string, value: string, note = "") => value && rows.push([label, value, note]);
  const part = events.data.duration > 0 ? share(events.time(event) / events.data.duration) : "";
  add("duration", format(events.time(event), "time", 4), `${part} of the window`);
  if (events.data.lanes[row.lane].group === "host") add("own time", format(events.own(event), "time", 4));
  add("begins at", format(begin[event], "time", 6));
  add("in", events.data.lanes[row.lane].name);
  add("layer", layer);
  add("phase", phase);
  add("events", events.count(event) > 1 ? events.count(event).toLocaleString("en") : "", `over ${format(end[event] - begin[event], "time")}`);
  if (launch[event] >= 0) add("waited", format(begin[event] - begin[launch[event]], "time"), "since its launch");
  const found = node(context.tree, events, event);
  if (context.tree && found !== null) context.tree.launch(found).forEach((fact, at) => add(at ? "" : "all its calls", fact));
  const button = (text: string, act: () => void) => h("button", { type: "button", class: "quiet", click: act }, text);
  return [
    h("h3", {}, name(events.name(event)), " ", h("span", { class: "how" }, kindText(events, event))),
    h("div", { class: "blocks" }, definitions(rows), links(events, event, acts)),
    button("Previous of this name", () => acts.next(true)),
    button("Next of this name", () => acts.next(false)),
    button("Fit to the width", acts.fit),
    ...(found === null ? [] : [button("Show in the tree", () => context.open(found))]),
  ];
}

/** Where it is, what launched it and what it launched. */
function links(events: Events, event: number, acts: Acts): HTMLElement {
  const line = (label: string, other: number) =>
    h(
      "li",
      {},
      h("span", {}, `${label} `, h("button", { type: "button", class: "link inline", click: () => acts.go(other) }, name(events.name(other)))),
      h("b", {}, format(events.time(other), "time")),
    );
  const launch = events.columns.launch[event];
  const launched = launch < 0 ? events.launches(event, MOST_LAUNCHED) : [];
  const around = events.around(event);
  const lines = [
    ...around.map((other) => line("in", other)),
    ...(launch >= 0 ? [line("launched by", launch), ...events.around(launch).slice(-3).map((other) => line("launched in", other))] : []),
    ...launched.map((other) => line("launches", other)),
  ];
  return h("div", {}, lines.length > 0 && h("h4", {}, "Around it"), h("ul", { class: "bars" }, ...lines));
}

function kindText(events: Events, event: number): string {
  const kind = events.kind(event);
  return WORDS[kind] ?? kind;
}

function placeOf(events: Events, event: number): [string, string] {
  const place = events.columns.place[event];
  return place ? events.data.places[place - 1] : ["", ""];
}

/** The node of the tree that an event counts for: of its name in its layer, else of its name. */
function node(tree: Tree | null, events: Events, event: number): number | null {
  if (!tree || ["path", "idle"].includes(events.data.lanes[events.row(event).lane].group)) return null;
  const wanted = events.name(event);
  const [layer, phase] = placeOf(events, event);
  const isLayer = events.kind(event) === "layer";
  let best: number | null = null;
  let most = 0;
  for (let one = 0; one < tree.size; one++) {
    const same = isLayer ? tree.text("path", one) === wanted && tree.text("kind", one) === "layer" : tree.name(one) === wanted;
    if (!same) continue;
    const score = 1 + 2 * Number(tree.path(one) === layer) + Number(tree.text("phase", one) === phase);
    if (score > most) [best, most] = [one, score];
  }
  return best;
}

/** The kinds of events that there are, with their colours. */
export function legend(events: Events): HTMLElement {
  const palette = new Palette();
  const names = new Uint8Array(events.data.names.length);
  for (const one of events.columns.name) names[one] = 1;
  const used = new Set(events.data.kinds.filter((_, at) => names[at]));
  const list = h("ul", { class: "legend" });
  const fill = () => {
    const now = new Palette();
    list.replaceChildren(
      ...[...palette.paints.keys()]
        .filter((kind) => used.has(kind))
        .map((kind) => {
          const swatch = h("span", { class: "swatch", "aria-hidden": "true" });
          swatch.style.background = now.of(kind);
          return h("li", {}, swatch, WORDS[kind] ?? kind);
        }),
    );
  };
  fill();
  window.addEventListener("theme", fill);
  return list;
}
