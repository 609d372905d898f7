// Axes by powers of ten, for points that span several orders of magnitude.

import { svg } from "./dom";
import { format } from "./format";

export const MARGIN = { left: 64, right: 14, top: 14, bottom: 44 };

export interface Scale {
  (value: number): number;
  ticks: number[];
  low: number;
  high: number;
}

/** The smallest of 1, 2, 5, 10, 20 … by which `most` has at most `lines` lines. */
export function wholeStep(most: number, lines = 5): number {
  const power = 10 ** Math.max(0, Math.floor(Math.log10(most / lines)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => most / step <= lines)!;
}

/** From a round number to a round one: 1, 2 or 5 of a power of ten, or powers alone where they are many. */
export function logarithmic(values: number[], from: number, to: number): Scale {
  const [least, most] = [Math.min(...values) * 0.95, Math.max(...values) * 1.05];
  const steps = most / least > 1000 ? [1] : [1, 2, 5];
  const first = Math.floor(Math.log10(least));
  const all = Array.from({ length: Math.ceil(Math.log10(most)) - first + 2 }, (_, at) =>
    steps.map((step) => step * 10 ** (first + at)),
  ).flat();
  const low = all.findLast((tick) => tick <= least)!;
  const high = all.find((tick) => tick >= most)!;
  const scale = (value: number) => from + (Math.log(value / low) / Math.log(high / low)) * (to - from);
  const ticks = all.filter((tick) => tick >= low && tick <= high);
  return Object.assign(scale, { ticks, low, high });
}

export function grid(
  x: Scale,
  y: Scale,
  width: number,
  height: number,
  xTitle: string,
  yTitle: string,
  show: (value: number) => string = power,
  showY: (value: number) => string = power,
): SVGElement[] {
  const bottom = height - MARGIN.bottom;
  const right = width - MARGIN.right;
  const step = Math.max(1, Math.ceil(x.ticks.length / (width / 70)));
  return [
    ...x.ticks.map((tick) =>
      svg("line", { class: "grid", x1: x(tick), x2: x(tick), y1: MARGIN.top, y2: bottom }),
    ),
    ...y.ticks.map((tick) =>
      svg("line", { class: "grid", x1: MARGIN.left, x2: right, y1: y(tick), y2: y(tick) }),
    ),
    ...x.ticks
      .filter((_, at) => at % step === 0)
      .map((tick) =>
        svg(
          "text",
          { class: "tick", x: x(tick), y: bottom + 17, "text-anchor": "middle" },
          show(tick),
        ),
      ),
    ...y.ticks.map((tick) =>
      svg(
        "text",
        { class: "tick", x: MARGIN.left - 6, y: y(tick) + 4, "text-anchor": "end" },
        showY(tick),
      ),
    ),
    svg(
      "text",
      { class: "tick", x: (MARGIN.left + right) / 2, y: height - 8, "text-anchor": "middle" },
      xTitle,
    ),
    svg(
      "text",
      {
        class: "tick",
        x: 12,
        y: bottom / 2,
        "text-anchor": "middle",
        transform: `rotate(-90 12 ${bottom / 2})`,
      },
      yTitle,
    ),
  ];
}

/** A power of ten with its prefix. */
function power(value: number): string {
  if (value < 1) return String(Number(value.toPrecision(1)));
  return value < 1e4 ? String(Math.round(value)) : format(value, "count", 1);
}
