// Generation: times and sizes by batch and prompt, how they grow with the context, parts of a call.

import { breakdown } from "../breakdown";
import { chart, type Line } from "../chart";
import type { BreakdownData, CacheData, GrowthData, ShapesData } from "../data";
import { definitions } from "../definitions";
import { badge, h, name, scroller } from "../dom";
import { bytes, format, percent, time, type Unit } from "../format";
import { isFar } from "../percentiles";
import type { View } from "../registry";
import { Table } from "../table";

type Heat = ShapesData["maps"][0];
type Place = Heat["cells"][0];

// Bands that reach so many times as high as all else do not count for the range of an axis.
const WIDE = 1.5;
// Points of a series from which on they are drawn faint, as they lie upon one another.
const MANY = 50;

export const shapes: View<ShapesData> = {
  id: "shapes",
  title: "Shapes",
  wide: true,
  draw(part, host) {
    if (part.maps.length) host.append(...heatMaps(part.maps));
    host.append(new Table(part.cells, null).element);
  },
};

/** The maps, one figure at a time, and the select that chooses it. */
function heatMaps(maps: Heat[]): HTMLElement[] {
  const titles = [...new Map(maps.flatMap(({ figures }) => figures))];
  const grids = h("div", { class: "pair" });
  const legend = h("ul", { class: "legend" });
  const select = h(
    "select",
    { change: () => draw() },
    ...titles.map(([title]) => h("option", { value: title }, title)),
  ) as HTMLSelectElement;
  function draw(): void {
    const [title, unit] = titles.find(([one]) => one === select.value)!;
    const shown = maps.map((map) => map.figures.findIndex(([one]) => one === title));
    const known = maps.flatMap((map, at) => map.cells.map((cell) => cell.values[shown[at]] ?? null));
    const values = known.filter((value): value is number => value !== null && value > 0);
    const ends: [number, number] = [Math.min(...values), Math.max(...values)];
    grids.replaceChildren(...maps.map((map, at) => heatMap(map, shown[at], title, unit, ends)));
    legend.replaceChildren(...heatLegend(maps, unit, ends));
  }
  draw();
  return [h("div", { class: "controls" }, h("label", {}, "Figure ", select)), grids, legend];
}

function heatMap(map: Heat, figure: number, title: string, unit: Unit, ends: [number, number]): HTMLElement {
  const places = new Map(map.cells.map((cell) => [`${cell.batch} ${cell.prompt}`, cell]));
  const number = (value: number) => value.toLocaleString("en");
  const table = h(
    "table",
    {},
    h(
      "thead",
      {},
      h("tr", {}, h("td"), h("th", { scope: "colgroup", colspan: map.prompts.length }, "tokens of a prompt")),
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "batch"),
        ...map.prompts.map((prompt) => h("th", { scope: "col" }, number(prompt))),
      ),
    ),
    h(
      "tbody",
      {},
      ...map.batches.map((batch) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, number(batch)),
          ...map.prompts.map((prompt) => place(places.get(`${batch} ${prompt}`), figure, unit, ends)),
        ),
      ),
    ),
  );
  table.style.minWidth = `${4.6 + 5.6 * map.prompts.length}rem`;
  return h("div", {}, h("h3", {}, name(map.title)), scroller(`${title}: ${map.title}`, table, { class: "heat" }));
}

function place(cell: Place | undefined, figure: number, unit: Unit, [low, high]: [number, number]): HTMLElement {
  if (!cell) return h("td", { class: "absent" }, h("span", { class: "off-screen" }, "not measured"));
  const value = cell.values[figure] ?? null;
  if (value === null) {
    const status = cell.status === "done" || cell.status === "estimated" ? "unknown" : cell.status;
    return h("td", { class: "failed", title: cell.reason }, h("b", {}, status), h("div", { class: "note" }, name(cell.reason)));
  }
  const interval = cell.intervals[figure];
  const estimated = cell.status === "estimated";
  const element = h(
    "td",
    { class: estimated ? "estimated" : null, title: cell.reason || null },
    h("b", {}, format(value, unit)),
    h(
      "div",
      { class: "note" },
      ...[interval && reach(value, interval, unit), estimated && (cell.reason || "estimated")]
        .filter((text) => text)
        .map((text) => h("div", {}, text as string)),
    ),
  );
  const level = value > 0 && high > low ? Math.log(value / low) / Math.log(high / low) : 0.5;
  element.style.setProperty("--level", `${8 + 42 * level}%`);
  return element;
}

/** Half an interval as a share, or both ends of a wide one, which do not lie alike. */
function reach(value: number, [low, high]: [number, number], unit: Unit): string {
  const half = (high - low) / 2 / value;
  return half < 0.5 ? `± ${percent(half)}` : `${format(low, unit, 2)} … ${format(high, unit, 2)}`;
}

function heatLegend(maps: Heat[], unit: Unit, [low, high]: [number, number]): HTMLElement[] {
  const all = maps.flatMap(({ cells }) => cells);
  const item = (style: string, text: string) =>
    h("li", {}, h("span", { class: `swatch ${style}`, "aria-hidden": "true" }), text);
  return [
    high > low &&
      h("li", {}, format(low, unit), h("span", { class: "ramp", "aria-hidden": "true" }), format(high, unit)),
    all.some(({ intervals }) => intervals.some(Boolean)) && h("li", {}, "±: half of the 95 % interval"),
    all.some(({ status }) => status === "estimated") && item("hatched", "estimated by the fits, not measured"),
    all.some(({ status }) => status !== "estimated" && status !== "done") && item("crossed", "no figures, and why"),
    maps.some((map) => map.cells.length < map.batches.length * map.prompts.length) && item("absent", "not measured"),
  ].filter((one): one is HTMLElement => one !== false);
}

export const growth: View<GrowthData> = {
  id: "growth",
  title: "Time over context",
  wide: true,
  draw(part, host) {
    host.append(
      h(
        "p",
        { class: "note" },
        "A decode step lasts until the next one begins: choosing the token is in it. Drag to zoom in, double click to zoom out.",
      ),
    );
    const charts = h("div", { class: "pair" });
    host.append(charts);
    for (const one of part) charts.append(grown(one));
  },
};

function grown(part: GrowthData[0]): HTMLElement {
  const host = h("div", {}, h("h3", {}, name(part.title), " ", badge("measured"), part.words.length ? badge("estimated") : ""));
  const rows = part.series
    .flatMap(({ points, line }, at) => [
      ...points.map(([x, value]) => ({ x, at, value: value as number | null })),
      ...line.map(([x]) => ({ x, at, value: null })),
    ])
    .sort((a, b) => a.x - b.x);
  const x = rows.map((row) => row.x);
  const bands: Line[] = [];
  const lines: Line[] = [];
  part.series.forEach(({ label, points, line }, at) => {
    const colour = `--series-${at % 8}`;
    const of = (column: 1 | 2 | 3, shown: (outside: boolean) => boolean = () => true) =>
      x.map((context) => between(line, column, context, shown));
    if (line.some((point) => point[2] !== null)) {
      const highest = Math.max(...points.map(([, value]) => value), ...line.map(([, value]) => value));
      // A band that says little would press the points together.
      const loose = line.some((point) => (point[3] ?? 0) > WIDE * highest);
      bands.push({ label: `${label}, 95 %`, values: of(3), colour, width: 0, smooth: true, loose });
      bands.push({ label: "", values: of(2), colour, width: 0, smooth: true, loose });
    }
    if (line.length) {
      lines.push({ label: `${label}, line`, values: of(1, (outside) => !outside), colour, smooth: true });
      lines.push({ label: `${label}, extrapolated`, values: of(1, (outside) => outside), colour, dashed: true, smooth: true });
    }
    const many = points.length > MANY;
    const values = rows.map((row) => (row.at === at ? row.value : null));
    lines.push({ label, values, colour, points: true, faint: many, size: many ? 4 : 7 });
  });
  const far = isFar(part.series.flatMap(({ points }) => points.map(([, value]) => value)));
  chart(host, {
    summary: `${part.title} by ${part.axis}: ${part.series.map(({ label }) => label).join(", ")}.`,
    x,
    lines: [...bands, ...lines],
    bands: bands.length / 2,
    showX: (value) => value.toLocaleString("en"),
    showY: (value) => time(value),
    xLabel: part.axis,
    counts: true,
    fromZero: !far,
    logarithmic: far,
    logarithmicX: far,
    legend: seriesLegend(part.series.map(({ label }) => label), [
      ...(lines.length > part.series.length ? [["line plain", "fitted line"]] : []),
      ...(bands.length ? [["band plain", "95 % of single measurements"]] : []),
      ...(lines.some(({ dashed, values }) => dashed && values.some((value) => value !== null))
        ? [["dashed plain", "extrapolated"]]
        : []),
    ]),
    height: 300,
  });
  if (part.words.length) host.append(definitions(part.words));
  if (part.notes.length) host.append(h("p", { class: "note" }, name(part.notes.join(" "))));
  return host;
}

/** A column of a line at an x between two of its points, where the further one of these is shown. */
function between(
  line: GrowthData[0]["series"][0]["line"],
  column: 1 | 2 | 3,
  x: number,
  shown: (outside: boolean) => boolean,
): number | null {
  const after = line.findIndex(([at]) => at >= x);
  if (after < 0 || x < line[0][0] || !shown(line[after][4] === 1)) return null;
  const [from, to] = [line[Math.max(after - 1, 0)], line[after]];
  const [low, high] = [from[column], to[column]];
  if (low === null || high === null) return null;
  return to[0] > from[0] ? low + ((high - low) * (x - from[0])) / (to[0] - from[0]) : high;
}

/** A colour for each batch, then what lines and points are. */
function seriesLegend(labels: string[], shapes: string[][]): HTMLElement {
  const item = (style: string, text: string) =>
    h("li", {}, h("span", { class: `swatch ${style}`, "aria-hidden": "true" }), name(text));
  return h(
    "ul",
    { class: "legend" },
    ...labels.map((label, at) => item(`round series-${at % 8}`, label)),
    ...shapes.map(([style, text]) => item(style, text)),
  );
}

export const cache: View<CacheData> = {
  id: "cache",
  title: "Cache over context",
  wide: true,
  draw(part, host) {
    const charts = h("div", { class: "pair" });
    host.append(h("p", { class: "note" }, "At the end of a call. Held: all its memory. Used: the positions that hold tokens. Formula: by the model's sizes."), charts);
    for (const one of part) charts.append(sizes(one));
  },
};

const SIZES = ["held", "used", "formula"];

function sizes(part: CacheData[0]): HTMLElement {
  const host = h("div", {}, h("h3", {}, name(part.title), " ", badge("measured")));
  const x = [...new Set(part.series.flatMap(({ points }) => points.map(([at]) => at)))].sort((a, b) => a - b);
  if (x.length > 1) drawSizes(part, x, host);
  else host.append(...part.series.map(alone));
  if (part.notes.length) host.append(h("p", { class: "note" }, name(part.notes.join(" "))));
  return host;
}

/** A cache of a single length, in words: a chart would be a point. */
function alone({ label, points }: CacheData[0]["series"][0]): HTMLElement {
  const [positions, ...known] = points[0];
  const rows = SIZES.map((what, at): [string, string, string] => {
    const size = known[at];
    return [what, size === null ? "unknown" : bytes(size, 4), at ? "" : `${label}, ${positions.toLocaleString("en")} positions`];
  });
  return definitions(rows);
}

function drawSizes(part: CacheData[0], x: number[], host: HTMLElement): void {
  const lines = part.series.flatMap(({ label, points }, at): Line[] => {
    const colour = `--series-${at % 8}`;
    const of = (column: 1 | 2 | 3) => {
      const known = new Map(points.map((point) => [point[0], point[column]]));
      return x.map((positions) => known.get(positions) ?? null);
    };
    return [
      { label: "", values: of(1), colour },
      { label: `${label}: held`, values: of(1), colour, points: true, size: 6 },
      { label: "used", values: of(2), colour, dashed: true },
      { label: "formula", values: of(3), colour, points: true, hollow: true, size: 12 },
    ];
  });
  const far = isFar(part.series.flatMap(({ points }) => points.flatMap(([, held, used]) => [held, used ?? held])));
  const has = (column: 2 | 3) => part.series.some(({ points }) => points.some((point) => point[column] !== null));
  chart(host, {
    summary: `${part.title}: bytes held, used and by the formula, by positions.`,
    x,
    lines,
    showX: (value) => value.toLocaleString("en"),
    showY: (value) => bytes(value),
    xLabel: "context",
    counts: true,
    fromZero: !far,
    logarithmic: far,
    logarithmicX: far,
    legend: seriesLegend(part.series.map(({ label }) => label), [
      ["line plain", "held"],
      ...(has(2) ? [["dashed plain", "used"]] : []),
      ...(has(3) ? [["ring", "formula"]] : []),
    ]),
    height: 300,
  });
}

export const calls: View<BreakdownData & { note: string }> = {
  id: "calls",
  title: "Parts of a call",
  wide: true,
  draw(part, host) {
    host.append(h("p", { class: "note" }, part.note, " ", badge("measured")), breakdown(part, "batch × prompt", () => {}));
  },
};
