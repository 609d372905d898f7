// A figure over the runs of a history, where it changed, and between which commits.

import { chart } from "../chart";
import type { TrendData } from "../data";
import { badge, h, name, prose, scroller } from "../dom";
import { format } from "../format";
import type { View } from "../registry";

type Series = TrendData["series"][0];

export const trend: View<TrendData> = {
  id: "trend",
  title: "Trend",
  wide: true,
  draw(part, host) {
    const shown = h("div");
    const select = h(
      "select",
      { change: () => show(Number((select as HTMLSelectElement).value)) },
      ...part.series.map((one, at) =>
        h("option", { value: at }, `${one.name} – ${one.place}${one.changes.length ? " ◆" : ""}`),
      ),
    );
    const show = (at: number) => shown.replaceChildren(...drawn(part.series[at], part.confirm));
    host.append(h("div", { class: "controls" }, h("label", {}, "Figure ", select)), shown);
    show(0);
  },
};

/** A figure over runs, of which the first is the one after `before` earlier ones. */
export function drawn(one: Series, confirm: string, before = 0, until?: AbortSignal): HTMLElement[] {
  const host = h("div");
  const { values, low, high } = one;
  const x = values.map((_, at) => before + at + 1);
  const bounds = low.some((value) => value !== null);
  host.append(h("h3", {}, name(one.name), " ", badge(one.how), " ", name(one.place, { class: "note" })));
  chart(host, {
    summary: `${one.name} over ${x.length} runs; ${one.changes.length} changes of level.`,
    x,
    lines: [
      ...(bounds
        ? [
            { label: "95 % interval", values: high, colour: "--series-5" },
            { label: "", values: low, colour: "--series-5" },
          ]
        : []),
      { label: "value", values, colour: "--series-0", points: true },
    ],
    showX: (value) => (Number.isInteger(value) ? String(value) : ""),
    readX: (value) => `${value} (${label(one, value - before - 1)})`,
    showY: (value) => format(value, one.unit, 4),
    xLabel: "run",
    counts: true,
    bands: Number(bounds),
    legend: bounds,
    stretches: one.changes.map((change) => ({
      from: before + change.from + 1,
      to: before + change.to + 1,
      label: change.size,
    })),
    height: 300,
    until,
  });
  if (one.unknown) host.append(h("p", { class: "note" }, name(one.unknown)));
  if (one.changes.length) host.append(table(one), h("p", { class: "note" }, prose(confirm)));
  return [host];
}

/** A run by its date and its commit. */
function label(one: Series, at: number): string {
  return one.created[at] + (one.commits[at] ? `, ${one.commits[at]}` : "");
}

function table(one: Series): HTMLElement {
  const head = ["change", "95 %", "lasting", "between", "software"];
  const rows = one.changes.map((change) =>
    h(
      "tr",
      {},
      h(
        "th",
        { scope: "row" },
        h("span", { class: change.worse ? "verdict worse" : "verdict" }, change.size),
      ),
      h("td", { class: "number" }, change.interval || change.how),
      h("td", {}, change.lasting),
      h("td", {}, name(change.commits)),
      h("td", {}, name(change.software)),
    ),
  );
  const content = h(
    "table",
    {},
    h("thead", {}, h("tr", {}, ...head.map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, ...rows),
  );
  return scroller("Changes of level", content, { class: "changes" });
}
