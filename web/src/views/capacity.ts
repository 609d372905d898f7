// A capacity plan: settings by workers and rate, the front of tuning, checks, service times.

import { grid, logarithmic, MARGIN } from "../axes";
import { chart } from "../chart";
import type { ChecksData, FrontData, PercentileSeries, ServiceData, SettingsData } from "../data";
import { definitions } from "../definitions";
import { badge, h, name, responsive, scroller, svg } from "../dom";
import { format, significant, tidy, time } from "../format";
import { colourOf, isFar, legendOf, percentileLines } from "../percentiles";
import type { View } from "../registry";
import { Table } from "../table";

const HEIGHT = 340;

export const settings: View<SettingsData> = {
  id: "settings",
  title: "Settings",
  wide: true,
  draw(part, host) {
    const charts = h("div", { class: "pair" });
    host.append(charts);
    if (part.by_workers) {
      const { series, unstable, rate, note } = part.by_workers;
      const title = `Percentiles by workers, at ${significant(rate)} requests/s`;
      curve(charts, title, note, series, unstable, part, part.needed);
    }
    if (part.knees.length) knees(charts, part);
    host.append(new Table(part.table, null).element);
  },
};

function curve(
  parent: HTMLElement,
  title: string,
  note: string,
  series: PercentileSeries[],
  unstable: number[],
  { goals }: SettingsData,
  needed: number | null,
): void {
  const host = h("div", {}, h("h3", {}, name(title), " ", badge("estimated")), h("p", { class: "note" }, name(note)));
  parent.append(host);
  const values = series.flatMap(({ points }) => points.map(([, value]) => value));
  if (!values.length) return host.append(h("p", {}, "The queue grows without end in all of these."));
  const far = isFar(values);
  const { x, lines } = percentileLines(series.map(({ label, fraction, points }) => ({ label, points, colour: colourOf(fraction) })));
  // Settings without figures have their place on the axis all the same.
  const missing = unstable.filter((at) => !x.includes(at));
  const all = [...x, ...missing].sort((a, b) => a - b);
  const place = all.map((at) => (missing.includes(at) ? -1 : x.indexOf(at)));
  const spread = <T>(column: T[]) => place.map((from) => (from < 0 ? null : column[from]));
  chart(host, {
    summary: `${title}: ${series.map(({ label }) => label).join(", ")}.`,
    x: all,
    lines: lines.map((line) => ({ ...line, values: spread(line.values), whiskers: line.whiskers && spread(line.whiskers) })),
    showX: (value) => value.toLocaleString("en"),
    showY: (value) => time(value),
    xLabel: "workers",
    counts: true,
    inset: true,
    headroom: unstable.length > 0,
    verticals: [
      ...(needed !== null ? [{ x: needed, low: null, high: null, label: `needed: ${needed.toLocaleString("en")}`, colour: "--series-6" }] : []),
    ],
    stretches: unstable.length ? [reach(all, unstable)] : [],
    levels: goals
      .filter(({ value }) => far || value < 3 * Math.max(...values))
      .map(({ value, label, fraction }) => ({ value, label, colour: fraction === null ? "--fail" : colourOf(fraction) })),
    logarithmic: far,
    fromZero: !far,
    legend: legendOf(
      series.map(({ label, fraction }) => [label, colourOf(fraction)]),
      lines.some(({ whiskers }) => whiskers?.some(Boolean)) ? [["whisker", "95 % interval"]] : [],
    ),
    height: 300,
  });
}

/** Where the queue grows: the settings without end, up to half way to their neighbours. */
function reach(all: number[], unstable: number[]): { from: number; to: number; label: string } {
  const [first, last] = [Math.min(...unstable), Math.max(...unstable)];
  const [before, after] = [all[all.indexOf(first) - 1], all[all.indexOf(last) + 1]];
  return {
    from: before === undefined ? first : (first + before) / 2,
    to: after === undefined ? last : (last + after) / 2,
    label: "queue grows",
  };
}

function knees(parent: HTMLElement, { knees, rate }: SettingsData): void {
  const host = h("div", {}, h("h3", {}, "Knee by workers ", badge("estimated")), h("p", { class: "note" }, "The highest rate within the goals."));
  parent.append(host);
  const { x, lines } = percentileLines([{ label: "knee", colour: "--series-6", points: knees }]);
  chart(host, {
    summary: "The highest rate within the goals by workers.",
    x,
    lines,
    showX: (value) => value.toLocaleString("en"),
    showY: (value) => significant(value),
    xLabel: "workers",
    counts: true,
    inset: true,
    levels: rate === null ? [] : [{ value: rate, label: `load: ${significant(rate)} requests/s`, colour: "--fail" }],
    fromZero: true,
    legend: legendOf([["knee, requests/s", "--series-6"]], lines.some(({ whiskers }) => whiskers?.some(Boolean)) ? [["whisker", "95 % interval"]] : []),
    height: 300,
  });
}

export const front: View<FrontData> = {
  id: "front",
  title: "Trade-offs",
  wide: true,
  draw(part, host) {
    const said = h("div", { class: "readout note", "aria-live": "polite" }, "\u00a0");
    const frame = h("div", { class: "roofline" });
    const workers = [...new Set(part.points.map((point) => point.workers))].sort((a, b) => a - b);
    if (part.points.length > 1) {
      host.append(
        h("p", { class: "note" }, "Settings that no other beats in knee, latency and workers at once: further right more requests, further down a shorter wait. The number is the largest batch. ", badge("estimated")),
        frame,
        said,
        legendOf(workers.map((number, at) => [`${number.toLocaleString("en")} worker${number === 1 ? "" : "s"}`, `--series-${at % 8}`]), []),
      );
      responsive(frame, (width) => frame.replaceChildren(plane(part.points, workers, width, said)));
    }
    host.append(h("div", { class: "low" }, new Table(part.table, null).element));
  },
};

function plane(points: FrontData["points"], workers: number[], width: number, said: HTMLElement): SVGElement {
  const x = logarithmic(points.map(({ knee }) => knee), MARGIN.left, width - MARGIN.right);
  const y = logarithmic(points.map(({ latency }) => latency), HEIGHT - MARGIN.bottom, MARGIN.top);
  return svg(
    "svg",
    { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "group", "aria-label": `${points.length} settings by knee and latency` },
    ...grid(x, y, width, HEIGHT, "knee, requests/s", "p99", (value) => value.toLocaleString("en"), (value) => tidy(time(value))),
    ...points.map((point) => {
      const text = `${point.text}: knee ${significant(point.knee)} requests/s, p99 ${time(point.latency)}`;
      const tell = () => said.replaceChildren(name(text));
      const [cx, cy] = [x(point.knee), y(point.latency)];
      return svg(
        "g",
        { tabindex: 0, role: "img", "aria-label": text, pointerenter: tell, focus: tell },
        svg("circle", { class: `point drawn-${workers.indexOf(point.workers) % 8}`, cx, cy, r: 7 }),
        svg("text", { class: "batch", x: cx + 10, y: cy - 5 }, String(point.batch)),
        svg("title", {}, text),
      );
    }),
  );
}

export const checks: View<ChecksData> = {
  id: "checks",
  title: "Predicted and measured",
  wide: true,
  draw(part, host) {
    if (part.note) host.append(h("p", { class: "note" }, part.note));
    host.append(comparison(part), h("details", {}, h("summary", {}, "All figures"), new Table(part.table, null).element));
  },
};

const WIDE = 360;

/** Each prediction as a bar of its interval, with the measurement on it, on an axis of its own. */
function comparison({ rows }: ChecksData): HTMLElement {
  const line = (row: ChecksData["rows"][0]) => {
    const known = [...row.predicted, ...row.measured].filter((value): value is number => value !== null);
    const [low, high] = [Math.min(...known) * 0.9, Math.max(...known) * 1.1];
    const x = (value: number) => 6 + ((value - low) / (high - low || 1)) * (WIDE - 12);
    const verdict = row.inside === null ? "" : row.inside ? "inside" : "outside";
    const span = ([, from, to]: typeof row.measured, kind: string) =>
      from !== null && to !== null && svg("line", { class: kind, x1: x(from), x2: x(to), y1: 12, y2: 12 });
    return h(
      "tr",
      { class: row.inside === false ? "fail" : "pass" },
      h("th", { scope: "row" }, name(row.figure), h("span", { class: "note" }, ` at ${row.rate}`)),
      h("td", { class: "number" }, format(row.predicted[0], row.unit)),
      h("td", { class: "number" }, format(row.measured[0], row.unit)),
      h(
        "td",
        { class: "plot" },
        svg(
          "svg",
          { class: `change ${row.inside === false ? "fail" : "pass"}`, viewBox: `0 0 ${WIDE} 24`, width: "100%", height: 24, role: "img", "aria-label": `predicted ${format(row.predicted[0], row.unit)}, measured ${format(row.measured[0], row.unit)}` },
          span(row.predicted, "predicted"),
          span(row.measured, "measured"),
          svg("circle", { class: "dot", cx: x(row.measured[0]), cy: 12, r: 5 }),
          svg("line", { class: "middle", x1: x(row.predicted[0]), x2: x(row.predicted[0]), y1: 4, y2: 20 }),
        ),
      ),
      h("td", {}, h("span", { class: `verdict ${row.inside === false ? "fail" : "pass"}` }, verdict)),
    );
  };
  const table = h(
    "table",
    {},
    h("thead", {}, h("tr", {}, ...["figure", "predicted", "measured", "bar: predicted 95 %, point: measured", "measured is"].map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, ...rows.map(line)),
  );
  return scroller("Predictions beside measurements", table, { class: "changes checks" });
}

export const service: View<ServiceData> = {
  id: "service",
  title: "Service times",
  draw(part, host) {
    host.append(h("p", { class: "note" }, `From ${part.source}. `, badge(part.how)));
    const x = [...new Set(part.points.map(([batch]) => batch))].sort((a, b) => a - b);
    if (x.length) times(part, host);
    const overhead: [string, string, string][] = part.overhead ? [["outside of the batch", time(part.overhead), "of each request"]] : [];
    host.append(definitions([...part.rows, ...overhead]));
  },
};

function times(part: ServiceData, host: HTMLElement): void {
  const rows = [
    ...part.points.map(([batch, value]) => ({ batch, value, median: null as number | null })),
    ...part.medians.map(([batch, median]) => ({ batch, value: null as number | null, median })),
  ].sort((a, b) => a.batch - b.batch);
  chart(host, {
    summary: `Service times of ${part.medians.length} batch sizes.`,
    x: rows.map(({ batch }) => batch),
    lines: [
      { label: "a batch", values: rows.map(({ value }) => value), colour: "--series-0", points: true, faint: true, size: 5 },
      { label: "median", values: rows.map(({ median }) => median), colour: "--series-1", width: 2 },
      { label: "", values: rows.map(({ median }) => median), colour: "--series-1", points: true, size: 7 },
    ],
    showX: (value) => value.toLocaleString("en"),
    showY: (value) => time(value),
    xLabel: "requests of a batch",
    counts: true,
    inset: true,
    fromZero: true,
    legend: legendOf([[`${part.total.toLocaleString("en")} batches`, "--series-0"]], [["line", "median"]]),
    height: 300,
  });
}
