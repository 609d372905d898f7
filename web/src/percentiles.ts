// Percentiles of several loads as lines: intervals as whiskers, rings where there is no steady state.

import type { Line } from "./chart";
import type { PercentileSeries } from "./data";
import { h, name } from "./dom";

// Values of which the largest is this many times the smallest have logarithmic axes.
const FAR = 20;
const COLOURS: [fraction: number, colour: string][] = [
  [0.5, "--series-0"],
  [0.9, "--series-2"],
  [0.95, "--series-4"],
  [1, "--series-1"],
];

export function colourOf(fraction: number | null): string {
  return COLOURS.find(([end]) => (fraction ?? 1) <= end)?.[1] ?? "--series-1";
}

export function isFar(values: number[]): boolean {
  const least = Math.min(...values);
  return least > 0 && Math.max(...values) > FAR * least;
}

type Point = PercentileSeries["points"][0];

interface Drawn {
  label: string;
  colour: string;
  points: Point[];
  /** Points alone. */
  unconnected?: boolean;
}

/** The columns of a chart; loads that were tried twice have a column each. */
export function percentileLines(series: Drawn[]): { x: number[]; lines: Line[] } {
  const keyed = series.map(({ points }) => {
    const seen = new Map<number, number>();
    return points.map((point) => {
      const again = seen.get(point[0]) ?? 0;
      seen.set(point[0], again + 1);
      return { point, again };
    });
  });
  const columns = new Map<string, [x: number, again: number]>();
  for (const { point, again } of keyed.flat()) columns.set(`${point[0]} ${again}`, [point[0], again]);
  const order = [...columns].sort(([, a], [, b]) => a[0] - b[0] || a[1] - b[1]);
  const at = new Map(order.map(([key], place) => [key, place]));
  const lines = series.flatMap(({ label, colour, unconnected }, which) => {
    const placed: (Point | null)[] = order.map(() => null);
    for (const { point, again } of keyed[which]) placed[at.get(`${point[0]} ${again}`)!] = point;
    const of = (shown: (point: Point) => boolean) => placed.map((point) => (point && shown(point) ? point[1] : null));
    const rings = of((point) => Boolean(point[4]));
    const whiskers = placed.map((point) =>
      point && point[2] !== null && point[3] !== null ? ([point[2], point[3]] as [number, number]) : null,
    );
    return [
      ...(unconnected ? [] : [{ label: "", values: of(() => true), colour }]),
      { label, values: of((point) => !point[4]), colour, points: true, size: unconnected ? 9 : 7, hollow: unconnected, whiskers },
      ...(rings.some((value) => value !== null)
        ? [{ label, values: rings, colour, points: true, hollow: true, size: 9 }]
        : []),
    ];
  });
  return { x: order.map(([, [x]]) => x), lines };
}

/** Colours, then what shapes mean. */
export function legendOf(colours: [label: string, colour: string, dashed?: boolean][], shapes: [style: string, text: string][]): HTMLElement {
  const coloured = colours.map(([label, colour, dashed]) => {
    const swatch = h("span", { class: `swatch ${dashed ? "dashed" : "round"}`, "aria-hidden": "true" });
    swatch.style.setProperty("--paint", `var(${colour})`);
    return h("li", {}, swatch, name(label));
  });
  const shaped = shapes.map(([style, text]) =>
    h("li", {}, h("span", { class: `swatch ${style}`, "aria-hidden": "true" }), name(text)),
  );
  return h("ul", { class: "legend" }, ...coloured, ...shaped);
}
