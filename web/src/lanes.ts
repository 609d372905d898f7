// What was marked over time, as bars in lanes above a chart: a range inside another lies below it.

import type uPlot from "uplot";
import { property } from "./dom";

export interface Mark {
  from: number;
  /** As `from` for a moment. */
  to: number;
  label: string;
}

const LANE = 18;
const GAP = 2;
/** Between the lanes and the plot, where the highest level has its name. */
const ROOM = 12;
const MOST = 4;
const FILLS = 7;
// Pixels: what is narrower than a bar and closer to the next than that joins it.
const THIN = 3;
const NEAR = 2;
const LEAST = 24;
const NAMED = 4;

/** The marks by lane, each in the first where it touches no other; those of deeper lanes are left out. */
export function lanes(marks: Mark[]): Mark[][] {
  const found: Mark[][] = [];
  for (const mark of [...marks].sort((a, b) => a.from - b.from || b.to - a.to)) {
    const free = found.find((lane) => lane[lane.length - 1].to <= mark.from);
    if (free) free.push(mark);
    else if (found.length < MOST) found.push([mark]);
  }
  return found;
}

/** Pixels that the lanes take above the plot. */
export function height(found: Mark[][]): number {
  return found.length * LANE + (found.length ? ROOM : 0);
}

/** The names of what holds a moment, the outermost first. */
export function within(found: Mark[][], x: number): string {
  const names = found.flatMap((lane) => lane.filter(({ from, to }) => from <= x && x <= to));
  const shown = names.slice(0, NAMED).map(({ label }) => label);
  return shown.length ? `; in ${shown.join(" › ")}` : "";
}

export function drawLanes(plot: uPlot, found: Mark[][]): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, 0, bbox.width, bbox.top + bbox.height);
  ctx.clip();
  ctx.font = `${11.5 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  const colours = new Map<string, string>();
  for (const { label } of found.flat()) {
    if (!colours.has(label)) colours.set(label, property(`--fill-${colours.size % FILLS}`));
  }
  for (const [at, lane] of found.entries()) {
    const top = bbox.top - (height(found) - at * LANE) * devicePixelRatio;
    const bars = together(plot, lane);
    bars.forEach((bar, place) => {
      const next = bars[place + 1]?.left ?? bbox.left + bbox.width;
      drawBar(ctx, bar, top, next, colours);
    });
    if (at === 0) drawEdges(plot, bars, top);
  }
  ctx.restore();
}

interface Bar {
  left: number;
  right: number;
  label: string;
  /** How many marks are too narrow and too close to be told apart. */
  count: number;
}

/** The bars of a lane in the canvas's pixels; of those in view alone, and thin ones that are close are one. */
function together(plot: uPlot, lane: Mark[]): Bar[] {
  const { left: begin, width } = plot.bbox;
  const bars: Bar[] = [];
  for (const { from, to, label } of lane) {
    const left = Math.max(plot.valToPos(from, "x", true), begin);
    const right = Math.min(plot.valToPos(to, "x", true), begin + width);
    if (right < left) continue;
    const last = bars[bars.length - 1];
    const thin = right - left < THIN * devicePixelRatio;
    const close = last && left - last.right < NEAR * devicePixelRatio;
    if (thin && close && (last.count > 1 || last.right - last.left < THIN * devicePixelRatio)) {
      last.right = Math.max(last.right, right);
      last.count++;
    } else bars.push({ left, right, label, count: 1 });
  }
  return bars;
}

/** A bar with its name inside, or beside it where it is narrow and there is room. */
function drawBar(
  ctx: CanvasRenderingContext2D,
  { left, right, label, count }: Bar,
  top: number,
  next: number,
  colours: Map<string, string>,
): void {
  const high = (LANE - GAP) * devicePixelRatio;
  const wide = Math.max(right - left - devicePixelRatio, 2 * devicePixelRatio);
  const inside = wide >= LEAST * devicePixelRatio;
  const moment = right - left < THIN * devicePixelRatio;
  ctx.fillStyle = moment ? property("--soft") : count > 1 ? property("--fill-7") : colours.get(label)!;
  ctx.fillRect(left, top, wide, high);
  const padding = 4 * devicePixelRatio;
  const start = (inside ? left : left + wide) + padding;
  const end = inside ? left + wide : next;
  const said = count > 1 ? `${count.toLocaleString("en")} marks` : label;
  const shown = cut(ctx, said, end - start - padding);
  ctx.fillStyle = property(inside ? "--text" : "--soft");
  if (shown) ctx.fillText(shown, start, top + high / 2 + devicePixelRatio);
}

/** A text as far as there is room; nothing where that is too little to be read. */
function cut(ctx: CanvasRenderingContext2D, text: string, room: number): string {
  if (ctx.measureText(text).width <= room) return text;
  let [shown, more] = [0, text.length];
  while (shown < more) {
    const half = Math.ceil((shown + more) / 2);
    if (ctx.measureText(`${text.slice(0, half)}…`).width <= room) shown = half;
    else more = half - 1;
  }
  return shown >= 3 ? `${text.slice(0, shown)}…` : "";
}

/** Lines from the bars of the outermost lane down through the plot, where they stand apart. */
function drawEdges(plot: uPlot, bars: Bar[], top: number): void {
  const { ctx, bbox } = plot;
  ctx.strokeStyle = property("--soft");
  ctx.globalAlpha = 0.55;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
  let last = bbox.left;
  for (const x of bars.filter((bar) => bar.count === 1).flatMap((bar) => [bar.left, bar.right])) {
    if (x - last < LEAST * devicePixelRatio) continue;
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    last = x;
  }
  ctx.globalAlpha = 1;
  ctx.setLineDash([]);
}
