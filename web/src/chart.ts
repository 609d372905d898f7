// Lines over time by uPlot, in the theme's colours; drag to zoom, double click to zoom out.

import uPlot from "uplot";
import { h, name, property, responsive } from "./dom";
import { tidy } from "./format";
import { drawLanes, height, lanes, type Mark, within } from "./lanes";

export interface Line {
  label: string;
  values: (number | null)[];
  colour: string;
  fill?: boolean;
  stepped?: boolean;
  points?: boolean;
  size?: number;
  dashed?: boolean;
  /** Of points: a ring, which shows what lies inside it. */
  hollow?: boolean;
  /** Of points: one is seen through another. */
  faint?: boolean;
  width?: number;
  /** Drawn between pixels too: a line that hardly rises has no steps. */
  smooth?: boolean;
  /** Does not count for the range of the axis: it may end at the edge. */
  loose?: boolean;
  /** Not one of the lines that lie upon one another. */
  apart?: boolean;
}

export interface Chart {
  /** What the chart says, for those who do not see it. */
  summary: string;
  x: ArrayLike<number>;
  lines: Line[];
  showX: (value: number) => string;
  /** As the readout says it, where that is more than the axis has room for. */
  readX?: (value: number) => string;
  showY: (value: number) => string;
  xLabel: string;
  /** Drawn as a level with a name. */
  levels?: { value: number; label: string; colour: string }[];
  /** Stretches of x that are told apart from the rest. */
  stretches?: { from: number; to: number; label: string }[];
  /** Bars above the plot. */
  marks?: Mark[];
  /** Lines upon one another, the first at the bottom, each with its area. */
  stacked?: boolean;
  /** Of how many pairs of lines, which come first, the area between them is filled. */
  bands?: number;
  /** Whether a legend names the lines, or another legend. */
  legend?: boolean | HTMLElement;
  /** Whether x counts something: ticks at whole numbers alone. */
  counts?: boolean;
  /** From 0, or around the values. */
  fromZero?: boolean;
  /** For values of several orders of magnitude. */
  logarithmic?: boolean;
  logarithmicX?: boolean;
  height?: number;
}

export function chart(host: HTMLElement, wanted: Chart): void {
  const frame = h("div", { class: "chart", role: "img", "aria-label": wanted.summary });
  const read = h("div", { class: "readout note", "aria-hidden": "true" }, "\u00a0");
  host.append(h("figure", {}, frame, wanted.legend === true ? legend(wanted) : wanted.legend || "", read));
  const marked = lanes(wanted.marks ?? []);
  let plot: uPlot | null = null;
  responsive(frame, (width) => {
    const size = { width, height: (wanted.height ?? 240) + height(marked) };
    if (plot) plot.setSize(size);
    else plot = new uPlot({ ...options(wanted, marked, read), ...size }, data(wanted), frame);
  });
  window.addEventListener("theme", () => plot?.redraw(false));
}

function legend({ lines, stacked }: Chart): HTMLElement {
  const named = lines.filter(({ label }) => label);
  return h(
    "ul",
    { class: "legend" },
    // As they lie in the picture, where they lie upon one another.
    ...(stacked ? [...named].reverse() : named).map(({ label, colour, dashed, points }) => {
      const swatch = h("span", { class: "swatch", "aria-hidden": "true" });
      if (dashed) swatch.classList.add("dashed");
      if (points) swatch.classList.add("round");
      swatch.style.setProperty("--paint", `var(${colour})`);
      return h("li", { title: label }, swatch, name(label, { class: "cut" }));
    }),
  );
}

/** The columns that are drawn: of stacked lines the sums, the highest first, which lower ones cover. */
function data({ x, lines, stacked }: Chart): uPlot.AlignedData {
  const columns = lines.map((line) => line.values);
  const areas = stacked ? columns.filter((_, at) => !lines[at].apart) : [];
  for (let at = 1; at < areas.length; at++) {
    const below = areas[at - 1];
    areas[at] = areas[at].map((value, place) => (value ?? 0) + (below[place] ?? 0));
  }
  const others = stacked ? columns.filter((_, at) => lines[at].apart) : columns;
  return [x as number[], ...areas.reverse(), ...others] as uPlot.AlignedData;
}

function options(
  wanted: Chart,
  marked: Mark[][],
  read: HTMLElement,
): Omit<uPlot.Options, "width" | "height"> {
  const axis = (show: (value: number) => string, label?: string): uPlot.Axis => ({
    stroke: () => property("--soft"),
    grid: { stroke: () => property("--line"), width: 1 },
    ticks: { stroke: () => property("--line"), width: 1 },
    font: "12px system-ui, sans-serif",
    values: (_, splits) => splits.map((value) => (value === null ? "" : tidy(show(value)))),
    ...(label ? { label, labelSize: 18, labelFont: "12px system-ui, sans-serif" } : {}),
  });
  return {
    legend: { show: false },
    padding: [12 + height(marked), 28, 0, 0],
    scales: {
      x: {
        time: false,
        ...(wanted.logarithmicX ? { distr: 3, range: (_, low, high) => [low * 0.9, high * 1.1] } : {}),
      },
      y: { distr: wanted.logarithmic ? 3 : 1, range: (_, low, high) => range(wanted, low, high) },
    },
    axes: [
      {
        ...axis(wanted.showX, wanted.xLabel),
        size: 32,
        space: 70,
        ...(wanted.counts ? { incrs: WHOLE } : {}),
        ...(wanted.logarithmicX ? { splits: decades, filter: same } : {}),
      },
      {
        ...axis(wanted.showY),
        size: 74,
        ...(wanted.logarithmic ? { splits: decades, filter: same } : {}),
      },
    ],
    bands: Array.from({ length: wanted.bands ?? 0 }, (_, at) => ({
      series: [2 * at + 1, 2 * at + 2],
      fill: () => `${property(wanted.lines[2 * at].colour)}2e`,
    })),
    series: [{}, ...drawn(wanted)],
    cursor: { points: { size: 7 }, drag: { x: true, y: false }, y: false },
    hooks: {
      drawClear: [(plot) => drawStretches(plot, wanted)],
      draw: [
        (plot) => nameStretches(plot, wanted),
        (plot) => drawLevels(plot, wanted),
        (plot) => drawLanes(plot, marked),
      ],
      setCursor: [(plot) => readout(plot, wanted, marked, read)],
    },
  };
}

/** 1, 2 and 5 of each power of ten, or the powers alone where there are many. */
function decades(_: uPlot, __: number, low: number, high: number): number[] {
  const first = Math.floor(Math.log10(low));
  const number = Math.ceil(Math.log10(high)) - first;
  const steps = number > 3 ? [1] : [1, 2, 5];
  const all = Array.from({ length: number }, (_, at) =>
    steps.map((step) => step * 10 ** (first + at)),
  );
  return all.flat().filter((value) => value >= low && value <= high);
}

const WHOLE = Array.from({ length: 10 }, (_, at) => [1, 2, 5].map((one) => one * 10 ** at)).flat();

const same = (_: uPlot, splits: number[]) => splits;

function series(line: Line): uPlot.Series {
  return {
    label: line.label,
    stroke: () => property(line.colour),
    width: line.points ? 0 : (line.width ?? 1.5),
    spanGaps: !line.points,
    ...(line.smooth ? { pxAlign: 0 } : {}),
    auto: !line.loose,
    dash: line.dashed ? [6, 5] : undefined,
    fill: line.fill ? () => `${property(line.colour)}2e` : undefined,
    paths: line.stepped ? uPlot.paths.stepped!({ align: 1 }) : undefined,
    points: {
      show: line.points,
      size: line.size ?? 4,
      fill: () => (line.hollow ? "transparent" : property(line.colour) + (line.faint ? "73" : "")),
      ...(line.hollow ? { stroke: () => property(line.colour), width: 1.5 } : {}),
      ...(line.faint ? { width: 0 } : {}),
    },
  };
}

/** The lines in the order of `data`. */
function drawn({ lines, stacked }: Chart): uPlot.Series[] {
  if (!stacked) return lines.map(series);
  const areas = lines.filter(({ apart }) => !apart).reverse();
  return [...areas.map(area), ...lines.filter(({ apart }) => apart).map(series)];
}

/** Covers what is drawn before it, which lies higher. */
function area(line: Line): uPlot.Series {
  return { ...series(line), width: 0, fill: () => property(line.colour) };
}

function range(wanted: Chart, low: number, high: number): [number, number] {
  const { fromZero, levels, logarithmic } = wanted;
  if (logarithmic) return [low * 0.85, high * 1.2];
  const shown = (levels ?? []).map((level) => level.value);
  const top = Math.max(high, ...shown);
  const bottom = fromZero ? 0 : Math.min(low, ...shown);
  const room = (top - bottom || top || 1) * 0.06;
  return [fromZero ? 0 : Math.max(bottom - room, 0), top + room];
}

function drawStretches(plot: uPlot, { stretches = [] }: Chart): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.fillStyle = property("--shade");
  for (const { from, to } of stretches) {
    const x = plot.valToPos(from, "x", true);
    ctx.fillRect(x, bbox.top, plot.valToPos(to, "x", true) - x, bbox.height);
  }
  ctx.restore();
}

/** Above the grid, with a halo: a line through a sign would turn it. */
function nameStretches(plot: uPlot, { stretches = [] }: Chart): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "left";
  ctx.lineWidth = 4 * devicePixelRatio;
  ctx.strokeStyle = property("--card");
  ctx.fillStyle = property("--soft");
  // A name that another one covers, or the plot's end cuts, is left out: the shade stays.
  let taken = bbox.left;
  for (const { from, to, label } of stretches) {
    const x = plot.valToPos(from, "x", true);
    const wide = plot.valToPos(to, "x", true) - x;
    const inside = wide > ctx.measureText(label).width + 8 * devicePixelRatio;
    const start = inside ? Math.max(x, bbox.left) : Math.max(x + wide, bbox.left);
    const said = inside ? label : `◂ ${label}`;
    const end = start + ctx.measureText(said).width + 8 * devicePixelRatio;
    if (start < taken || end > bbox.left + bbox.width) continue;
    taken = end;
    const place = [start + 4 * devicePixelRatio, bbox.top + 14 * devicePixelRatio] as const;
    if (!inside) ctx.strokeText(said, ...place);
    ctx.fillText(said, ...place);
  }
  ctx.restore();
}

function drawLevels(plot: uPlot, { levels = [] }: Chart): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.lineWidth = devicePixelRatio;
  for (const [at, { value, label, colour }] of levels.entries()) {
    const y = plot.valToPos(value, "y", true);
    if (y < bbox.top || y > bbox.top + bbox.height) continue;
    ctx.strokeStyle = ctx.fillStyle = property(colour);
    ctx.setLineDash([6, 4]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    // The names of two levels stand at the two ends; a halo parts them from the line.
    ctx.textAlign = at % 2 ? "left" : "right";
    const x = at % 2 ? bbox.left + 6 * devicePixelRatio : bbox.left + bbox.width - 4;
    const above = y - 5 * devicePixelRatio;
    ctx.setLineDash([]);
    ctx.strokeStyle = property("--card");
    ctx.lineWidth = 4 * devicePixelRatio;
    ctx.strokeText(label, x, above);
    ctx.fillText(label, x, above);
    ctx.lineWidth = devicePixelRatio;
  }
  ctx.restore();
}

/** A band is read as one interval: of its two lines the upper one has the name. */
function lowerEnd({ bands = 0, lines, showY }: Chart, line: Line, at: number): string {
  const low = lines.indexOf(line) < 2 * bands ? lines[lines.indexOf(line) + 1].values[at] : null;
  return low === null || low === undefined ? "" : `${showY(low)} … `;
}

function readout(plot: uPlot, wanted: Chart, marked: Mark[][], read: HTMLElement): void {
  const at = plot.cursor.idx;
  if (at === null || at === undefined) {
    read.textContent = "\u00a0";
    return;
  }
  const said = wanted.lines
    .filter((line) => line.values[at] !== null && line.values[at] !== undefined)
    .filter((line) => line.label && (!wanted.stacked || line.values[at]))
    .map((line) => `${line.label} ${lowerEnd(wanted, line, at)}${wanted.showY(line.values[at] as number)}`);
  const x = wanted.x[at];
  read.replaceChildren(
    `${wanted.xLabel} ${(wanted.readX ?? wanted.showX)(x)}: ${said.join(", ")}`,
    name(within(marked, x)),
  );
}
