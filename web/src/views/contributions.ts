// What the layers add to the step's change, one after the other, until all of it is told.

import type { ContributionsData } from "../data";
import { h, name } from "../dom";
import { format } from "../format";
import type { View } from "../registry";

export const contributions: View<ContributionsData> = {
  id: "contributions",
  title: "Where it went",
  wide: true,
  draw(part, host) {
    const steps = [...part.bars.map(([label, ns, proven]) => ({ label, ns, proven }))];
    const rest = `${part.others} other layers, and time in no layer`;
    if (part.rest) steps.push({ label: rest, ns: part.rest, proven: null });
    let sum = 0;
    const spans = steps.map(({ ns }) => [sum, (sum += ns)]);
    spans.push([0, part.total]);
    const low = Math.min(0, ...spans.flat());
    const high = Math.max(0, ...spans.flat());
    const width = high - low || 1;
    const row = (label: string, [from, to]: number[], style: string, note: string) => {
      const bar = h("i", { class: style });
      bar.style.left = `${((Math.min(from, to) - low) / width) * 100}%`;
      bar.style.width = `${(Math.abs(to - from) / width) * 100}%`;
      return h(
        "li",
        {},
        h("span", { class: "label" }, name(label), note && h("span", { class: "note" }, ` ${note}`)),
        h("span", { class: "track", "aria-hidden": "true" }, bar),
        h("b", {}, format(to - from, "delta")),
      );
    };
    host.append(
      h("p", { class: "note" }, `A step's own time by layer. ${sentence(part.tested)}`),
      h(
        "ol",
        { class: "waterfall" },
        ...steps.map(({ label, ns, proven }, at) =>
          row(label, spans[at], ns > 0 ? "slower" : "faster", proven ? "proven" : ""),
        ),
        row("the step as a whole", spans[spans.length - 1], "whole", ""),
      ),
    );
  },
};

function sentence(text: string): string {
  return text && `${text[0].toUpperCase()}${text.slice(1)}.`;
}
