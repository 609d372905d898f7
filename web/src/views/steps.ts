// The steps of a loop in order, and what each was for.

import { chart } from "../chart";
import type { Parts, StepsData } from "../data";
import { definitions, stack } from "../definitions";
import { h } from "../dom";
import { time } from "../format";
import type { View } from "../registry";

const middle = (values: number[]) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

export const steps: View<StepsData> = {
  id: "steps",
  title: "Steps",
  wide: true,
  draw(part, host) {
    const x = part.durations.map((_, at) => at + 1);
    const spent = new Map<string, number>();
    const colours: string[] = [];
    let start = 1;
    const marks = part.phases.map(([label, number, took]) => {
      if (!spent.has(label)) colours.push(`phase-${spent.size % 7}`);
      spent.set(label, (spent.get(label) ?? 0) + took);
      const from = start - 0.5;
      start += number;
      return { from, to: start - 0.5, label };
    });
    const parts: Parts = [...spent];
    const whole = parts.reduce((sum, [, took]) => sum + took, 0);
    // A first step of seconds would press all others flat.
    const far = Math.max(...part.durations) > 5 * middle(part.durations);
    host.append(
      h("h3", {}, "Every step in order ", h("span", { class: "note" }, far ? "on a logarithmic axis" : "")),
      h("p", { class: "note" }, "Above the steps: what torchgauge did in them. Drag to zoom in, double click to zoom out."),
    );
    chart(host, {
      summary: `Times of ${x.length} steps in order.`,
      x,
      lines: [
        { label: "took", values: part.durations, colour: "--series-0", points: x.length < 400 },
      ],
      showX: (value) => value.toLocaleString("en"),
      showY: (value) => time(value, 4),
      xLabel: "step",
      counts: true,
      marks,
      fromZero: !far,
      logarithmic: far,
    });
    host.append(
      h("h3", {}, "Time by what was done"),
      stack(parts, whole, time, (at) => colours[at]),
      definitions(part.rows),
    );
  },
};
