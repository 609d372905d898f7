// One live series: its percentiles over time, and how the values of one window are spread.

import { chart, type Update } from "../chart";
import { h, name, scroller } from "../dom";
import { format, percent } from "../format";
import type { Distribution, Monitor } from "./data";
import { distribution } from "./distribution";
import { Rows } from "./rows";
import { Poll } from "./source";
import { alertList, clock, failure, number, stateBadge } from "./words";

const EVERY = 1; // seconds
/** Seconds between ticks: round on a clock. */
const CLOCK = [1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, ...[1, 2, 7, 30, 365].map((days) => days * 86400)];
const COLOURS = ["--series-0", "--series-4", "--series-1"];

export function monitor(host: HTMLElement, key: string): () => void {
  /** The end of the window that is shown, null for the newest one. */
  let chosen: number | null = null;
  let ends: number[] = [];
  const charts = new AbortController();
  let update: { lines: Update; rates: Update } | null = null;
  const title = h("h1", {}, "…");
  const facts = h("p", { class: "facts-line" });
  const alerts = h("div");
  const trouble = h("div");
  const cards = h("ul", { class: "cards compact" });
  const percentiles = h("div");
  const rates = h("div");
  const slider = h("input", { type: "range", min: 0, step: 1, "aria-label": "Window", input: () => choose(Number(slider.value)) }) as HTMLInputElement;
  const newest = h("button", { type: "button", class: "quiet", click: () => choose(ends.length - 1) }, "Newest") as HTMLButtonElement;
  const spread = h("div");
  const windowTitle = h("output", { class: "note" });
  const errors = h("div");
  host.append(
    h("section", { class: "wide", "aria-label": "Live series" }, title, facts, alerts, trouble, cards),
    h("section", { "aria-labelledby": "percentiles-title" }, h("h2", { id: "percentiles-title" }, "Percentiles"), percentiles),
    h("section", { "aria-labelledby": "rate-title" }, h("h2", { id: "rate-title" }, "Events per second"), rates),
    h(
      "section",
      { class: "wide", "aria-labelledby": "window-title" },
      h("h2", { id: "window-title" }, "One window"),
      h("div", { class: "controls window-controls" }, slider, newest, windowTitle),
      spread,
      errors,
    ),
  );
  const layers = h("section", { class: "wide", "aria-labelledby": "layers-title" }, h("h2", { id: "layers-title" }, "Layers"));
  layers.hidden = true;
  host.append(layers);
  const layerTable = new Rows<Monitor["layers"][0]>(
    "Layers",
    ["layer", "p50", "p99", "measured calls"],
    ({ layer, middle, high, measured }) => [name(layer, { title: layer }), format(middle, "time"), format(high, "time"), number(measured)],
    0,
    "timed",
  );
  layers.append(scroller("Table of layers", layerTable.element));
  const poll = new Poll<Monitor>("/api/monitor", { series: key }, EVERY, draw, (error) => trouble.replaceChildren(failure(error)));

  function choose(at: number): void {
    chosen = at >= ends.length - 1 ? null : ends[at];
    poll.now(chosen === null ? { series: key } : { series: key, window: String(chosen) });
  }

  function draw(answer: Monitor): void {
    trouble.replaceChildren();
    title.replaceChildren(name(answer.name));
    document.title = `${answer.name} – torchgauge`;
    facts.replaceChildren(stateBadge(answer.state), " ", ...answer.labels.map(([key, text]) => h("span", { class: "label" }, name(key), " ", h("b", {}, name(text)))));
    alerts.replaceChildren(alertList(answer.state) ?? "");
    ends = answer.end;
    slider.max = String(Math.max(ends.length - 1, 0));
    slider.value = String(chosen === null ? ends.length - 1 : Math.max(ends.indexOf(chosen), 0));
    newest.disabled = chosen === null;
    drawLines(answer);
    drawWindow(answer);
    layers.hidden = !answer.layers.length;
    layerTable.show(answer.layers, "");
    performance.mark("monitor");
  }

  function drawLines({ end, lines, rate, failed, unit, name: series }: Monitor): void {
    const values = Object.values(lines);
    const rateValues = [rate, failed];
    if (update) {
      update.lines(end, values);
      update.rates(end, rateValues);
      return;
    }
    if (end.length < 2) return;
    const common = { x: end, showX: clock, distances: CLOCK, xLabel: "window until", sync: "windows", legend: true, fromZero: true, height: 230, until: charts.signal };
    update = {
      lines: chart(percentiles, {
        ...common,
        summary: `${Object.keys(lines).join(", ")} of ${series} by window.`,
        lines: Object.keys(lines).map((label, at) => ({ label, values: values[at], colour: COLOURS[at], width: at ? 1.5 : 2 })),
        showY: (value) => format(value, unit, 3),
      }),
      rates: chart(rates, {
        ...common,
        summary: `Events of ${series} per second by window, and those of them that failed.`,
        lines: [
          { label: "events per second", values: rate, colour: "--series-2", fill: true },
          { label: "failed per second", values: failed, colour: "--fail" },
        ],
        showY: (value) => format(value, "number"),
      }),
    };
  }

  function drawWindow({ window: shown, unit }: Monitor): void {
    if (!shown) {
      cards.replaceChildren();
      spread.replaceChildren(h("p", { class: "note" }, "This window is no longer held."));
      return;
    }
    const seconds = shown.end - shown.begin;
    windowTitle.textContent = `${clock(shown.begin)} – ${clock(shown.end)} (${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s)${chosen === null ? ", the newest" : ""}`;
    cards.replaceChildren(...figures(shown, unit));
    spread.replaceChildren(distribution(shown, unit));
    errors.replaceChildren(errorTable(shown) ?? "");
  }

  return () => {
    poll.end();
    charts.abort();
  };
}

function figures(shown: Distribution, unit: Monitor["unit"]): HTMLElement[] {
  const failed = shown.errors.reduce((sum, [, count]) => sum + count, 0);
  const all: [string, string, string][] = [
    ["per second", format(shown.rate, "number"), `${number(shown.count)} events`],
    ...Object.entries(shown.percentiles).map(([label, value]): [string, string, string] => [label, format(value, unit), "within 1.1 %"]),
    ["max", format(shown.max, unit), `mean ${format(shown.mean, unit)}`],
    ["failed", shown.count ? percent(failed / shown.count, failed ? 2 : 0) : "–", `${number(failed)} of ${number(shown.count)}`],
  ];
  return all.map(([label, value, note]) =>
    h(
      "li",
      { class: label === "failed" && failed ? "card failing" : "card" },
      h("div", { class: "label" }, label),
      h("div", { class: "figure" }, value),
      h("div", { class: "note" }, note),
    ),
  );
}

function errorTable({ errors }: Distribution): HTMLElement | null {
  if (!errors.length) return null;
  const rows = errors.map(([kind, count]) => h("tr", {}, h("th", { scope: "row" }, name(kind)), h("td", { class: "number" }, number(count))));
  return h(
    "table",
    { class: "errors" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "text" }, "failed with"), h("th", { scope: "col", class: "number" }, "events"))),
    h("tbody", {}, ...rows),
  );
}
