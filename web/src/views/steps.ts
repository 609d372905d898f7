// The steps of a loop in order, and what each was for.

import { chart } from "../chart";
import type { StepsData } from "../data";
import { definitions } from "../definitions";
import { h } from "../dom";
import { time } from "../format";
import type { View } from "../registry";

export const steps: View<StepsData> = {
  id: "steps",
  title: "Steps",
  wide: true,
  draw(part, host) {
    const x = part.durations.map((_, at) => at + 1);
    let start = 1;
    const stretches = part.phases.map(([label, number]) => {
      const from = start - 0.5;
      start += number;
      return { from, to: start - 0.5, label };
    });
    host.append(h("h3", {}, "Every step in order"));
    chart(host, {
      summary: `Times of ${x.length} steps in order.`,
      x,
      lines: [
        { label: "took", values: part.durations, colour: "--series-0", points: x.length < 400 },
      ],
      showX: (value) => value.toLocaleString("en"),
      showY: (value) => time(value, 4),
      xLabel: "step",
      stretches: stretches.filter(({ label }) => label !== "bare"),
      fromZero: true,
    });
    host.append(definitions(part.rows));
  },
};
