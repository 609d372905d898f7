// The tables: layers, operators, kernels, buckets, lines; one at a time.

import type { TableData } from "../data";
import { h } from "../dom";
import type { View } from "../registry";
import { Table } from "../table";

export const tables: View<TableData[]> = {
  id: "tables",
  title: "Tables",
  wide: true,
  draw(part, host, context) {
    const tabs = part.map((data, at) =>
      h(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${data.name}`,
          "aria-controls": "tab-panel",
          click: () => show(at),
          keydown: (event: KeyboardEvent) => turn(event, at),
        },
        `${data.name[0].toUpperCase()}${data.name.slice(1)}`,
      ),
    );
    const { tree } = context;
    const panel = h("div", { role: "tabpanel", id: "tab-panel" });
    const made = new Map<number, Table>();

    function show(at: number): void {
      tabs.forEach((tab, other) => {
        tab.setAttribute("aria-selected", String(other === at));
        tab.tabIndex = other === at ? 0 : -1;
      });
      panel.setAttribute("aria-labelledby", tabs[at].id);
      if (!made.has(at)) made.set(at, new Table(part[at], tree && ((row) => follow(part[at], row))));
      panel.replaceChildren(made.get(at)!.element);
    }

    function turn(event: KeyboardEvent, at: number): void {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      const next = (at + step + tabs.length) % tabs.length;
      show(next);
      tabs[next].focus();
    }

    /** A row of nodes leads to its node, one of many nodes to all of them. */
    function follow(data: TableData, row: number): void {
      if (data.nodes) context.open(data.nodes[row]);
      else context.search(String(data.columns[0].values[row]));
    }

    host.append(
      h("div", { role: "tablist", class: "tabs", "aria-label": "Tables" }, ...tabs),
      panel,
    );
    if (part.length) show(0);
  },
};
