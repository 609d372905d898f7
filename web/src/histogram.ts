// How the steady calls are spread, with the median's interval and the percentiles.

import { wholeStep } from "./axes";
import type { LatencyData } from "./data";
import { svg } from "./dom";
import { time } from "./format";

const PLOT = 140;
const LINE = 15;
const MARGIN = { left: 44, right: 12, bottom: 44 };

interface Label {
  text: string;
  /** Where its line stands, and where it begins, in pixels. */
  place: number;
  left: number;
  /** Its line of text, from the plot upwards. */
  row: number;
}

export function histogram(part: LatencyData, width: number): SVGElement {
  const samples = part.runs.flatMap((run) => run.samples.slice(run.warmup)).sort((a, b) => a - b);
  const [low, high, beyond] = span(samples);
  const bins = Math.max(8, Math.min(60, Math.round(2 * samples.length ** (1 / 3)) * 2));
  const counts = new Array<number>(bins).fill(0);
  for (const sample of samples) {
    if (sample <= high)
      counts[Math.min(bins - 1, Math.floor(((sample - low) / (high - low)) * bins))]++;
  }
  const most = Math.max(...counts);
  const inner = width - MARGIN.left - MARGIN.right;
  const x = (value: number) => MARGIN.left + ((value - low) / (high - low)) * inner;
  const labels = marks(part, x, high, width);
  const top = 8 + LINE * (1 + Math.max(...labels.map(({ row }) => row)));
  const floor = top + PLOT;
  const height = floor + MARGIN.bottom;
  const bars = counts.map((count, at) => {
    const tall = (count / most) * PLOT;
    const edges = [at, at + 1].map((edge) => low + ((high - low) * edge) / bins);
    return svg(
      "rect",
      {
        class: "bin",
        x: x(edges[0]) + 0.5,
        y: floor - tall,
        width: Math.max(inner / bins - 1, 1),
        height: tall,
      },
      svg("title", {}, `${count} calls of ${time(edges[0])} to ${time(edges[1])}`),
    );
  });
  return svg(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, class: "histogram" },
    ...counted(most, top, floor, width),
    ...interval(part, x, top, floor, width),
    ...bars,
    ...labels.map((label) => drawn(label, top, floor)),
    ...ticks(low, high, x, floor, width, beyond),
  );
}

/** Lines at whole numbers of calls. */
function counted(most: number, top: number, floor: number, width: number): SVGElement[] {
  const step = wholeStep(most);
  const levels = Array.from({ length: Math.floor(most / step) + 1 }, (_, at) => at * step);
  return [
    ...levels.flatMap((level) => {
      const y = floor - (level / most) * (floor - top);
      return [
        svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y }),
        svg("text", { class: "tick", x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" }, level.toLocaleString("en")),
      ];
    }),
    svg(
      "text",
      { class: "tick", x: 11, y: (top + floor) / 2, "text-anchor": "middle", transform: `rotate(-90 11 ${(top + floor) / 2})` },
      "calls",
    ),
  ];
}

/** The span to draw: a few calls far out must not press all others into one bar. */
function span(samples: number[]): [number, number, number] {
  const at = (share: number) =>
    samples[Math.min(samples.length - 1, Math.floor(share * samples.length))];
  const low = samples[0];
  const last = samples[samples.length - 1];
  const far = at(0.5) + 8 * Math.max(at(0.9) - at(0.5), at(0.5) - at(0.1));
  const high = Math.max(Math.min(last, far), low * 1.0001, low + 1);
  return [low, high, samples.filter((sample) => sample > high).length];
}

function interval(
  part: LatencyData,
  x: (value: number) => number,
  top: number,
  floor: number,
  width: number,
): SVGElement[] {
  if (!part.interval) return [];
  const [from, to] = part.interval.map((value) =>
    Math.min(Math.max(x(value), MARGIN.left), width - MARGIN.right),
  );
  const band = {
    class: "interval",
    x: from,
    y: top,
    width: Math.max(to - from, 2),
    height: floor - top,
  };
  return [svg("rect", band)];
}

/** The median and the percentiles, each in the lowest line of text where it meets no other. */
function marks(
  part: LatencyData,
  x: (value: number) => number,
  high: number,
  width: number,
): Label[] {
  const values: [string, number][] = [["median", part.median], ...Object.entries(part.percentiles)];
  const ends: number[] = [];
  return values
    .filter(([, value]) => value <= high)
    .map(([label, value]) => {
      const text = `${label} ${time(value, 4)}`;
      const wide = text.length * 7;
      const left = Math.max(MARGIN.left - 4, Math.min(x(value) - wide / 2, width - wide - 2));
      const free = ends.findIndex((end) => end < left);
      const row = free < 0 ? ends.length : free;
      ends[row] = left + wide + 6;
      return { text, place: x(value), left, row };
    });
}

function drawn({ text, place, left, row }: Label, top: number, floor: number): SVGElement {
  const y = top - 6 - row * LINE;
  return svg(
    "g",
    { class: text.startsWith("median") ? "mark median" : "mark" },
    svg("line", { x1: place, x2: place, y1: y + 3, y2: floor }),
    svg("text", { x: left, y }, text),
  );
}

function ticks(
  low: number,
  high: number,
  x: (value: number) => number,
  floor: number,
  width: number,
  beyond: number,
): SVGElement[] {
  const number = Math.max(2, Math.min(7, Math.floor(width / 130)));
  const found = Array.from({ length: number }, (_, at) => low + ((high - low) * at) / (number - 1));
  const labels = found.map((value, at) => {
    const anchor = at === 0 ? "start" : at === number - 1 ? "end" : "middle";
    const last = at === number - 1 && beyond ? ` (${beyond} beyond)` : "";
    return svg(
      "text",
      { class: "tick", x: x(value), y: floor + 18, "text-anchor": anchor },
      time(value) + last,
    );
  });
  return [
    svg("line", { class: "axis", x1: MARGIN.left, x2: width - MARGIN.right, y1: floor, y2: floor }),
    ...labels,
    svg(
      "text",
      { class: "tick", x: (MARGIN.left + width) / 2, y: floor + 38, "text-anchor": "middle" },
      "time of a call",
    ),
  ];
}
