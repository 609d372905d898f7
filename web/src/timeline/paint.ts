// Paints the part of the timeline that is in view: events as bars, what is narrower than a pixel as
// columns as high as the share of it that was busy. Its work is that of what is seen.

import { property } from "../dom";
import { format } from "../format";
import type { Counter } from "./counters";
import type { Events, Row } from "./events";
import { HEADING, PLOT, ROW, type Strip, topOf } from "./layout";

const PAINTS: Record<string, string> = {
  step: "--fill-7", range: "--fill-7", layer: "--fill-8", operator: "--fill-5", call: "--fill-6",
  python: "--fill-2", compute: "--series-5", communication: "--series-1", copy: "--series-4",
  "idle: host": "--series-3", "idle: device": "--series-7", "idle: other": "--series-6",
  "idle: unknown": "--fill-7",
  host: "--fill-2", launch: "--fill-3", pause: "--fill-7", merged: "--series-7", other: "--fill-7",
};
// Of bars whose paint is too strong for the text's usual colour.
const STRONG = new Set(["compute", "communication", "copy", "idle: host", "idle: device", "idle: other", "merged"]);
const NARROW = 1.5;
const NAMED = 26;
const CHARACTER = 6.1;
const SAMPLES = 12;
const LEVELS = 5;
const LEAST_HIGH = 0.3;

export interface Scene {
  events: Events;
  strips: Strip[];
  from: number;
  to: number;
  width: number;
  height: number;
  scroll: number;
  selected: number;
  hovered: number;
  /** Which names are sought; null without a search. */
  matches: Uint8Array | null;
  range: [number, number] | null;
  arrows: [launch: number, work: number][];
  steps: number[];
}

/** The colours of the theme, by kind of event and for what is around them. */
export class Palette {
  readonly paints: Map<string, string>;
  readonly text = property("--text");
  readonly soft = property("--soft");
  readonly line = property("--line");
  readonly dim = property("--shade");
  readonly accent = property("--accent");
  readonly warn = property("--series-1");
  readonly plot = property("--series-0");

  constructor() {
    this.paints = new Map(Object.entries(PAINTS).map(([kind, name]) => [kind, property(name)]));
  }

  of(kind: string): string {
    return this.paints.get(kind) ?? this.paints.get("other")!;
  }
}

export function labelOf(events: Events, labels: Map<number, string>, name: number): string {
  return labels.get(name) ?? events.data.names[name];
}

export class Painter {
  private readonly labels: Map<number, string>;
  private readonly kindOf: string[];

  constructor(
    private readonly canvas: HTMLCanvasElement,
    events: Events,
  ) {
    this.labels = new Map(events.data.labels);
    this.kindOf = events.data.kinds;
  }

  paint(scene: Scene, palette: Palette): void {
    const context = this.canvas.getContext("2d")!;
    const ratio = devicePixelRatio || 1;
    const [wide, high] = [Math.round(scene.width * ratio), Math.round(scene.height * ratio)];
    if (this.canvas.width !== wide || this.canvas.height !== high) {
      this.canvas.width = wide;
      this.canvas.height = high;
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, scene.width, scene.height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.paintSteps(context, scene, palette);
    for (const strip of scene.strips) {
      const top = strip.top - scene.scroll;
      if (top > scene.height || top + strip.height < 0) continue;
      context.fillStyle = palette.line;
      context.fillRect(0, Math.round(top), scene.width, 1);
      if (!strip.open) continue;
      if (strip.counter) paintCounter(context, scene, strip.counter, top + HEADING, palette);
      for (const row of strip.rows) {
        const y = top + HEADING + row.depth * ROW;
        if (y < scene.height && y + ROW > 0) this.paintRow(context, scene, row, y, palette);
      }
    }
    this.paintRange(context, scene, palette);
    this.paintSelected(context, scene, palette);
  }

  private paintRow(context: CanvasRenderingContext2D, scene: Scene, row: Row, y: number, palette: Palette): void {
    const { events, from, to, width, matches } = scene;
    const { begin, end, name } = events.columns;
    const scale = width / (to - from);
    const high = ROW - 2;
    let event = Math.max(events.after(from, row.from, row.to) - 1, row.from);
    // Columns of one paint and height that touch are one rectangle.
    let [left, right, paint, level] = [0, 0, "", 0];
    const flush = () => {
      if (right <= left) return;
      const tall = Math.round(high * (LEAST_HIGH + (1 - LEAST_HIGH) * (level / LEVELS)));
      context.fillStyle = paint;
      context.fillRect(left, y + high - tall, right - left, tall);
      right = left;
    };
    const texts: number[] = [];
    while (event < row.to && begin[event] < to) {
      const x = (begin[event] - from) * scale;
      const wide = (end[event] - begin[event]) * scale;
      if (wide >= NARROW) {
        if (x + wide > 0) {
          flush();
          const start = Math.max(x, 0);
          const size = Math.min(x + wide, width) - start;
          context.fillStyle = this.paintOf(name[event], matches, palette);
          context.fillRect(start, y, Math.max(size - (size > 3 ? 0.6 : 0), 1), high);
          if (size > NAMED) texts.push(event);
        }
        event++;
        continue;
      }
      const pixel = Math.max(Math.floor(x), 0);
      const edge = from + (pixel + 1) / scale;
      let last = Math.max(events.after(edge, event, row.to), event + 1);
      // One that goes on beyond the pixel is a bar of its own.
      if (last > event + 1 && (end[last - 1] - begin[last - 1]) * scale >= NARROW) last--;
      const share = Math.min(1, (events.busy[last] - events.busy[event]) * scale);
      const colour = this.columnPaint(events, event, last, matches, palette);
      const tall = Math.round(share * LEVELS);
      if (colour !== paint || tall !== level || pixel > right) {
        flush();
        [left, paint, level] = [pixel, colour, tall];
      }
      right = pixel + 1;
      event = last;
    }
    flush();
    for (const one of texts) this.paintText(context, scene, one, y, palette);
  }

  private paintText(context: CanvasRenderingContext2D, scene: Scene, event: number, y: number, palette: Palette): void {
    const { begin, end, name } = scene.events.columns;
    const scale = scene.width / (scene.to - scene.from);
    const left = Math.max((begin[event] - scene.from) * scale, 0) + 4;
    const room = Math.min((end[event] - scene.from) * scale, scene.width) - left - 3;
    const most = Math.floor(room / CHARACTER);
    if (most < 2) return;
    const label = labelOf(scene.events, this.labels, name[event]);
    const dimmed = scene.matches && !scene.matches[name[event]];
    context.fillStyle = dimmed ? palette.soft : STRONG.has(this.kindOf[name[event]]) ? "#000" : palette.text;
    context.fillText(label.length > most ? `${label.slice(0, most - 1)}…` : label, left, y + ROW / 2, room);
  }

  private paintOf(name: number, matches: Uint8Array | null, palette: Palette): string {
    return matches && !matches[name] ? palette.dim : palette.of(this.kindOf[name]);
  }

  /** The paint of most of the time of some events; a match counts before all others. */
  private columnPaint(
    events: Events,
    first: number,
    last: number,
    matches: Uint8Array | null,
    palette: Palette,
  ): string {
    const { name } = events.columns;
    if (last === first + 1) return this.paintOf(name[first], matches, palette);
    if (matches) {
      for (let event = first; event < last; event++)
        if (matches[name[event]]) return palette.of(this.kindOf[name[event]]);
      return palette.dim;
    }
    const step = Math.max(1, (last - first) / SAMPLES);
    let [best, most] = [name[first], -1];
    for (let at: number = first; at < last; at += step) {
      const event = Math.floor(at);
      const time = events.busy[event + 1] - events.busy[event];
      if (time > most) [best, most] = [name[event], time];
    }
    return palette.of(this.kindOf[best]);
  }

  private paintSteps(context: CanvasRenderingContext2D, scene: Scene, palette: Palette): void {
    const { begin } = scene.events.columns;
    const scale = scene.width / (scene.to - scene.from);
    context.fillStyle = palette.soft;
    let last = -Infinity;
    for (const step of scene.steps) {
      const x = (begin[step] - scene.from) * scale;
      if (x < 0 || x > scene.width || x - last < 6) continue;
      for (let y = 0; y < scene.height; y += 6) context.fillRect(Math.round(x), y, 1, 2);
      last = x;
    }
  }

  private paintRange(context: CanvasRenderingContext2D, scene: Scene, palette: Palette): void {
    if (!scene.range) return;
    const scale = scene.width / (scene.to - scene.from);
    const [left, right] = scene.range.map((time) =>
      Math.max(-2, Math.min((time - scene.from) * scale, scene.width + 2)),
    );
    context.globalAlpha = 0.14;
    context.fillStyle = palette.accent;
    context.fillRect(left, 0, right - left, scene.height);
    context.globalAlpha = 1;
    for (const x of [left, right]) context.fillRect(Math.round(x) - 1, 0, 2, scene.height);
  }

  private paintSelected(context: CanvasRenderingContext2D, scene: Scene, palette: Palette): void {
    for (const [event, colour] of [
      [scene.hovered, palette.text],
      [scene.selected, palette.accent],
    ] as [number, string][]) {
      const box = event < 0 ? null : boxOf(scene, event);
      if (!box) continue;
      context.strokeStyle = colour;
      context.lineWidth = event === scene.selected ? 2.5 : 1.2;
      const left = Math.max(box.left, -4);
      context.strokeRect(left, box.top - 0.5, Math.min(box.right, scene.width + 4) - left, ROW - 1);
    }
    context.lineWidth = 1.4;
    context.strokeStyle = palette.warn;
    for (const [launch, work] of scene.arrows) {
      const [start, stop] = [boxOf(scene, launch), boxOf(scene, work)];
      if (start && stop) paintArrow(context, start, stop, scene.width);
    }
  }
}

interface Box {
  left: number;
  right: number;
  top: number;
}

/** Where an event is on the canvas; null where its lane is closed. */
function boxOf(scene: Scene, event: number): Box | null {
  const top = topOf(scene.strips, scene.events.row(event));
  if (top === null) return null;
  const scale = scene.width / (scene.to - scene.from);
  const { begin, end } = scene.events.columns;
  const left = (begin[event] - scene.from) * scale;
  return { left, right: Math.max((end[event] - scene.from) * scale, left + 2), top: top - scene.scroll };
}

function paintArrow(context: CanvasRenderingContext2D, start: Box, stop: Box, width: number): void {
  const clamp = (x: number) => Math.max(-50, Math.min(x, width + 50));
  const [x0, x1] = [clamp(start.left), clamp(stop.left)];
  const down = stop.top > start.top;
  const y0 = start.top + (down ? ROW - 2 : 0);
  const y1 = stop.top + (down ? 0 : ROW - 2);
  const middle = (y0 + y1) / 2;
  const tip = down ? -5 : 5;
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(x0, middle, x1, middle, x1, y1);
  context.moveTo(x1 - 4, y1 + tip);
  context.lineTo(x1, y1);
  context.lineTo(x1 + 4, y1 + tip);
  context.stroke();
}

function paintCounter(
  context: CanvasRenderingContext2D,
  { from, to, width }: Scene,
  { time, values, most, unit }: Counter,
  top: number,
  palette: Palette,
): void {
  if (!most) return;
  const high = PLOT - 4;
  const scale = (to - from) / width;
  let [at, before] = [lowerBound(time, from) - 1, 0];
  context.fillStyle = palette.plot;
  context.globalAlpha = 0.55;
  for (let x = 0; x < width; x++) {
    const edge = from + (x + 1) * scale;
    let value = at >= 0 ? values[at] : before;
    // The highest in the pixel; of very many, those of even steps.
    const last = lowerBound(time, edge, Math.max(at, 0));
    const step = Math.max(1, Math.floor((last - at) / 64));
    for (let one = at + 1; one < last; one += step) value = Math.max(value, values[one]);
    at = Math.max(at, last - 1);
    before = value;
    const tall = Math.max(value > 0 ? 1 : 0, Math.round((high * value) / most));
    if (tall) context.fillRect(x, top + high - tall, 1, tall);
  }
  context.globalAlpha = 1;
  context.fillStyle = palette.soft;
  context.textAlign = "right";
  context.fillText(format(most, unit), width - 4, top + 5);
  context.textAlign = "left";
}

/** The first place whose time is later. */
function lowerBound(time: ArrayLike<number>, wanted: number, low = 0): number {
  let high = time.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (time[middle] <= wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}
