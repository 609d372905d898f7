// Rows of a label, a figure and what to know about it; bars of parts of a whole.

import type { Parts, Rows } from "./data";
import { h, name } from "./dom";
import { share } from "./format";

export function definitions(rows: Rows): HTMLElement {
  return h(
    "dl",
    { class: "definitions" },
    ...rows.map(([label, value, note]) =>
      h(
        "div",
        {},
        h("dt", {}, name(label)),
        h(
          "dd",
          {},
          name(value, { class: "value" }),
          note && " ",
          note && name(note, { class: "note" }),
        ),
      ),
    ),
  );
}

/** A bar of parts with its legend, which says in words all that the bar shows; `style` by number. */
export function stack(
  parts: Parts,
  whole: number,
  show: (amount: number) => string,
  style = (at: number) => `series-${at % 8}`,
): HTMLElement {
  const shares = parts.map(([, amount]) => (whole ? amount / whole : 0));
  const segment = (at: number) => {
    const element = h("span", { class: `segment ${style(at)}` });
    element.style.flexGrow = String(Math.max(shares[at], 0));
    return element;
  };
  return h(
    "div",
    { class: "stack" },
    h("div", { class: "bar", "aria-hidden": "true" }, ...parts.map((_, at) => segment(at))),
    h(
      "ul",
      { class: "legend" },
      ...parts.map(([label, amount], at) =>
        h(
          "li",
          {},
          h("span", { class: `swatch ${style(at)}`, "aria-hidden": "true" }),
          name(label),
          " ",
          h("b", {}, show(amount)),
          " ",
          h("span", { class: "note" }, share(shares[at])),
        ),
      ),
    ),
  );
}
