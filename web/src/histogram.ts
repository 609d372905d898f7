// How the steady calls are spread, with the median's interval and the percentiles.

import type { LatencyData } from "./data";
import { svg } from "./dom";
import { time } from "./format";

const HEIGHT = 210;
const MARGIN = { left: 8, right: 8, top: 52, bottom: 30 };

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
  const floor = HEIGHT - MARGIN.bottom;
  const x = (value: number) => MARGIN.left + ((value - low) / (high - low)) * inner;
  const bars = counts.map((count, at) => {
    const tall = (count / most) * (floor - MARGIN.top);
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
    { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, class: "histogram" },
    ...interval(part, x, floor, width),
    ...bars,
    ...marks(part, x, floor, high, width),
    ...ticks(low, high, x, floor, width, beyond),
  );
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
    y: MARGIN.top,
    width: Math.max(to - from, 1),
    height: floor - MARGIN.top,
  };
  const said = `${part.interval_title}: ${time(part.interval[0], 4)} to ${time(part.interval[1], 4)}`;
  return [svg("rect", band, svg("title", {}, said))];
}

function marks(
  part: LatencyData,
  x: (value: number) => number,
  floor: number,
  high: number,
  width: number,
): SVGElement[] {
  const values: [string, number][] = [["median", part.median], ...Object.entries(part.percentiles)];
  const taken = [-Infinity, -Infinity, -Infinity];
  return values
    .filter(([, value]) => value <= high)
    .map(([label, value]) => {
      const place = x(value);
      const text = `${label} ${time(value, 4)}`;
      const wide = text.length * 7;
      const left = Math.max(2, Math.min(place - wide / 2, width - wide - 2));
      // The first line of text that has room: labels of neighbours stand above one another.
      const free = taken.findIndex((end) => end < left);
      const line = free < 0 ? 2 : free;
      taken[line] = left + wide + 6;
      const y = 13 + line * 15;
      return svg(
        "g",
        { class: label === "median" ? "mark median" : "mark" },
        svg("line", { x1: place, x2: place, y1: y + 3, y2: floor }),
        svg("text", { x: left, y, textLength: null }, text),
      );
    });
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
  ];
}
