// A table that changes while it is read: a row stays the same element, so that focus stays in it.

import { h } from "../dom";

type Cell = HTMLElement | SVGElement | string;

interface Row<Data> {
  data: Data;
  text: string;
  element: HTMLElement;
}

export class Rows<Data extends { key: string }> {
  readonly element: HTMLElement;
  private rows = new Map<string, Row<Data>>();
  private readonly body = h("tbody");
  private readonly empty = h("p", { class: "note" });
  private readonly table: HTMLElement;
  private compare: ((a: Data, b: Data) => number) | null = null;
  private shown: Data[] = [];

  constructor(
    label: string,
    titles: string[],
    private readonly cells: (data: Data) => Cell[],
    /** The column that names the row. */
    private readonly head = 1,
    style = "fleet",
  ) {
    this.table = h(
      "table",
      { class: style, "aria-label": label },
      h("thead", {}, h("tr", {}, ...titles.map((title) => h("th", { scope: "col" }, title)))),
      this.body,
    );
    this.element = h("div", {}, this.table, this.empty);
  }

  sort(compare: ((a: Data, b: Data) => number) | null): void {
    this.compare = compare;
    this.arrange();
  }

  show(all: Data[], empty: string): void {
    const next = new Map<string, Row<Data>>();
    for (const data of all) {
      const text = JSON.stringify(data);
      const row = this.rows.get(data.key);
      next.set(data.key, row?.text === text ? row : { data, text, element: this.filled(data, row?.element) });
    }
    this.rows = next;
    this.shown = all;
    this.table.hidden = !all.length;
    this.empty.textContent = all.length ? "" : empty;
    this.arrange();
  }

  private arrange(): void {
    const order = this.compare ? [...this.shown].sort(this.compare) : this.shown;
    const elements = order.map(({ key }) => this.rows.get(key)!.element);
    // Where they stand as they should nothing is moved: a moved element loses the focus.
    if (elements.length === this.body.childElementCount && elements.every((row, at) => row === this.body.children[at])) return;
    const focused = document.activeElement as HTMLElement | null;
    this.body.replaceChildren(...elements);
    if (focused && this.body.contains(focused)) focused.focus({ preventScroll: true });
  }

  private filled(data: Data, element = h("tr")): HTMLElement {
    const focused = element.contains(document.activeElement);
    element.replaceChildren(
      ...this.cells(data).map((content, at) => {
        const named = at === this.head;
        return h(named ? "th" : "td", named ? { scope: "row" } : {}, content);
      }),
    );
    if (focused) element.querySelector("a")?.focus({ preventScroll: true });
    return element;
  }
}
