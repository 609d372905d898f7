// What the machine did meanwhile.

import { chart } from "../chart";
import type { SystemData } from "../data";
import { definitions } from "../definitions";
import { badge, h } from "../dom";
import { bytes, format, significant, time } from "../format";
import type { View } from "../registry";

const SHARED = { showX: (ns: number) => time(ns), xLabel: "time", fromZero: true, height: 180 };
const COLOURS: Record<string, string> = {
  share: "--series-0",
  bytes: "--series-3",
  "bytes/s": "--series-1",
  watt: "--series-4",
  hertz: "--series-5",
};

export const system: View<SystemData> = {
  id: "system",
  title: "System",
  wide: true,
  draw(part, host) {
    const charts = h("div", { class: "pair" });
    host.append(charts, definitions(part.rows));
    if (part.time.length > 1) process(part, charts);
    part.gpus.filter((one) => one.time.length > 1).forEach((one) => gpu(one, charts));
  },
};

/** Where a chart of this title goes, beside the others. */
function titled(charts: HTMLElement, ...title: (string | HTMLElement | null)[]): HTMLElement {
  const host = h("div", {}, h("h3", {}, ...title));
  charts.append(host);
  return host;
}

function process(part: SystemData, charts: HTMLElement): void {
  chart(titled(charts, "Processor cores in use ", badge(part.how)), {
    ...SHARED,
    x: part.time,
    summary: `Cores in use by the process over time, of ${part.core_count}.`,
    lines: [{ label: "cores", values: part.cores, colour: "--series-2", fill: true }],
    showY: (value) => significant(value, 2),
    levels: [{ value: part.core_count, label: `${part.core_count} cores`, colour: "--soft" }],
  });
  chart(titled(charts, "Resident memory of the process"), {
    ...SHARED,
    x: part.time,
    summary: `Resident bytes of the process over time, at most ${bytes(Math.max(...part.rss))}.`,
    lines: [{ label: "resident", values: part.rss, colour: "--series-3", fill: true }],
    showY: (value) => bytes(value),
  });
}

function gpu({ title, unit, time: x, values }: SystemData["gpus"][0], charts: HTMLElement): void {
  const show = (value: number) => format(value, unit);
  const most = Math.max(...values.map((value) => value ?? 0));
  chart(titled(charts, title), {
    ...SHARED,
    x,
    summary: `${title} over time, at most ${show(most)}.`,
    lines: [{ label: title, values, colour: COLOURS[unit], fill: true }],
    showY: show,
  });
}
