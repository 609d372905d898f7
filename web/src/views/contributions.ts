// What adds up to a change, one after the other, until all of it is told.

import type { ContributionsData } from "../data";
import { h, name } from "../dom";
import { format } from "../format";
import type { View } from "../registry";
import { tabs } from "../tabs";

export const contributions: View<ContributionsData> = {
  id: "contributions",
  title: "Where it went",
  wide: true,
  draw(part, host) {
    if (part.length === 1) return host.append(...waterfall(part[0]));
    const made = part.map((one) => ({ title: one.title, make: () => waterfall(one) }));
    host.append(tabs("contributions", "What changed", made));
  },
};

function waterfall(part: ContributionsData[0]): HTMLElement[] {
  const steps = part.bars.map(([label, amount, proven]) => ({ label, amount, proven }));
  if (part.rest) steps.push({ label: part.others, amount: part.rest, proven: null });
  let sum = 0;
  const spans = steps.map(({ amount }) => [sum, (sum += amount)]);
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
      h("b", {}, format(to - from, part.unit)),
    );
  };
  return [
    h("p", { class: "note" }, part.note),
    h(
      "ol",
      { class: "waterfall" },
      ...steps.map(({ label, amount, proven }, at) =>
        row(label, spans[at], amount > 0 ? "slower" : "faster", proven ? "proven" : ""),
      ),
      row(part.whole, spans[spans.length - 1], "whole", ""),
    ),
  ];
}
