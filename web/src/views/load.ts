// One level of load: over time, its distribution, every request, gaps between tokens, the server.

import { chart } from "../chart";
import type { GapsData, OverTimeData, RequestsData, ServerData, TailData } from "../data";
import { definitions } from "../definitions";
import { badge, h, name } from "../dom";
import { format, significant, time } from "../format";
import { isFar } from "../percentiles";
import type { View } from "../registry";
import { scatter } from "../scatter";
import { Table } from "../table";
import { tail } from "../tail";

const ZOOM = "Drag to zoom in, double click to zoom out.";
const OVER_TIME = { showX: (ns: number) => time(ns), xLabel: "time" };

function titled(parent: HTMLElement, ...title: (string | HTMLElement | null)[]): HTMLElement {
  const host = h("div", {}, h("h3", {}, ...title));
  parent.append(host);
  return host;
}

/** Bins stand at their middles: with a few, the warm-up would end left of the axis. */
const ended = (values: (number | null)[]): (number | null)[] => [null, ...values, null];

export const overTime: View<OverTimeData> = {
  id: "over_time",
  title: "Latency over time",
  wide: true,
  draw(part, host) {
    host.append(h("p", { class: "note" }, "By when requests were due. ", ZOOM));
    const known = [...part.median, ...part.slowest].filter((value): value is number => value !== null);
    const far = isFar(known);
    const highest = Math.max(...known, 1);
    const x = [0, ...part.time, (part.time.at(-1) ?? 0) + (part.time[0] ?? 0)];
    const shared = { ...OVER_TIME, x, stretches: part.stretches, legend: true, headroom: true, sync: "over time" };
    chart(titled(host, "Latency ", badge("measured")), {
      ...shared,
      summary: "Latency over time: median, 90 % and the slowest.",
      lines: [
        { label: "slowest", values: ended(part.slowest), colour: "--series-1", width: 1 },
        { label: "90 % within", values: ended(part.p90), colour: "--series-4" },
        { label: "median", values: ended(part.median), colour: "--series-0", width: 2 },
        ...(part.closed ? [] : [{ label: "median from sent", values: ended(part.service), colour: "--soft", dashed: true }]),
      ],
      showY: (value) => time(value),
      levels: part.goals.filter(({ value }) => far || value < 3 * highest).map((goal) => ({ ...goal, colour: "--fail" })),
      logarithmic: far,
      fromZero: !far,
      height: 300,
    });
    const beside = h("div", { class: "pair" });
    host.append(beside);
    chart(titled(beside, "Requests a second"), {
      ...shared,
      summary: "Requests due and answered a second over time.",
      lines: [
        { label: "due", values: ended(part.due), colour: "--soft", dashed: true },
        { label: "answered", values: ended(part.answered), colour: "--series-2" },
      ],
      showY: (value) => significant(value),
      fromZero: true,
      height: 200,
    });
    chart(titled(beside, "Requests due and not yet answered ", h("span", { class: "note" }, "the most at a time")), {
      ...shared,
      legend: false,
      summary: "Requests in flight over time.",
      lines: [{ label: "waiting", values: ended(part.in_flight), colour: "--series-3", fill: true, stepped: true }],
      showY: (value) => value.toLocaleString("en"),
      fromZero: true,
      height: 200,
    });
  },
};

export const distribution: View<TailData & { count: number }> = {
  id: "distribution",
  title: "Distribution of latency",
  wide: true,
  draw(part, host) {
    host.append(
      h(
        "p",
        { class: "note" },
        `Of ${part.count.toLocaleString("en")} requests in the steady window. To the right each step is ten times fewer requests: a tenth takes p90 or longer, a hundredth p99. `,
        badge("measured"),
      ),
    );
    tail(host, part, `Cumulative distribution: ${part.series.map(({ label }) => label).join(", ")}.`);
    if (part.notes.length) host.append(h("p", { class: "note" }, name(part.notes.join(" "))));
  },
};

export const requests: View<RequestsData> = {
  id: "requests",
  title: "Requests",
  wide: true,
  draw(part, host) {
    const drawn = part.series.reduce((sum, { x }) => sum + x.length, 0);
    const thinned = part.series.some(({ count }) => count.length);
    const number = part.total.toLocaleString("en");
    host.append(
      h(
        "p",
        { class: "note" },
        thinned
          ? `${number} requests as ${drawn.toLocaleString("en")} points: each is the slowest of those beside it, and the fastest of every moment are drawn too. `
          : `Each of ${number} requests is a point. `,
        ZOOM,
      ),
    );
    scatter(host, {
      ...part,
      summary: `Latency of ${number} requests by when they were due.`,
      what: "latency",
      when: "due at",
    });
    host.append(h("h3", {}, "The slowest and the unanswered"), h("div", { class: "low" }, new Table(part.table, null).element));
  },
};

export const gaps: View<GapsData> = {
  id: "gaps",
  title: "Between tokens",
  wide: true,
  draw(part, host) {
    if (part.notes.length) host.append(h("p", { class: "note" }, part.notes.join(" ")));
    const beside = h("div", { class: "pair" });
    host.append(beside);
    tail(titled(beside, "Distribution ", badge("measured")), part, "Cumulative distribution of the times between tokens.");
    scatter(titled(beside, "Every gap, by when it ended"), {
      summary: `${part.total.toLocaleString("en")} gaps between tokens by when they ended.`,
      what: "gap",
      when: "ended at",
      series: [part.gaps],
      unanswered: [],
      stretches: part.stretches,
      goals: [],
    });
  },
};

const COLOURS: Partial<Record<string, string>> = { number: "--series-2", bytes: "--series-3", "bytes/s": "--series-1", share: "--series-4" };

export const server: View<ServerData> = {
  id: "server",
  title: "The server meanwhile",
  wide: true,
  draw(part, host) {
    const charts = h("div", { class: "pair" });
    host.append(h("p", { class: "note" }, "Readings of the server's processes beside the requests."), charts, definitions(part.rows));
    const shared = { ...OVER_TIME, fromZero: true, height: 180, headroom: true, sync: "server", stretches: part.stretches };
    if (part.requests)
      chart(titled(charts, "Requests answered a second"), {
        ...shared,
        x: part.requests.time,
        summary: "Requests answered a second over time.",
        lines: [
          { label: "due", values: part.requests.due, colour: "--soft", dashed: true },
          { label: "answered", values: part.requests.answered, colour: "--series-0" },
        ],
        showY: (value) => significant(value),
      });
    for (const { title, unit, values, levels } of part.series)
      chart(titled(charts, title, " ", badge("measured")), {
        ...shared,
        x: part.time,
        summary: `${title} over time, at most ${format(Math.max(...values), unit)}.`,
        lines: [{ label: title.toLowerCase(), values, colour: COLOURS[unit] ?? "--series-5", fill: true }],
        showY: (value) => format(value, unit),
        levels: levels.map(([value, label]) => ({ value, label, colour: "--soft" })),
      });
  },
};
