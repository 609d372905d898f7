// What the machine did meanwhile.

import { chart } from "../chart";
import type { SystemData } from "../data";
import { definitions } from "../definitions";
import { badge, h } from "../dom";
import { bytes, significant, time } from "../format";
import type { View } from "../registry";

export const system: View<SystemData> = {
  id: "system",
  title: "System",
  draw(part, host) {
    if (part.time.length > 1) {
      const shared = {
        x: part.time,
        showX: (value: number) => time(value),
        xLabel: "time",
        fromZero: true,
        height: 180,
      };
      host.append(h("h3", {}, "Processor cores in use ", badge(part.how)));
      chart(host, {
        ...shared,
        summary: `Cores in use by the process over time, of ${part.core_count}.`,
        lines: [{ label: "cores", values: part.cores, colour: "--series-2", fill: true }],
        showY: (value) => significant(value, 2),
        levels: [{ value: part.core_count, label: `${part.core_count} cores`, colour: "--soft" }],
      });
      host.append(h("h3", {}, "Resident memory of the process"));
      chart(host, {
        ...shared,
        summary: `Resident bytes of the process over time, at most ${bytes(Math.max(...part.rss))}.`,
        lines: [{ label: "resident", values: part.rss, colour: "--series-3", fill: true }],
        showY: (value) => bytes(value),
      });
    }
    host.append(definitions(part.rows));
  },
};
