// Advice: what was tried, what held, and the lines that apply it.

import type { AdviceData } from "../data";
import { badge, h, name, svg } from "../dom";
import { format, percent, significant, time } from "../format";
import type { View } from "../registry";

type Row = AdviceData["rows"][0];
type Gain = Pick<Row, "speed_up" | "low" | "high">;

const WIDTH = 220;
const HEIGHT = 24;
const EDGE = 8;
const GROUPS: [outcome: string, title: string][] = [
  ["accepted", "Confirmed on fresh samples"],
  ["undecided", "Tried and undecided"],
  ["rejected", "Tried and rejected"],
  ["failed", "Tried and failed"],
  ["untried", "Not tried here"],
];

export const advice: View<AdviceData> = {
  id: "advice",
  title: "Candidates",
  wide: true,
  draw(part, host) {
    const reach = span([...part.rows, ...part.combinations]);
    host.append(h("p", {}, name(part.headline)));
    if (part.best) host.append(best(part.best));
    for (const [outcome, title] of GROUPS) {
      const rows = part.rows.filter((row) => row.outcome === outcome);
      if (!rows.length) continue;
      const list = h("ul", { class: "candidates" }, ...rows.map((row) => candidate(row, reach)));
      host.append(h("h3", {}, title), outcome === "untried" ? folded(rows.length, list) : list);
    }
    if (part.combinations.length) host.append(h("h3", {}, "Together"), combined(part, reach));
  },
};

function folded(count: number, list: HTMLElement): HTMLElement {
  return h("details", {}, h("summary", {}, `${count} candidate${count === 1 ? "" : "s"} and why`), list);
}

function best(found: NonNullable<AdviceData["best"]>): HTMLElement {
  const all = [found.environment, found.code].filter(Boolean).join("\n");
  return h(
    "div",
    { class: "candidate" },
    h("b", {}, "Use ", name(found.candidates.join(" + "))),
    " ",
    said(found),
    all && h("pre", {}, h("code", {}, all)),
  );
}

function candidate(row: Row, reach: number): HTMLElement {
  const notes = [
    row.reason,
    row.output,
    row.memory && `memory ${row.memory}`,
    row.one_off !== null && `once ${time(row.one_off)}`,
    row.break_even !== null && `saved after ${row.break_even.toLocaleString("en")} calls`,
    ...row.assumed.map(([label, value, by]) => `${label} ${value} (${by})`),
  ];
  const layers = row.layers.flatMap(({ path, change, saved }, at) => [
    at ? "; " : "",
    name(path || "the model itself"),
    ` ${signed(change)}${saved === null ? "" : ` (${format(-saved, "delta")})`}`,
  ]);
  return h(
    "li",
    { class: "candidate" },
    h(
      "div",
      { class: "controls" },
      h("b", {}, name(row.title)),
      h("code", {}, row.id),
      badge(row.outcome === "failed" && row.speed_up === null ? "" : (row.how ?? "")),
      plot(row, reach),
      said(row),
    ),
    h("p", { class: "note" }, ...apart(notes)),
    layers.length > 0 && h("p", { class: "note" }, "Layers: ", ...layers),
    row.code && h("pre", {}, h("code", {}, row.code)),
  );
}

/** Texts in one sentence, so that marks in one do not turn the next around. */
function apart(texts: (string | false | null)[]): (string | HTMLElement)[] {
  const kept = texts.filter((text): text is string => !!text).map((text) => text.replace(/\.$/, ""));
  return kept.flatMap((text, at) => (at ? ["; ", name(text)] : [name(text)]));
}

/** "1.42× as fast (1.38 … 1.46), 55.6 → 39.1 ms". */
function said(gain: Gain & { before: number | null; after: number | null }): HTMLElement | null {
  if (gain.speed_up === null) return null;
  const reach =
    gain.low === null ? "" : ` (${significant(gain.low)} … ${significant(gain.high ?? gain.low)})`;
  const times = gain.before === null ? "" : `, ${time(gain.before)} → ${time(gain.after ?? 0)}`;
  return h("span", {}, `${significant(gain.speed_up)}× as fast${reach}${times}`);
}

function signed(change: number): string {
  return (change < 0 ? "−" : "+") + percent(Math.abs(change));
}

function span(gains: Gain[]): number {
  const logs = gains
    .flatMap(({ low, high, speed_up }) => [low, high, speed_up])
    .filter((one): one is number => one !== null && one > 0)
    .map((one) => Math.abs(Math.log2(one)));
  return Math.min(3, Math.max(0.1, ...logs) * 1.05);
}

/** The speed-up on a logarithmic axis: 1× in the middle, faster to the right. */
function plot({ speed_up, low, high }: Gain, reach: number): SVGElement | null {
  if (speed_up === null) return null;
  const x = (value: number) => {
    const at = Math.max(-reach, Math.min(reach, Math.log2(value)));
    return WIDTH / 2 + (at / reach) * (WIDTH / 2 - EDGE);
  };
  const y = HEIGHT / 2;
  const style = (low ?? 1) > 1 ? "better" : (high ?? 1) < 1 ? "worse" : "inconclusive";
  return svg(
    "svg",
    { width: WIDTH, height: HEIGHT, "aria-hidden": "true", class: `change ${style}` },
    svg("line", { class: "axis", x1: x(1), x2: x(1), y1: 2, y2: HEIGHT - 2 }),
    low !== null &&
      high !== null &&
      svg("line", { class: "reach", x1: x(low), x2: x(high), y1: y, y2: y }),
    svg("circle", { class: "dot", cx: x(speed_up), cy: y, r: 5 }),
  );
}

function combined(part: AdviceData, reach: number): HTMLElement {
  return h(
    "ul",
    { class: "candidates" },
    ...part.combinations.map((one) =>
      h(
        "li",
        { class: "candidate" },
        h(
          "div",
          { class: "controls" },
          h("b", {}, name(one.candidates.join(" + "))),
          one.against.length > 0 && h("span", { class: "note" }, name(`against ${one.against.join(" + ")}`)),
          plot(one, reach),
          said(one),
          h("span", { class: "verdict" }, one.outcome),
        ),
        h("p", { class: "note" }, name(one.reason)),
      ),
    ),
  );
}
