// Memory over a step: what was alive at the peak, where the peak was, and each part over time.

import { chart, type Line } from "../chart";
import type { MemoryData } from "../data";
import { definitions, stack } from "../definitions";
import { badge, h, name } from "../dom";
import { bytes, format, time } from "../format";
import type { Context, View } from "../registry";

export const memory: View<MemoryData> = {
  id: "memory",
  title: "Memory",
  draw(part, host, context) {
    // A part has one colour in both pictures.
    const shown = Object.entries(part.parts).sort((a, b) => b[1] - a[1]);
    const colour = (label: string) => part.order.indexOf(label) % 8;
    host.append(
      h("h3", {}, `Alive at the peak of ${bytes(part.peak, 4)} `, badge(part.how)),
      where(part, context),
      stack(shown, part.peak, (one) => bytes(one), (at) => `series-${colour(shown[at][0])}`),
    );
    if (part.time.length > 1) overTime(part, host, colour);
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

/** What ran when the peak was reached. */
function where({ peak_at }: MemoryData, context: Context): HTMLElement | "" {
  if (!peak_at) return "";
  const { layer, node, operator, phase } = peak_at;
  const open = (event: Event) => {
    event.preventDefault();
    context.open(node!);
  };
  const link = h("a", { href: node === null ? null : context.address(node), click: open }, name(layer));
  const said = [
    layer ? ["in layer ", node === null ? name(layer) : link] : [],
    operator ? ["in ", name(operator)] : [],
    phase ? [`during ${phase}`] : [],
  ].filter((words) => words.length);
  return h("p", {}, "Reached ", ...said.flatMap((words, at) => (at ? [", ", ...words] : words)), ".");
}

function overTime(part: MemoryData, host: HTMLElement, colour: (label: string) => number): void {
  const stacked = part.stacked.length > 0;
  // Where weights are most of it, what comes and goes would be a thin line at the top.
  const fromZero = stacked || Math.min(...part.live) < part.peak / 2;
  const cut = fromZero ? "" : "the axis does not begin at 0";
  const lines: Line[] = stacked
    ? part.stacked.map(([label, values]) => ({
        label,
        values,
        colour: `--series-${colour(label)}`,
        stepped: true,
      }))
    : [{ label: "alive", values: part.live, colour: "--series-0", fill: fromZero, stepped: true }];
  host.append(h("h3", {}, "Bytes of tensors over a step ", h("span", { class: "note" }, cut)));
  const moment = (value: number) => (part.changes ? value.toLocaleString("en-US") : time(value));
  const average = part.average === null ? "" : `, the average ${format(part.average, "bytes")}`;
  const length = moment(part.time[part.time.length - 1]);
  chart(host, {
    summary: `Bytes alive over ${length}${part.changes ? " allocations and frees" : ""}: the peak is ${bytes(part.peak)}${average}.`,
    x: part.time,
    lines,
    stacked,
    legend: stacked,
    showX: moment,
    showY: (value) => bytes(value, 4),
    xLabel: part.changes ? "allocations and frees" : "time",
    levels: [
      { value: part.peak, label: `peak ${bytes(part.peak)}`, colour: "--text" },
      ...(part.average === null
        ? []
        : [{ value: part.average, label: `average ${bytes(part.average)}`, colour: "--text" }]),
    ],
    fromZero,
  });
}
