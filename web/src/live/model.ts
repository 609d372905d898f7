// One model: a figure over all runs, its newest runs with what changed, and the runs themselves.

import { chart } from "../chart";
import { h, name, scroller } from "../dom";
import { format } from "../format";
import { drawn } from "../views/trend";
import type { Model, Trend } from "./data";
import { Poll } from "./source";
import { alertList, failure, moment, number, since, stateBadge } from "./words";

const EVERY = 3; // seconds

export function model(host: HTMLElement, key: string): () => void {
  const query = { target: key, series: "" };
  let metric = "";
  let all = false;
  let shown = "";
  let trend: Poll<Trend> | null = null;
  let charts = new AbortController();
  const title = h("h1", {}, "…");
  const facts = h("p", { class: "facts-line" });
  const alerts = h("div");
  const trouble = h("div");
  const seriesSelect = h("select", { change: () => choose(seriesSelect.value) }) as HTMLSelectElement;
  const metricSelect = h("select", { change: () => follow(metricSelect.value) }) as HTMLSelectElement;
  const span = h("fieldset", { class: "segments" }, h("legend", { class: "off-screen" }, "Runs that are drawn"));
  const picture = h("div", { class: "picture" });
  const runs = h("div");
  const trendSection = h(
    "section",
    { class: "wide", "aria-labelledby": "trend-title" },
    h("h2", { id: "trend-title" }, "Trend"),
    h("div", { class: "controls" }, h("label", {}, "Series ", seriesSelect), h("label", {}, "Figure ", metricSelect), span),
    trouble,
    picture,
  );
  host.append(
    h("section", { class: "wide", "aria-label": "Model" }, title, facts, alerts),
    trendSection,
    h("section", { class: "wide", "aria-labelledby": "runs-title" }, h("h2", { id: "runs-title" }, "Newest runs"), runs),
  );
  const fail = (error: Parameters<typeof failure>[0]) => trouble.replaceChildren(failure(error));
  const poll = new Poll<Model>("/api/target", { ...query }, EVERY, draw, fail);

  function draw(answer: Model): void {
    trouble.replaceChildren();
    title.replaceChildren(name(answer.target));
    const chosen = answer.series.find((one) => one.key === answer.chosen)!;
    document.title = `${answer.target} – torchgauge`;
    facts.replaceChildren(
      stateBadge(answer.state),
      ` ${number(answer.runs)} runs in ${answer.series.length} series · `,
      name(chosen.label),
      ` · machine ${chosen.machine} · newest `,
      since(chosen.newest),
    );
    alerts.replaceChildren(alertList(answer.state) ?? "");
    options(seriesSelect, answer.series.map(({ key, label, runs, workload }) => [key, `${label} · ${workload} (${number(runs)} runs)`]), answer.chosen);
    query.series = answer.chosen;
    const wanted = answer.metrics.includes(metric) ? metric : answer.metrics[0];
    options(metricSelect, answer.metrics.map((one) => [one, one]), wanted);
    runs.replaceChildren(runTable(answer, chosen.runs));
    if (wanted !== metric || !trend) follow(wanted);
    performance.mark("model");
  }

  /** Ask for the runs of another series. */
  function choose(series: string): void {
    query.series = series;
    metric = "";
    poll.now({ ...query });
  }

  /** Draw another figure, and each new run of it. */
  function follow(wanted: string): void {
    metric = wanted;
    shown = "";
    trend?.end();
    if (wanted === undefined) return picture.replaceChildren(h("p", { class: "note" }, "The runs have no figures."));
    trend = new Poll<Trend>("/api/trend", { ...query, metric: wanted }, EVERY, drawTrend, fail);
  }

  function drawTrend(answer: Trend): void {
    const text = JSON.stringify([answer, all]);
    if (text === shown) return;
    shown = text;
    segments(answer);
    charts.abort();
    charts = new AbortController();
    picture.replaceChildren();
    if (all && answer.first) drawAll(answer);
    else for (const one of answer.series) picture.append(...drawn(one, answer.confirm, answer.first, charts.signal));
    if (!all && answer.first) {
      picture.append(h("p", { class: "note" }, `Changes are searched in the newest ${number(answer.newest.length)} runs.`));
    }
    if (answer.pending) picture.append(h("p", { class: "note", role: "status" }, "Changes are being searched …"));
    performance.mark("trend");
  }

  function segments(answer: Trend): void {
    span.hidden = !answer.first;
    const button = (label: string, wanted: boolean) =>
      h(
        "button",
        {
          type: "button",
          "aria-pressed": String(all === wanted),
          click: () => {
            all = wanted;
            drawTrend(answer);
            span.querySelector<HTMLElement>('[aria-pressed="true"]')?.focus();
          },
        },
        label,
      );
    span.replaceChildren(
      span.firstElementChild!,
      button(`Newest ${number(answer.newest.length)}`, false),
      button(`All ${number(answer.runs)}`, true),
    );
  }

  function drawAll({ at, values, metric, unit, runs, first, series }: Trend): void {
    const host = h("div");
    const verticals = series.flatMap(({ changes }) =>
      changes.map(({ from, to, size, worse }) => ({
        x: first + to + 1,
        low: first + from + 1,
        high: first + to + 1,
        label: size,
        colour: worse ? "--fail" : "--series-2",
      })),
    );
    picture.append(h("h3", {}, name(metric), " ", h("span", { class: "note" }, `${number(runs)} runs`)), host);
    chart(host, {
      summary: `${metric} over ${runs} runs.`,
      x: at,
      lines: [{ label: metric, values, colour: "--series-0", width: 1.2 }],
      showX: (value) => (Number.isInteger(value) ? number(value) : ""),
      showY: (value) => format(value, unit, 4),
      xLabel: "run",
      counts: true,
      verticals,
      height: 320,
      until: charts.signal,
    });
    if (at.length < runs) {
      const note = `${number(at.length)} of ${number(runs)} runs are drawn: the lowest and the highest of each stretch among them.`;
      picture.append(h("p", { class: "note" }, note));
    }
  }

  return () => {
    poll.end();
    trend?.end();
    charts.abort();
  };
}

/** Fill a select, if that changes it: an open one would close. */
function options(select: HTMLSelectElement, wanted: string[][], chosen: string): void {
  const text = JSON.stringify(wanted);
  if (select.dataset.options !== text) {
    select.replaceChildren(...wanted.map(([value, label]) => h("option", { value }, label)));
    select.dataset.options = text;
  }
  select.value = chosen;
  select.disabled = wanted.length < 2;
}

function runTable({ newest }: Model, total: number): HTMLElement {
  const rows = newest.map((run) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("a", { href: `/run/${run.uuid}` }, moment(run.created))),
      h("td", {}, h("code", {}, name(run.commit || "–")), run.dirty ? h("span", { class: "note" }, " + changes") : ""),
      h("td", { class: "message", title: run.message }, name(run.message)),
      h("td", {}, name(run.torch)),
    ),
  );
  const table = h(
    "table",
    {},
    h("thead", {}, h("tr", {}, ...["profile", "commit", "message", "torch"].map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, ...rows),
  );
  const note = newest.length < total ? `The newest ${number(newest.length)} of ${number(total)} runs of this series.` : "";
  return h("div", {}, scroller("Table of the newest runs", table, { class: "runs" }), h("p", { class: "note" }, note));
}
