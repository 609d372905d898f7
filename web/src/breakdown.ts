// Where time or requests went, a line for each of what is compared: a bar of parts, and every part's figure.

import type { BreakdownData } from "./data";
import { h, name, scroller } from "./dom";
import { format, share as shareText, type Unit } from "./format";

type Row = BreakdownData["rows"][0];

/** Return the table; `choose` is called with the option that a row leads to. */
export function breakdown(
  part: BreakdownData,
  of: string,
  choose: (option: number) => void,
): HTMLElement {
  const shown = part.parts.map((_, at) => at).filter((at) => part.rows.some((row) => row.amounts[at] > 0));
  const swatch = (at: number) => h("span", { class: `swatch time-${at}`, "aria-hidden": "true" });
  const head = [
    h("th", { scope: "col", class: "text" }, of),
    h("th", { scope: "col", class: "wider" }, h("span", { class: "off-screen" }, "parts")),
    h("th", { scope: "col", class: "number" }, part.whole ?? "window"),
    ...shown.map((at) => h("th", { scope: "col", class: "number" }, swatch(at), part.parts[at])),
    ...part.more.map((title) => h("th", { scope: "col", class: "number" }, title)),
  ];
  const table = h(
    "table",
    {},
    h("thead", {}, h("tr", {}, ...head)),
    h("tbody", {}, ...part.rows.map((row) => line(row, shown, part.unit ?? "time", choose))),
  );
  return scroller(`${part.unit ? "Counts" : "Time"} by ${of}`, table, { class: "breakdown" });
}

function line(row: Row, shown: number[], unit: Unit, choose: (option: number) => void): HTMLElement {
  const { option } = row;
  const label =
    option === null
      ? name(row.name)
      : h("button", { type: "button", class: "link", click: () => choose(option) }, name(row.name));
  const share = (at: number) => (row.whole ? row.amounts[at] / row.whole : 0);
  const segment = (at: number) => {
    const element = h("span", { class: `segment time-${at}` });
    element.style.flexGrow = String(Math.max(share(at), 0));
    return element;
  };
  const cell = (at: number) =>
    row.amounts[at]
      ? h("td", { class: "number" }, h("b", {}, shareText(share(at))), " ", h("div", { class: "note" }, format(row.amounts[at], unit)))
      : h("td", { class: "number" }, "–");
  return h(
    "tr",
    { class: row.level ? "inner" : null },
    h("th", { scope: "row", title: row.name }, label, row.note && h("span", { class: "how" }, row.note)),
    h("td", { class: "wider" }, h("div", { class: "bar", "aria-hidden": "true" }, ...shown.map(segment))),
    h("td", { class: "number" }, format(row.whole, unit)),
    ...shown.map(cell),
    ...row.more.map((text) => h("td", { class: "number" }, text)),
  );
}
