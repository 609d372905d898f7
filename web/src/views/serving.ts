// Serving: levels of load beside each other, and what became of their requests.

import { breakdown } from "../breakdown";
import { chart } from "../chart";
import type { BreakdownData, RatesData } from "../data";
import { badge, h, name } from "../dom";
import { significant, time } from "../format";
import { colourOf, isFar, legendOf, percentileLines } from "../percentiles";
import type { View } from "../registry";
import { Table } from "../table";

export const rates: View<RatesData> = {
  id: "rates",
  title: "Latency over rate",
  wide: true,
  draw(part, host) {
    if (part.charts.length) {
      const beside = h("div", { class: "pair" });
      const left = h("div");
      const right = h("div");
      beside.append(left, right);
      host.append(choice(part, left), beside);
      throughput(part, right);
    }
    if (part.notes.length) host.append(h("p", { class: "note" }, part.notes.join(" ")));
    host.append(new Table(part.levels, null).element);
  },
};

/** The select of what is drawn: latency, the time to the first token and so on. */
function choice(part: RatesData, host: HTMLElement): HTMLElement {
  const select = h(
    "select",
    { change: () => draw() },
    ...part.charts.map(({ title }, at) => h("option", { value: at }, title)),
  ) as HTMLSelectElement;
  function draw(): void {
    host.replaceChildren();
    percentiles(part, part.charts[Number(select.value)], host);
  }
  draw();
  return h("div", { class: "controls" }, h("label", {}, "Time ", select));
}

function percentiles(part: RatesData, one: RatesData["charts"][0], host: HTMLElement): void {
  host.append(h("h3", {}, "Percentiles by offered rate ", badge("measured"), one.controlled.length ? badge("estimated") : ""));
  const { x, lines } = percentileLines([
    ...one.series.map(({ label, fraction, points }) => ({ label, points, colour: colourOf(fraction) })),
    ...(one.controlled.length
      ? [{ label: "estimated", points: one.controlled.map((point) => point.slice(0, 4) as typeof point), colour: "--series-3", unconnected: true }]
      : []),
  ]);
  const values = one.series.flatMap(({ points }) => points.map(([, value]) => value));
  const far = isFar(values);
  const highest = Math.max(...values);
  const rings = one.series.some(({ points }) => points.some((point) => point[4]));
  chart(host, {
    summary: `${one.title} by offered rate: ${one.series.map(({ label }) => label).join(", ")}.`,
    x,
    lines,
    showX: (value) => value.toLocaleString("en"),
    showY: (value) => time(value),
    xLabel: "offered requests/s",
    inset: true,
    verticals: part.knee ? [{ ...part.knee, x: part.knee.rate, label: `capacity: ${part.knee.label}`, colour: "--series-6" }] : [],
    // One far above would press all that is measured into a line at the bottom.
    levels: one.goals
      .filter(({ value }) => far || value < 3 * highest)
      .map(({ value, label, fraction }) => ({ value, label, colour: fraction === null ? "--fail" : colourOf(fraction) })),
    logarithmic: far,
    fromZero: !far,
    legend: legendOf(
      [
        ...one.series.map(({ label, fraction }) => [label, colourOf(fraction)] as [string, string]),
        ...(one.controlled.length ? [["estimated", "--series-3"] as [string, string]] : []),
      ],
      [
        ...(lines.some(({ whiskers }) => whiskers?.some(Boolean)) ? [["whisker", "95 % interval"] as [string, string]] : []),
        ...(rings ? [["ring", "no steady state"] as [string, string]] : []),
      ],
    ),
    height: 320,
  });
}

function throughput({ throughput, knee }: RatesData, host: HTMLElement): void {
  if (!throughput.length) return;
  host.append(h("h3", {}, "Answered by offered rate ", badge("measured")));
  const of = (first: 1 | 4, label: string, colour: string) => ({
    label,
    colour,
    points: throughput
      .filter((row) => row[first] !== null)
      .map((row) => [row[0], row[first], row[first + 1], row[first + 2], row[7]] as [number, number, number | null, number | null, string]),
  });
  const shown = [of(1, "answered", "--series-0"), of(4, "goodput", "--series-2")].filter(({ points }) => points.length);
  const { x, lines } = percentileLines(shown);
  chart(host, {
    summary: "Requests answered a second by offered rate.",
    x,
    lines: [{ label: "offered", values: x, colour: "--soft", dashed: true, width: 1 }, ...lines],
    showX: (value) => value.toLocaleString("en"),
    showY: (value) => significant(value),
    xLabel: "offered requests/s",
    inset: true,
    verticals: knee ? [{ ...knee, x: knee.rate, label: "", colour: "--series-6" }] : [],
    fromZero: true,
    legend: legendOf(
      shown.map(({ label, colour }) => [label === "goodput" ? "within all goals (goodput)" : label, colour]),
      [["dashed plain", "all that were due"]],
    ),
    height: 320,
  });
}

export const fates: View<BreakdownData & { note: string }> = {
  id: "fates",
  title: "What became of requests",
  wide: true,
  draw(part, host) {
    host.append(
      h("p", { class: "note" }, "Every request that was due has one fate, those before and after the steady window too. ", part.note && name(part.note)),
      breakdown(part, "load", () => {}),
    );
  },
};
