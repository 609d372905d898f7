// A cumulative distribution with as much room for its tail as for its median.

import { chart, type Line } from "./chart";
import type { TailData } from "./data";
import { time } from "./format";
import { isFar, legendOf } from "./percentiles";

const COLOURS = ["--series-0", "--series-2", "--series-3"];
const LONGEST = 9; // powers of ten: more requests than any run has

/** "p99.9" for one in a thousand. */
export function percentileName(oneIn: number): string {
  if (oneIn <= 1) return "min";
  const nines = Math.max(Math.ceil(Math.log10(oneIn)) - 2, 0);
  return `p${(100 * (1 - 1 / oneIn)).toFixed(oneIn > 1e3 - 1 && nines ? nines : 1).replace(/\.0+$/, "")}`;
}

export function tail(host: HTMLElement, part: TailData, summary: string): void {
  const x = [
    ...new Set([
      ...part.series.flatMap(({ points, percentiles }) => [...points, ...percentiles].map(([oneIn]) => oneIn)),
      ...part.goals.map(([oneIn]) => oneIn),
    ]),
  ].sort((a, b) => a - b);
  const at = new Map(x.map((oneIn, place) => [oneIn, place]));
  const empty = () => x.map((): number | null => null);
  const lines = part.series.flatMap(({ label, points, percentiles, dashed }, which): Line[] => {
    const colour = COLOURS[which % COLOURS.length];
    const values = empty();
    for (const [oneIn, value] of points) values[at.get(oneIn)!] = value;
    const marked = empty();
    const whiskers: Line["whiskers"] = x.map(() => null);
    for (const [oneIn, value, low, high] of percentiles) {
      marked[at.get(oneIn)!] = value;
      if (low !== null && high !== null) whiskers[at.get(oneIn)!] = [low, high];
    }
    return [
      { label, values, colour, width: dashed ? 1.5 : 2, dashed, smooth: true },
      ...(dashed ? [] : [{ label: "", values: marked, colour, points: true, size: 7, whiskers }]),
    ];
  });
  const goals = empty();
  for (const [oneIn, value] of part.goals) goals[at.get(oneIn)!] = value;
  const far = isFar(part.series.flatMap(({ points }) => points.map(([, value]) => value)));
  chart(host, {
    summary,
    x,
    lines: [
      ...lines,
      ...(part.goals.length
        ? [{ label: "goal", values: goals, colour: "--fail", points: true, hollow: true, size: 13 }]
        : []),
    ],
    showX: percentileName,
    showY: (value) => time(value),
    xLabel: "percentile",
    logarithmicX: true,
    splitsX: [1, 2, ...Array.from({ length: LONGEST }, (_, power) => 10 ** (power + 1))],
    logarithmic: far,
    fromZero: !far,
    legend: legendOf(
      part.series.map(({ label, dashed }, which) => [label, COLOURS[which % COLOURS.length], dashed]),
      [
        ...(lines.some(({ whiskers }) => whiskers?.some(Boolean)) ? [["whisker", "95 % interval"] as [string, string]] : []),
        ...(part.goals.length ? [["ring goal", `goal: ${part.goals.map(([, , text]) => text).join(", ")}`] as [string, string]] : []),
      ],
    ),
    height: 320,
  });
}
