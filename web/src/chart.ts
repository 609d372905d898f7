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
  /** Of points: one is seen through another, by default at half its colour. */
  faint?: boolean;
  alpha?: string;
  /** Of points: both ends of each one's interval. */
  whiskers?: ([low: number, high: number] | null)[];
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
  /** A place on x, with the range in which it lies where that is known. */
  verticals?: { x: number; low: number | null; high: number | null; label: string; colour: string }[];
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
  /** Distances between ticks of x, ascending, if not round numbers. */
  distances?: number[];
  /** From 0, or around the values. */
  fromZero?: boolean;
  /** For values of several orders of magnitude. */
  logarithmic?: boolean;
  logarithmicX?: boolean;
  /** Where x has its ticks, if not at round numbers. */
  splitsX?: number[];
  /** What is read out of the point next to the cursor, by its line and its place: for clouds of points. */
  nearest?: (line: number, at: number) => string;
  /** Room beside the first and the last value of x, for points that stand there. */
  inset?: boolean;
  /** Room above all values, for names of stretches. */
  headroom?: boolean;
  /** Charts of one name show the same moment. */
  sync?: string;
  height?: number;
  /** Ends the chart, with all that listens for it; without it, it is there as long as the page. */
  until?: AbortSignal;
}

/** Pixels within which a point of a cloud is read out. */
const NEAR = 24;
/** Of the height of a plot. */
const HEADROOM = 0.13;

/** What a chart shows instead: of the same lines, other values. */
export type Update = (x: ArrayLike<number>, values: (number | null)[][]) => void;

export function chart(host: HTMLElement, wanted: Chart): Update {
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
  window.addEventListener("theme", () => plot?.redraw(false), { signal: wanted.until });
  wanted.until?.addEventListener("abort", () => plot?.destroy());
  return (x, values) => {
    wanted.x = x;
    wanted.lines.forEach((line, at) => (line.values = values[at]));
    plot?.setData(data(wanted));
  };
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
        ...(wanted.inset ? { range: inset } : {}),
      },
      y: { distr: wanted.logarithmic ? 3 : 1, range: (_, low, high) => range(wanted, low, high) },
    },
    axes: [
      {
        ...axis(wanted.showX, wanted.xLabel),
        size: 32,
        space: 70,
        ...(wanted.counts || wanted.distances ? { incrs: wanted.distances ?? WHOLE } : {}),
        ...(wanted.logarithmicX ? { splits: decades, filter: same } : {}),
        ...(wanted.splitsX ? { splits: inView(wanted.splitsX), filter: same } : {}),
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
    cursor: {
      points: wanted.nearest ? { show: false } : { size: 7 },
      drag: { x: true, y: false },
      y: false,
      ...(wanted.sync ? { sync: { key: wanted.sync, scales: ["x", null] } } : {}),
    },
    hooks: {
      drawClear: [(plot) => drawStretches(plot, wanted), (plot) => shadeVerticals(plot, wanted)],
      draw: [
        (plot) => nameStretches(plot, wanted),
        (plot) => drawWhiskers(plot, wanted),
        (plot) => drawLevels(plot, wanted),
        (plot) => drawVerticals(plot, wanted),
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

const inView =
  (splits: number[]) =>
  (_: uPlot, __: number, low: number, high: number): number[] =>
    splits.filter((value) => value >= low && value <= high);

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
      fill: () => (line.hollow ? "transparent" : property(line.colour) + (line.faint ? (line.alpha ?? "73") : "")),
      ...(line.hollow ? { stroke: () => property(line.colour), width: 1.5 } : {}),
      ...(line.faint ? { width: 0 } : {}),
    },
  };
}

/** A little more than the values on both sides. */
function inset(_: uPlot, low: number, high: number): [number, number] {
  const room = (high - low || Math.abs(high) || 1) * 0.04;
  return [low - room, high + room];
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
  if (logarithmic) {
    const all = [low, high, ...wanted.lines.flatMap(endsOf)].filter((value) => value > 0);
    if (!all.length) return [1, 10];
    const [least, most] = [Math.min(...all) * 0.85, Math.max(...all) * 1.2];
    return [least, wanted.headroom ? most * (most / least) ** HEADROOM : most];
  }
  const shown = [...(levels ?? []).map((level) => level.value), ...wanted.lines.flatMap(endsOf)];
  const top = Math.max(high, ...shown);
  const bottom = fromZero ? 0 : Math.min(low, ...shown);
  const room = (top - bottom || top || 1) * 0.06;
  const above = wanted.headroom ? (top - bottom) * HEADROOM : 0;
  return [fromZero ? 0 : Math.max(bottom - room, 0), top + room + above];
}

const endsOf = ({ whiskers }: Line): number[] => (whiskers ?? []).flatMap((ends) => ends ?? []);

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
    if (x + wide <= bbox.left) continue;
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

/** Each interval as a line with ends, through its point. */
function drawWhiskers(plot: uPlot, { x, lines }: Chart): void {
  const { ctx } = plot;
  clipped(plot, () => {
    ctx.lineWidth = 1.5 * devicePixelRatio;
    const end = 3.5 * devicePixelRatio;
    for (const { whiskers, colour } of lines) {
      ctx.strokeStyle = property(colour);
      ctx.beginPath();
      (whiskers ?? []).forEach((ends, at) => {
        if (!ends) return;
        const middle = plot.valToPos(x[at], "x", true);
        const [low, high] = ends.map((value) => plot.valToPos(value, "y", true));
        ctx.moveTo(middle, low);
        ctx.lineTo(middle, high);
        for (const y of [low, high]) {
          ctx.moveTo(middle - end, y);
          ctx.lineTo(middle + end, y);
        }
      });
      ctx.stroke();
    }
  });
}

function clipped(plot: uPlot, draw: () => void): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  draw();
  ctx.restore();
}

function shadeVerticals(plot: uPlot, { verticals = [] }: Chart): void {
  const { ctx, bbox } = plot;
  clipped(plot, () => {
    for (const { low, high, colour } of verticals) {
      if (low === null || high === null) continue;
      const [from, to] = [low, high].map((value) => plot.valToPos(value, "x", true));
      ctx.fillStyle = `${property(colour)}24`;
      ctx.fillRect(from, bbox.top, Math.max(to - from, devicePixelRatio), bbox.height);
    }
  });
}

/** With its name beside the line, on the side where there is room. */
function drawVerticals(plot: uPlot, { verticals = [], stretches = [] }: Chart): void {
  const { ctx, bbox } = plot;
  clipped(plot, () => {
    ctx.font = `600 ${12 * devicePixelRatio}px system-ui, sans-serif`;
    for (const { x, label, colour } of verticals) {
      const at = plot.valToPos(x, "x", true);
      ctx.strokeStyle = ctx.fillStyle = property(colour);
      ctx.lineWidth = 1.5 * devicePixelRatio;
      ctx.beginPath();
      ctx.moveTo(at, bbox.top);
      ctx.lineTo(at, bbox.top + bbox.height);
      ctx.stroke();
      const right = at < bbox.left + bbox.width / 2;
      ctx.textAlign = right ? "left" : "right";
      ctx.strokeStyle = property("--card");
      ctx.lineWidth = 4 * devicePixelRatio;
      const place = [at + (right ? 6 : -6) * devicePixelRatio, bbox.top + (stretches.length ? 32 : 14) * devicePixelRatio] as const;
      ctx.strokeText(label, ...place);
      ctx.fillText(label, ...place);
    }
  });
}

/** A band is read as one interval: of its two lines the upper one has the name. */
function lowerEnd({ bands = 0, lines, showY }: Chart, line: Line, at: number): string {
  const low = lines.indexOf(line) < 2 * bands ? lines[lines.indexOf(line) + 1].values[at] : null;
  return low === null || low === undefined ? "" : `${showY(low)} … `;
}

/** The interval of a point that has whiskers. */
function ends({ showY }: Chart, { whiskers }: Line, at: number): string {
  const interval = whiskers?.[at];
  return interval ? ` (95 %: ${interval.map((value) => showY(value)).join(" … ")})` : "";
}

/** The line and the place of the point that is next to the cursor; null where none is near. */
function nearestPoint(plot: uPlot, { x, lines }: Chart): [number, number] | null {
  const { left = -1, top = -1 } = plot.cursor;
  let best: [number, number] | null = null;
  let least = NEAR ** 2;
  const consider = (at: number): boolean => {
    const across = plot.valToPos(x[at], "x") - left;
    if (Math.abs(across) > NEAR) return false;
    lines.forEach(({ values, points }, line) => {
      const value = values[at];
      if (!points || value === null || value === undefined) return;
      const distance = across ** 2 + (plot.valToPos(value, "y") - top) ** 2;
      if (distance < least) [least, best] = [distance, [line, at]];
    });
    return true;
  };
  const middle = plot.posToIdx(left);
  for (let at = middle; at < x.length && consider(at); at++);
  for (let at = middle - 1; at >= 0 && consider(at); at--);
  return best;
}

function readout(plot: uPlot, wanted: Chart, marked: Mark[][], read: HTMLElement): void {
  const at = plot.cursor.idx;
  if (at === null || at === undefined) {
    read.textContent = "\u00a0";
    return;
  }
  if (wanted.nearest) {
    const place = nearestPoint(plot, wanted);
    read.replaceChildren(place ? name(wanted.nearest(...place)) : "\u00a0");
    return;
  }
  const said = wanted.lines
    .filter((line) => line.values[at] !== null && line.values[at] !== undefined)
    .filter((line) => line.label && (!wanted.stacked || line.values[at]))
    .map((line) => `${line.label} ${lowerEnd(wanted, line, at)}${wanted.showY(line.values[at] as number)}${ends(wanted, line, at)}`);
  const x = wanted.x[at];
  read.replaceChildren(
    `${wanted.xLabel} ${(wanted.readX ?? wanted.showX)(x)}: ${said.join(", ")}`,
    name(within(marked, x)),
  );
}
