// A sweep: its cells, the front of those that none beats in everything, and how rows scale.

import { grid, logarithmic, MARGIN, type Scale } from "../axes";
import { chart } from "../chart";
import type { CellsData, FitData, ParetoData, ScalingData, TableData } from "../data";
import { definitions } from "../definitions";
import { h, name, responsive, svg } from "../dom";
import { bytes, format, tidy, time, type Unit, type Value } from "../format";
import type { View } from "../registry";
import { Table } from "../table";

type Cell = CellsData["rows"][0];

const HEIGHT = 380;
const TIED = "≈";

export const cells: View<CellsData> = {
  id: "cells",
  title: "Cells",
  wide: true,
  draw(part, host) {
    if (part.where) host.append(h("p", { class: "note" }, "Where ", h("code", {}, part.where)));
    host.append(new Table(table(part), null).element);
    if (part.rows.some((cell) => cell.tied.length))
      host.append(h("p", { class: "note" }, `${TIED} not distinguishable from the best: the intervals overlap.`));
  },
};

function table(part: CellsData): TableData {
  const column = (title: string, unit: Unit, of: (cell: Cell) => Value) => ({
    title,
    unit,
    values: part.rows.map(of),
  });
  const columns = [
    column("cell", "text", (cell) => cell.label),
    column("best", "text", bestIn),
    column("status", "text", (cell) => cell.status),
    column("batch", "count", (cell) => cell.batch),
    column("latency", "time", (cell) => cell.median),
    column("95 % from", "time", (cell) => cell.low),
    column("95 % to", "time", (cell) => cell.high),
    column("p99", "time", (cell) => cell.p99),
    column(`${part.rate}/s`, "number", (cell) => cell.rate),
    column("peak memory", "bytes", (cell) => cell.memory),
    column("FLOPs", "count", (cell) => cell.flops),
    column("first call", "time", (cell) => cell.first_call),
    column("why", "text", (cell) => cell.reason),
  ];
  const known = columns.filter(({ values }) => values.some((one) => one !== null && one !== ""));
  return { name: "cells", rows: part.rows.length, columns: known, nodes: null };
}

function bestIn(cell: Cell): string {
  const tied = cell.tied.map((metric) => `${TIED} ${metric}`);
  return [...(cell.front ? ["trade-off"] : []), ...cell.best, ...tied].join(", ");
}

export const pareto: View<ParetoData> = {
  id: "pareto",
  title: "Trade-offs",
  wide: true,
  draw(part, host, context) {
    const { rows, rate } = context.page.parts.cells as CellsData;
    const said = h("div", { class: "readout note", "aria-live": "polite" }, "\u00a0");
    const frame = h("div", { class: "roofline" });
    const series = [...new Set(rows.map((cell) => cell.series))];
    host.append(
      h(
        "p",
        { class: "note" },
        `A point is a cell, its number the batch, its area the peak memory. Further left is a shorter latency, further up more ${rate} a second.`,
      ),
      frame,
      said,
      legend(part, series, inView(part.limits, rows)),
    );
    responsive(frame, (width) => frame.replaceChildren(front(part, rows, rate, series, width, said)));
  },
};

/** Of the limits of one of the two axes, whether any is among what was measured. */
function inView(limits: ParetoData["limits"], rows: Cell[]): boolean {
  return limits.some(({ axis, value }) => {
    const known = rows.map((cell) => (axis === "time" ? cell.median : cell.rate)).filter((one) => one !== null);
    const { low, high } = logarithmic(known, 0, 1);
    return axis !== "bytes" && low <= value && value <= high;
  });
}

function legend(part: ParetoData, series: string[], limited: boolean): HTMLElement {
  const item = (style: string, text: string) =>
    h("li", {}, h("span", { class: `swatch ${style}`, "aria-hidden": "true" }), name(text));
  return h(
    "ul",
    { class: "legend" },
    ...(series.length > 1 ? series.map((label, at) => item(`round series-${at % 8}`, label)) : []),
    item("ring", `best trade-offs: no other cell is better in one of ${part.objectives.join(", ")} without being worse in another`),
    ...(limited ? [item("dashed", "requested limit")] : []),
  );
}

function front(
  part: ParetoData,
  all: Cell[],
  rate: string,
  series: string[],
  width: number,
  said: HTMLElement,
): SVGElement {
  const shown = all.filter((cell) => cell.median && cell.rate);
  const x = logarithmic(shown.map((cell) => cell.median!), MARGIN.left, width - MARGIN.right);
  const y = logarithmic(shown.map((cell) => cell.rate!), HEIGHT - MARGIN.bottom, MARGIN.top);
  const most = Math.max(...shown.map((cell) => cell.memory ?? 0), 1);
  const best = shown.filter((cell) => cell.front).sort((a, b) => a.median! - b.median!);
  const path = best.map((cell) => `${x(cell.median!)},${y(cell.rate!)}`).join(" ");
  // A front by memory too is no line in the plane of the other two.
  const rising = best.every((cell, at) => at === 0 || cell.rate! >= best[at - 1].rate!);
  return svg(
    "svg",
    {
      width,
      height: HEIGHT,
      viewBox: `0 0 ${width} ${HEIGHT}`,
      role: "group",
      "aria-label": `${shown.length} cells by latency and ${rate} a second`,
    },
    ...grid(x, y, width, HEIGHT, "latency", `${rate} a second`, (value) => tidy(time(value))),
    ...part.limits.flatMap((limit) => limitLine(limit, x, y, width)),
    rising && svg("polyline", { class: "front", points: path }),
    ...shown.map((cell) => {
      const label = [
        cell.label,
        time(cell.median!),
        `${format(cell.rate, "count")} ${rate}/s`,
        cell.memory !== null && bytes(cell.memory),
      ];
      const text = label.filter(Boolean).join(", ");
      const tell = () => said.replaceChildren(name(text));
      const r = 4 + 8 * Math.sqrt((cell.memory ?? 0) / most);
      const [cx, cy] = [x(cell.median!), y(cell.rate!)];
      return svg(
        "g",
        { tabindex: 0, role: "img", "aria-label": text, pointerenter: tell, focus: tell },
        svg("circle", {
          class: `point drawn-${series.indexOf(cell.series) % 8}${cell.front ? " chosen" : ""}`,
          cx,
          cy,
          r,
        }),
        cell.batch !== null && svg("text", { class: "batch", x: cx + r + 3, y: cy - r + 2 }, String(cell.batch)),
        svg("title", {}, text),
      );
    }),
  );
}

/** A limit on the axis of its metric, where it is in the picture; it says of which. */
function limitLine({ axis, value, label }: ParetoData["limits"][0], x: Scale, y: Scale, width: number): SVGElement[] {
  const scale = axis === "time" ? x : axis === "rate" ? y : null;
  if (!scale || value < scale.low || value > scale.high) return [];
  const at = scale(value);
  const ends =
    axis === "time"
      ? { x1: at, x2: at, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }
      : { x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at };
  const place = axis === "time" ? { x: at - 5, y: MARGIN.top + 12 } : { x: width - MARGIN.right - 4, y: at - 5 };
  return [
    svg("line", { class: "limit", ...ends }),
    svg("text", { class: "roof-label", ...place, "text-anchor": "end" }, label),
  ];
}

export const scaling: View<ScalingData> = {
  id: "scaling",
  title: "How it scales",
  wide: true,
  draw(part, host) {
    host.append(
      h("p", { class: "note" }, "A line through the measured cells: a part that every call costs, and a part for each sample of the batch."),
    );
    for (const row of part) {
      const charts = h("div", { class: "pair" });
      host.append(h("h3", {}, name(row.series)), charts);
      if (row.latency) curve(charts, row.latency, "Latency by batch", row.series, "time");
      if (row.memory) curve(charts, row.memory, "Peak memory by batch", row.series, "bytes");
      host.append(definitions(row.words.map(([label, text]) => [label, text, ""])));
    }
  },
};

/** Measured points with the fitted line and its band; beyond the largest batch it is a guess. */
function curve(parent: HTMLElement, fit: FitData, title: string, series: string, unit: "time" | "bytes"): void {
  const points = new Map(fit.points.map(([batch, value]) => [batch, value]));
  const line = new Map(fit.line.map(([batch, ...values]) => [batch, values]));
  const largest = Math.max(...points.keys());
  const x = [...new Set([...points.keys(), ...line.keys()])].sort((a, b) => a - b);
  const of = (at: number, within = (_: number) => true) =>
    x.map((batch) => (within(batch) ? (line.get(batch)?.[at] ?? null) : null));
  const highest = Math.max(...[...points.values(), ...of(0).map((value) => value ?? 0)]);
  const host = h("div", {}, h("h4", {}, title));
  parent.append(host);
  const banded = of(1).some((value) => value !== null);
  chart(host, {
    summary: `${title}, ${series}`,
    x,
    lines: [
      ...(banded
        ? [
            { label: "95 % interval of the line", values: of(2), colour: "--series-5" },
            { label: "", values: of(1), colour: "--series-5" },
          ]
        : []),
      { label: "fitted line", values: of(0, (batch) => batch <= largest), colour: "--series-0" },
      { label: "extrapolated", values: of(0, (batch) => batch >= largest), colour: "--series-0", dashed: true },
      { label: "measured", values: x.map((batch) => points.get(batch) ?? null), colour: "--series-1", points: true, size: 7 },
    ],
    showX: (value) => String(value),
    showY: (value) => format(value, unit),
    xLabel: "batch",
    counts: true,
    bands: Number(banded),
    legend: true,
    // One far above would press all that is measured into a line at the bottom.
    levels: fit.limits
      .filter(({ value }) => value < 3 * highest)
      .map(({ value, label }) => ({ value, label, colour: "--fail" })),
    fromZero: true,
    height: 220,
  });
}
