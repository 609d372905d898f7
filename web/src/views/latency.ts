// Latency: how calls are spread, and every call in order, so that warm-up and drift are seen.

import { chart } from "../chart";
import { copyButton, csv } from "../copy";
import type { LatencyData } from "../data";
import { definitions } from "../definitions";
import { badge, h, responsive } from "../dom";
import { time } from "../format";
import { histogram } from "../histogram";
import type { View } from "../registry";

export const latency: View<LatencyData> = {
  id: "latency",
  title: "Latency",
  draw(part, host) {
    const spread = h("div", { role: "img", "aria-label": part.summary });
    host.append(
      h("h3", {}, "How steady calls are spread ", badge(part.how)),
      spread,
      legend(part),
      h(
        "h3",
        {},
        "Every timed call in order ",
        h("span", { class: "note" }, far(part) ? "on a logarithmic axis" : ""),
      ),
    );
    const steady = part.runs.some((run) => run.samples.length > run.warmup);
    if (steady) responsive(spread, (width) => spread.replaceChildren(histogram(part, width)));
    else spread.replaceChildren("No call after the warm-up.");
    series(part, host);
    host.append(
      h(
        "details",
        {},
        h("summary", {}, "All figures"),
        definitions(part.rows),
        copyButton("Copy calls as CSV", () =>
          csv({ head: ["process", "call", "time (ns)", "warm-up"], rows: calls(part) }),
        ),
      ),
    );
  },
};

/** What the histogram's marks are. */
function legend(part: LatencyData): HTMLElement {
  const item = (style: string, label: string) =>
    h("li", {}, h("span", { class: `swatch ${style}`, "aria-hidden": "true" }), label);
  const { interval, interval_title: title } = part;
  return h(
    "ul",
    { class: "legend" },
    item("series-0", "calls after the warm-up"),
    item("line", `median ${time(part.median, 4)}`),
    interval && item("band", `${title}: ${time(interval[0], 4)} … ${time(interval[1], 4)}`),
    Object.keys(part.percentiles).length > 0 &&
      item("dots", "percentiles: p90 is the time that 90 % of the calls did not exceed"),
  );
}

function series(part: LatencyData, host: HTMLElement): void {
  const total = part.runs.reduce((sum, run) => sum + run.samples.length, 0);
  const x = Array.from({ length: total }, (_, at) => at + 1);
  const values = part.runs.flatMap((run) => run.samples);
  const stretches = [];
  let start = 1;
  for (const [at, run] of part.runs.entries()) {
    const process = part.runs.length > 1 ? ` of process ${at + 1}` : "";
    if (run.warmup) {
      stretches.push({
        from: start - 0.5,
        to: start + run.warmup - 0.5,
        label: `warm-up${process}`,
      });
    }
    start += run.samples.length;
  }
  const warmup = part.runs.reduce((sum, run) => sum + run.warmup, 0);
  chart(host, {
    summary: `Times of ${total} calls in order; the first ${warmup} are warm-up.`,
    x,
    lines: [{ label: "took", values, colour: "--series-0", points: total < 400 }],
    showX: (value) => value.toLocaleString("en"),
    showY: (value) => time(value, 4),
    xLabel: "call",
    counts: true,
    logarithmic: far(part),
    stretches,
    levels: [{ value: part.median, label: `median ${time(part.median)}`, colour: "--series-1" }],
  });
}

/** Whether one call took so long that the others would be a flat line beside it. */
function far({ runs, median }: LatencyData): boolean {
  return runs.some((run) => run.samples.some((sample) => sample > 5 * median));
}

function calls(part: LatencyData): string[][] {
  return part.runs.flatMap((run, process) =>
    run.samples.map((sample, at) => [
      `${process + 1}`,
      `${at + 1}`,
      `${sample}`,
      at < run.warmup ? "yes" : "",
    ]),
  );
}
