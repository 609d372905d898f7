// Memory over a step, with the peak and what was alive at it.

import { chart } from "../chart";
import type { MemoryData } from "../data";
import { definitions, stack } from "../definitions";
import { badge, h } from "../dom";
import { bytes, time } from "../format";
import type { View } from "../registry";

export const memory: View<MemoryData> = {
  id: "memory",
  title: "Memory",
  draw(part, host) {
    host.append(h("h3", {}, `Alive at the peak of ${bytes(part.peak, 4)} `, badge(part.how)));
    host.append(
      stack(
        Object.entries(part.parts).sort((a, b) => b[1] - a[1]),
        part.peak,
        (one) => bytes(one),
      ),
    );
    if (part.time.length > 1) {
      // Where weights are most of it, what comes and goes would be a thin line at the top.
      const fromZero = Math.min(...part.live) < part.peak / 2;
      const cut = fromZero ? "" : "the axis does not begin at 0";
      host.append(h("h3", {}, "Bytes of tensors over a step ", h("span", { class: "note" }, cut)));
      chart(host, {
        summary: `Bytes alive over ${time(part.time[part.time.length - 1])}: the peak is ${bytes(part.peak)}, the average ${bytes(part.average)}.`,
        x: part.time,
        lines: [
          {
            label: "alive",
            values: part.live,
            colour: "--series-0",
            fill: fromZero,
            stepped: true,
          },
        ],
        showX: (value) => time(value),
        showY: (value) => bytes(value, 4),
        xLabel: "time",
        levels: [
          { value: part.peak, label: `peak ${bytes(part.peak)}`, colour: "--series-1" },
          { value: part.average, label: `average ${bytes(part.average)}`, colour: "--soft" },
        ],
        fromZero,
      });
    }
    host.append(
      h(
        "details",
        {},
        h("summary", {}, "All figures"),
        definitions(part.rows),
        h("p", { class: "note" }, part.method),
      ),
    );
  },
};
