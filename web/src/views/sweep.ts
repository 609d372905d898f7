// A sweep: its cells, the front of those that none beats in everything, and how rows scale.

import { grid, logarithmic, MARGIN } from "../axes";
import { chart } from "../chart";
import type { CellsData, FitData, ParetoData, ScalingData, TableData } from "../data";
import { definitions } from "../definitions";
import { h, name, responsive, svg } from "../dom";
import { bytes, format, time, type Unit, type Value } from "../format";
import type { View } from "../registry";
import { Table } from "../table";

type Cell = CellsData["rows"][0];

const HEIGHT = 380;

export const cells: View<CellsData> = {
  id: "cells",
  title: "Cells",
  wide: true,
  draw(part, host) {
    if (part.where) host.append(h("p", { class: "note" }, "Where ", h("code", {}, part.where)));
    host.append(new Table(table(part), null).element);
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
    column("stands out", "text", standsOut),
    column("status", "text", (cell) => cell.status),
    column("batch", "count", (cell) => cell.batch),
    column("latency", "time", (cell) => cell.median),
    column("at least", "time", (cell) => cell.low),
    column("at most", "time", (cell) => cell.high),
    column("p99", "time", (cell) => cell.p99),
    column(`${part.rate}/s`, "count", (cell) => cell.rate),
    column("peak memory", "bytes", (cell) => cell.memory),
    column("FLOPs", "count", (cell) => cell.flops),
    column("first call", "time", (cell) => cell.first_call),
    column("why", "text", (cell) => cell.reason),
  ];
  const known = columns.filter(({ values }) => values.some((one) => one !== null && one !== ""));
  return { name: "cells", rows: part.rows.length, columns: known, nodes: null };
}

function standsOut(cell: Cell): string {
  return [cell.front && "front", ...cell.best.map((one) => `best ${one}`)].filter(Boolean).join(", ");
}

export const pareto: View<ParetoData> = {
  id: "pareto",
  title: "What beats what",
  draw(part, host, context) {
    const all = (context.page.parts.cells as CellsData | undefined)?.rows ?? [];
    const rate = (context.page.parts.cells as CellsData | undefined)?.rate ?? "calls";
    const said = h("div", { class: "readout note", "aria-live": "polite" }, "\u00a0");
    const frame = h("div", { class: "roofline" });
    host.append(
      h("p", { class: "note" }, `Ringed: no other cell is better in ${part.objectives.join(", ")} and worse in none.`),
      frame,
      said,
      h("p", { class: "note" }, "Area: peak memory."),
    );
    responsive(frame, (width) => frame.replaceChildren(front(all, rate, width, said)));
  },
};

function front(all: Cell[], rate: string, width: number, said: HTMLElement): SVGElement {
  const shown = all.filter((cell) => cell.median && cell.rate);
  const x = logarithmic(shown.map((cell) => cell.median!), MARGIN.left, width - MARGIN.right);
  const y = logarithmic(shown.map((cell) => cell.rate!), HEIGHT - MARGIN.bottom, MARGIN.top);
  const most = Math.max(...shown.map((cell) => cell.memory ?? 0), 1);
  const ticks = (value: number) => time(value).replace(/\.0+ /, " ");
  return svg(
    "svg",
    {
      width,
      height: HEIGHT,
      viewBox: `0 0 ${width} ${HEIGHT}`,
      role: "group",
      "aria-label": `${shown.length} cells by latency and ${rate} a second`,
    },
    ...grid(x, y, width, HEIGHT, "latency", `${rate}/s`, ticks),
    ...shown.map((cell) => {
      const label = [
        cell.label,
        time(cell.median!),
        `${format(cell.rate, "count")} ${rate}/s`,
        cell.memory !== null && bytes(cell.memory),
      ];
      const text = label.filter(Boolean).join(", ");
      const tell = () => said.replaceChildren(name(text));
      return svg(
        "g",
        { tabindex: 0, role: "img", "aria-label": text, pointerenter: tell, focus: tell },
        svg("circle", {
          class: cell.front ? "point compute chosen" : "point",
          cx: x(cell.median!),
          cy: y(cell.rate!),
          r: 4 + 8 * Math.sqrt((cell.memory ?? 0) / most),
        }),
        svg("title", {}, text),
      );
    }),
  );
}

export const scaling: View<ScalingData> = {
  id: "scaling",
  title: "How it scales",
  draw(part, host) {
    for (const row of part) {
      host.append(h("h3", {}, name(row.series)));
      if (row.latency) curve(host, row.latency, `Latency by batch, ${row.series}`, "time");
      if (row.memory) curve(host, row.memory, `Peak memory by batch, ${row.series}`, "bytes");
      host.append(definitions(row.words.map(([label, text]) => [label, text, ""])));
    }
  },
};

/** Measured points with the fitted line and its band, out to twice the largest batch. */
function curve(
  host: HTMLElement,
  fit: FitData,
  summary: string,
  unit: "time" | "bytes",
): void {
  const points = new Map(fit.points.map(([batch, value]) => [batch, value]));
  const line = new Map(fit.line.map(([batch, ...values]) => [batch, values]));
  const x = [...new Set([...points.keys(), ...line.keys()] as number[])].sort((a, b) => a - b);
  const of = (at: number) => x.map((batch) => line.get(batch)?.[at] ?? null);
  chart(host, {
    summary,
    x,
    lines: [
      { label: "at least", values: of(1), colour: "--series-5" },
      { label: "at most", values: of(2), colour: "--series-5" },
      { label: "fit", values: of(0), colour: "--series-0" },
      { label: "measured", values: x.map((batch) => points.get(batch!) ?? null), colour: "--series-1", points: true },
    ],
    showX: (value) => String(value),
    showY: (value) => format(value, unit),
    xLabel: "batch",
    fromZero: true,
    height: 200,
  });
  if (!fit.holds) host.append(h("p", { class: "note" }, name(fit.reason)));
}
