// How the values of one window are spread: buckets on a logarithmic axis, percentiles as marks.

import { wholeStep } from "../axes";
import { h, responsive, svg } from "../dom";
import { format, tidy, type Unit } from "../format";
import type { Distribution } from "./data";

const TOP = 44;
const PLOT = 150;
const BOTTOM = 26;
const LEFT = 44;
const RIGHT = 12;
const LINE = 14;

export function distribution(shown: Distribution, unit: Unit): HTMLElement {
  const { measured, zero, percentiles } = shown;
  const summary = `${measured.toLocaleString("en")} measured values: ${Object.entries(percentiles)
    .map(([label, value]) => `${label} ${format(value, unit)}`)
    .join(", ")}.`;
  const frame = h("div", { role: "img", "aria-label": summary });
  if (!shown.counts.length) return h("p", { class: "note" }, "Nothing was measured in this window.");
  responsive(frame, (width) => frame.replaceChildren(picture(shown, unit, width)));
  const note = `${measured.toLocaleString("en")} of ${shown.count.toLocaleString("en")} events were measured${zero ? `, ${zero.toLocaleString("en")} of them 0` : ""}. The axis is logarithmic.`;
  return h("figure", {}, frame, h("figcaption", { class: "note" }, note));
}

function picture({ edges, counts, percentiles }: Distribution, unit: Unit, width: number): SVGElement {
  const [low, high] = [Math.log(edges[0]), Math.log(edges[edges.length - 1])];
  const x = (value: number) => LEFT + ((Math.log(value) - low) / (high - low || 1)) * (width - LEFT - RIGHT);
  const floor = TOP + PLOT;
  const most = Math.max(...counts);
  const bars = counts.map((count, at) => {
    const [left, right] = [x(edges[at]), x(edges[at + 1])];
    const tall = (count / most) * PLOT;
    return svg(
      "rect",
      { class: "bin", x: left + 0.5, y: floor - tall, width: Math.max(right - left - 1, 0.75), height: tall, rx: 1.5 },
      svg("title", {}, `${count.toLocaleString("en")} of ${format(edges[at], unit)} to ${format(edges[at + 1], unit)}`),
    );
  });
  return svg(
    "svg",
    { width, height: floor + BOTTOM, viewBox: `0 0 ${width} ${floor + BOTTOM}` },
    ...levels(most, floor, width),
    ...bars,
    svg("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: floor, y2: floor }),
    ...marks(percentiles, unit, x, floor, width),
    ...ticks(edges[0], edges[edges.length - 1], unit, x, floor, width),
  );
}

/** Lines at whole numbers of events. */
function levels(most: number, floor: number, width: number): SVGElement[] {
  const step = wholeStep(most, 3);
  return Array.from({ length: Math.floor(most / step) }, (_, at) => (at + 1) * step).flatMap((level) => {
    const y = floor - (level / most) * PLOT;
    return [
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }),
      svg("text", { class: "tick", x: LEFT - 6, y: y + 4, "text-anchor": "end" }, level.toLocaleString("en")),
    ];
  });
}

function marks(
  percentiles: Distribution["percentiles"],
  unit: Unit,
  x: (value: number) => number,
  floor: number,
  width: number,
): SVGElement[] {
  const ends: number[] = [];
  return Object.entries(percentiles).flatMap(([label, value]) => {
    if (value === null) return [];
    const text = `${label} ${format(value, unit)}`;
    const wide = text.length * 6.6;
    const left = Math.max(2, Math.min(x(value) - wide / 2, width - wide - 2));
    const free = ends.findIndex((end) => end < left);
    const row = free < 0 ? ends.length : free;
    ends[row] = left + wide + 6;
    const y = TOP - 6 - row * LINE;
    return [
      svg(
        "g",
        { class: label === "p50" ? "mark median" : "mark" },
        svg("line", { x1: x(value), x2: x(value), y1: y + 3, y2: floor }),
        svg("text", { x: left, y }, text),
      ),
    ];
  });
}

/** At round numbers, as many as there is room for. */
function ticks(
  least: number,
  most: number,
  unit: Unit,
  x: (value: number) => number,
  floor: number,
  width: number,
): SVGElement[] {
  const first = Math.floor(Math.log10(least));
  const steps = most / least > 50 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 8];
  const all = Array.from({ length: Math.ceil(Math.log10(most)) - first + 1 }, (_, at) => steps.map((step) => step * 10 ** (first + at)))
    .flat()
    .filter((value) => value >= least && value <= most);
  let taken = -Infinity;
  return all.flatMap((value) => {
    const at = x(value);
    if (at - taken < 56 || at > width - 24) return [];
    taken = at;
    return [svg("text", { class: "tick", x: at, y: floor + 17, "text-anchor": "middle" }, tidy(format(value, unit, 2)))];
  });
}
