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

export function logarithmic(values: number[], from: number, to: number): Scale {
  const low = Math.floor(Math.log10(Math.min(...values)));
  const high = Math.max(Math.ceil(Math.log10(Math.max(...values) * 1.05)), low + 1);
  const scale = (value: number) => from + ((Math.log10(value) - low) / (high - low)) * (to - from);
  const ticks = Array.from({ length: high - low + 1 }, (_, at) => 10 ** (low + at));
  return Object.assign(scale, { ticks, low: 10 ** low, high: 10 ** high });
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
