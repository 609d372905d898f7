// Every metric on both sides, its change with the interval, and what differs around the runs.

import { copyButton, markdown } from "../copy";
import type { ChangesData } from "../data";
import { definitions } from "../definitions";
import { badge, h, name, scroller, svg } from "../dom";
import type { View } from "../registry";

type Row = ChangesData["rows"][0];

const WIDTH = 220;
const HEIGHT = 24;
const EDGE = 8;
const WIDEST = 1; // a change beyond 100 % ends in an arrow

export const changes: View<ChangesData> = {
  id: "changes",
  title: "Figures",
  wide: true,
  draw(part, host) {
    const reach = span(part.rows);
    const head = ["metric", "baseline", "current", "change", "95 %", plotTitle(reach), "verdict", "why"];
    host.append(
      part.differences.length > 0 ? differences(part) : "",
      scroller(
        "Table of changes",
        h(
          "table",
          {},
          h("thead", {}, h("tr", {}, ...head.map((title) => h("th", { scope: "col" }, title)))),
          h("tbody", {}, ...part.rows.map((row) => line(row, reach))),
        ),
        { class: "changes figures" },
      ),
      h(
        "p",
        { class: "foot" },
        part.paired ? "Measured in turn, in fresh processes. " : "",
        copyButton("Copy as Markdown", () => copied(part)),
      ),
    );
  },
};

function differences({ differences }: ChangesData): HTMLElement {
  return h(
    "div",
    { class: "facts" },
    h("h3", {}, "Differences between the two runs"),
    definitions(differences),
  );
}

function span(rows: Row[]): number {
  const ends = rows.flatMap((row) => [...(row.interval ?? []), ...row.bounds, row.change ?? 0]).map(Math.abs);
  return Math.min(WIDEST, Math.max(0.05, ...ends) * 1.05);
}

function plotTitle(reach: number): string {
  const percent = Number((100 * reach).toPrecision(2));
  return `−${percent} % … +${percent} %`;
}

function line(row: Row, reach: number): HTMLElement {
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, name(row.metric), " ", badge(row.how)),
    ...[row.baseline, row.current, row.text].map((text) => h("td", { class: "number" }, text)),
    h("td", { class: "number note" }, row.range),
    h("td", { class: "plot" }, plot(row, reach)),
    h("td", {}, h("span", { class: `verdict ${row.judgement.replace(" ", "-")}` }, row.judgement)),
    h("td", { class: "note why", title: row.note }, name(row.note)),
  );
}

function plot({ change, interval, judgement, bounds }: Row, reach: number): SVGElement | null {
  if (change === null) return null;
  const x = (value: number) =>
    WIDTH / 2 + (Math.max(-reach, Math.min(reach, value)) / reach) * (WIDTH / 2 - EDGE);
  const y = HEIGHT / 2;
  const beyond = Math.abs(change) > reach;
  const end = x(change);
  const side = Math.sign(change) * 6;
  return svg(
    "svg",
    { width: WIDTH, height: HEIGHT, "aria-hidden": "true", class: `change ${judgement.replace(" ", "-")}` },
    ...bounds.map((at) =>
      svg("line", { class: "bound", x1: x(at), x2: x(at), y1: 4, y2: HEIGHT - 4 }),
    ),
    svg("line", { class: "axis", x1: x(0), x2: x(0), y1: 2, y2: HEIGHT - 2 }),
    interval && svg("line", { class: "reach", x1: x(interval[0]), x2: x(interval[1]), y1: y, y2: y }),
    beyond
      ? svg("path", { class: "dot", d: `M${end - side} ${y - 6}L${end + side} ${y}L${end - side} ${y + 6}Z` })
      : svg("circle", { class: "dot", cx: end, cy: y, r: 5 }),
  );
}

function copied(part: ChangesData): string {
  const rows = part.rows.map((row) => [
    row.metric,
    row.baseline,
    row.current,
    row.text,
    row.range,
    row.judgement,
  ]);
  return markdown({ head: ["", "baseline", "current", "change", "95 %", "verdict"], rows });
}
