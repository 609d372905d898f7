// Clouds of points: stronger where a point stands for more, and what was not answered at the top.

import { chart, type Chart, type Line } from "./chart";
import type { PointsData, RequestsData } from "./data";
import { time } from "./format";
import { isFar, legendOf } from "./percentiles";

/** Points that stand for at least so many are drawn in that much of their colour. */
const SHADES: [least: number, alpha: string][] = [
  [1, "66"],
  [4, "a6"],
  [20, "ff"],
];
const COLOURS = ["--series-0", "--series-7"];
const NANO = 1e3; // of a microsecond
const BEYOND = 1.6;

interface Cloud {
  summary: string;
  /** "latency" or "gap". */
  what: string;
  /** What x is: "due at", "ended at". */
  when: string;
  series: PointsData[];
  unanswered: RequestsData["unanswered"];
  stretches: Chart["stretches"];
  goals: { value: number; label: string }[];
}

interface Row {
  x: number;
  y: number;
  line: number;
  text: string;
}

export function scatter(host: HTMLElement, cloud: Cloud): void {
  const all = cloud.series.flatMap(({ y }) => y);
  const highest = all.reduce((most, value) => Math.max(most, value), 1) * NANO;
  const least = all.reduce((less, value) => Math.min(less, value), Infinity) * NANO;
  const far = isFar([least, highest]);
  const goals = cloud.goals.filter(({ value }) => far || value < 3 * highest);
  const top = Math.max(highest, ...goals.map(({ value }) => value)) * (far ? BEYOND : 1.12);
  const lines: Line[] = [];
  const rows: Row[] = [];
  cloud.series.forEach((series, which) => addSeries(cloud, series, COLOURS[which % COLOURS.length], lines, rows));
  for (const lost of cloud.unanswered) addUnanswered(lost, top, lines, rows);
  rows.sort((a, b) => a.x - b.x);
  for (const line of lines) line.values = new Array<number | null>(rows.length).fill(null);
  rows.forEach(({ y, line }, at) => (lines[line].values[at] = y));
  chart(host, {
    summary: cloud.summary,
    x: rows.map(({ x }) => x),
    lines,
    showX: (value) => time(value),
    showY: (value) => time(value),
    xLabel: "time",
    nearest: (_, at) => rows[at].text,
    stretches: cloud.stretches,
    levels: [
      ...(cloud.unanswered.length ? [{ value: top, label: "not answered", colour: "--fail" }] : []),
      ...goals.map((goal) => ({ ...goal, colour: "--fail" })),
    ],
    logarithmic: far,
    fromZero: !far,
    headroom: true,
    legend: legend(cloud),
    height: 360,
  });
}

function addSeries(cloud: Cloud, { label, x, y, count }: PointsData, colour: string, lines: Line[], rows: Row[]): void {
  const shades = count.length ? SHADES : SHADES.slice(0, 1);
  const first = lines.length;
  for (const [, alpha] of shades) lines.push({ label, values: [], colour, points: true, faint: true, alpha, size: 4 });
  x.forEach((begin, at) => {
    const number = count[at] ?? 1;
    const shade = shades.findLastIndex(([least]) => number >= least);
    const others = number > 1 ? `, and ${(number - 1).toLocaleString("en")} faster beside it` : "";
    rows.push({
      x: begin * NANO,
      y: y[at] * NANO,
      line: first + shade,
      text: `${cloud.when} ${time(begin * NANO, 5)}: ${cloud.what} ${time(y[at] * NANO, 4)}${others}`,
    });
  });
}

function addUnanswered({ fate, x, count }: RequestsData["unanswered"][0], top: number, lines: Line[], rows: Row[]): void {
  lines.push({ label: fate, values: [], colour: "--fail", points: true, size: 6 });
  x.forEach((begin, at) => {
    const several = count[at] > 1 ? `, ${count[at].toLocaleString("en")} requests` : "";
    rows.push({ x: begin * NANO, y: top, line: lines.length - 1, text: `due at ${time(begin * NANO, 5)}: ${fate}${several}` });
  });
}

function legend(cloud: Cloud): HTMLElement {
  const thinned = cloud.series.some(({ count }) => count.length);
  const fates = cloud.unanswered.map(({ fate, count }) => `${fate} ${count.reduce((a, b) => a + b, 0).toLocaleString("en")}`);
  return legendOf(
    [
      ...cloud.series.map(({ label }, which) => [label, COLOURS[which % COLOURS.length]] as [string, string]),
      ...(fates.length ? [[`not answered: ${fates.join(", ")}`, "--fail"] as [string, string]] : []),
    ],
    thinned ? [["shades", "the stronger, the more are beside it"]] : [],
  );
}
