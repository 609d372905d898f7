// A table of any length: only the rows in view are elements; sorted and filtered in columns.

import { copyButton, csv, markdown, type Sheet } from "./copy";
import type { TableData } from "./data";
import { h, name, scroller } from "./dom";
import { format } from "./format";

const ROW = 30;
const SPARE = 8;
const PRINTED = 50;

/** Called with a row's number where the reader follows its name. */
export type Follow = (row: number) => void;

export class Table {
  readonly element: HTMLElement;
  private order: number[];
  private sorted: { column: number; down: boolean } | null = null;
  private readonly body = h("tbody");
  private readonly said = h("output", { class: "note" });
  private readonly printed = h("p", { class: "printed note" });
  private readonly scroller: HTMLElement;
  private readonly heads: HTMLElement[];
  private readonly lower: string[][];
  private drawn = "";

  constructor(
    private readonly data: TableData,
    private readonly follow: Follow | null,
    /** Returns what shows the timeline where a name is in it, null for other names. */
    private readonly located: (name: string) => (() => void) | null = () => null,
  ) {
    this.order = Array.from({ length: data.rows }, (_, row) => row);
    const texts = data.columns.filter((column) => column.unit === "text");
    this.lower = texts.flatMap(({ values, names }) =>
      [values, ...(names ? [names] : [])].map((all) => all.map((text) => String(text).toLowerCase())),
    );
    this.heads = data.columns.map((column, at) =>
      h(
        "th",
        { scope: "col", class: column.unit, "aria-sort": "none" },
        h("button", { type: "button", click: () => this.sort(at) }, column.title),
      ),
    );
    const table = h(
      "table",
      { "aria-rowcount": data.rows + 1 },
      h("thead", {}, h("tr", { "aria-rowindex": 1 }, ...this.heads)),
      this.body,
    );
    const frame = scroller(`Table of ${data.name}`, table, { scroll: () => this.draw() });
    this.scroller = frame.firstElementChild as HTMLElement;
    const filter = h("input", {
      type: "search",
      placeholder: "part of a name",
      input: () => this.filter(filter.value),
    }) as HTMLInputElement;
    this.element = h(
      "div",
      {},
      h(
        "div",
        { class: "controls" },
        h("label", {}, "Filter ", filter),
        this.said,
        copyButton("Copy as Markdown", () => markdown(this.sheet(true))),
        copyButton("Copy as CSV", () => csv(this.sheet(false))),
      ),
      frame,
      this.printed,
      data.note && h("p", { class: "note" }, data.note),
    );
    new ResizeObserver(() => this.draw()).observe(this.scroller);
    window.addEventListener("beforeprint", () => {
      this.printed.textContent = this.order.length > PRINTED ? `The first ${PRINTED} of ${this.order.length.toLocaleString("en")} rows.` : "";
      this.draw(PRINTED);
    });
    window.addEventListener("afterprint", () => this.draw());
    const first = data.columns.findIndex(({ title }) => title === data.sorted);
    if (first < 0) this.changed();
    else this.sort(first);
  }

  private sort(column: number): void {
    const again = this.sorted?.column === column;
    const numeric = this.data.columns[column].unit !== "text";
    this.sorted = { column, down: again ? !this.sorted!.down : numeric };
    this.heads.forEach((head, at) =>
      head.setAttribute(
        "aria-sort",
        at !== column ? "none" : this.sorted!.down ? "descending" : "ascending",
      ),
    );
    this.arrange();
    this.changed();
  }

  /** What is unknown comes last, whichever way. */
  private arrange(): void {
    if (!this.sorted) return void this.order.sort((a, b) => a - b);
    const { values, unit } = this.data.columns[this.sorted.column];
    const sign = this.sorted.down ? -1 : 1;
    const known = (row: number) => values[row] !== null && values[row] !== "";
    const compare =
      unit === "text"
        ? (a: number, b: number) => collator.compare(values[a] as string, values[b] as string)
        : (a: number, b: number) => (values[a] as number) - (values[b] as number);
    this.order.sort((a, b) =>
      known(a) && known(b)
        ? sign * compare(a, b) || a - b
        : Number(known(b)) - Number(known(a)) || a - b,
    );
  }

  private filter(text: string): void {
    const wanted = text.trim().toLowerCase();
    this.order = [];
    for (let row = 0; row < this.data.rows; row++) {
      if (!wanted || this.lower.some((column) => column[row].includes(wanted)))
        this.order.push(row);
    }
    this.arrange();
    this.changed();
  }

  private changed(): void {
    const { length } = this.order;
    const rows = `${this.data.rows.toLocaleString("en")} row${this.data.rows === 1 ? "" : "s"}`;
    const less = this.data.left
      ? `, without ${this.data.left.toLocaleString("en")} smaller ones`
      : "";
    this.said.textContent =
      (length === this.data.rows ? "" : `${length.toLocaleString("en")} of `) + rows + less;
    this.scroller.scrollTop = 0;
    this.drawn = "";
    this.draw();
  }

  private draw(least = 0): void {
    const seen = Math.max(Math.ceil(this.scroller.clientHeight / ROW), 20);
    const first = least ? 0 : Math.max(0, Math.floor(this.scroller.scrollTop / ROW) - SPARE);
    const last = Math.min(this.order.length, least || first + seen + 2 * SPARE);
    if (this.drawn === `${first} ${last}`) return;
    this.drawn = `${first} ${last}`;
    this.body.replaceChildren(
      space(first),
      ...this.order.slice(first, last).map((row, at) => this.row(row, first + at)),
      space(this.order.length - last),
    );
  }

  private row(row: number, at: number): HTMLElement {
    const cells = this.data.columns.map((column, number) => {
      const value = column.values[row];
      const shown = format(value, column.unit);
      if (number === 0) {
        const { follow } = this;
        const link =
          follow &&
          h("button", { type: "button", class: "link", click: () => follow(row) }, name(shown));
        const whole = column.names?.[row] ?? shown;
        const locate = this.located(whole);
        const label = `${shown} in the timeline`;
        const beside =
          locate && h("button", { type: "button", class: "locate", title: label, "aria-label": label, click: locate }, "⇥");
        return h("th", { scope: "row", title: whole, class: locate ? "locatable" : null }, link ?? name(shown), beside);
      }
      if (column.unit === "text") return h("td", { class: "text", title: shown }, name(shown));
      if (column.unit === "share")
        return h("td", { class: "share" }, ...bar(value as number | null));
      return h("td", { class: "number" }, shown);
    });
    return h("tr", { "aria-rowindex": at + 2, class: at % 2 ? "odd" : null }, ...cells);
  }

  /** What is shown, in its order: Markdown as people read it, CSV with figures in ns, bytes and counts. */
  private sheet(pretty: boolean): Sheet {
    const titles: Record<string, string> = { time: " (ns)", bytes: " (B)" };
    return {
      head: this.data.columns.map(
        ({ title, unit }) => title + (pretty ? "" : (titles[unit] ?? "")),
      ),
      rows: this.order.map((row) =>
        this.data.columns.map(({ values, unit }) =>
          pretty ? format(values[row], unit) : String(values[row] ?? ""),
        ),
      ),
    };
  }
}

const collator = new Intl.Collator("en", { numeric: true });

function space(rows: number): HTMLElement {
  const row = h("tr", { "aria-hidden": "true", class: "space" });
  row.style.height = `${rows * ROW}px`;
  return row;
}

function bar(share: number | null): (HTMLElement | string)[] {
  if (share === null) return [format(null, "share")];
  const filled = h("i");
  filled.style.width = `${Math.min(Math.max(share, 0), 1) * 100}%`;
  return [
    h("span", { class: "meter", "aria-hidden": "true" }, filled),
    h("span", {}, format(share, "share")),
  ];
}
