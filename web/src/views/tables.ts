// The tables: layers, operators, kernels, buckets, lines; one at a time.

import type { TableData } from "../data";
import type { View } from "../registry";
import { Table } from "../table";
import { tabs } from "../tabs";
import { locating } from "../timeline/targets";

export const tables: View<TableData[]> = {
  id: "tables",
  title: "Tables",
  wide: true,
  draw(part, host, context) {
    /** A row of nodes leads to its node, one of many nodes to all of them. */
    function follow(data: TableData, row: number): void {
      if (data.nodes) context.open(data.nodes[row]);
      else {
        const { values, names } = data.columns[0];
        context.search(String((names ?? values)[row]));
      }
    }

    const made = part.map((data) => ({
      title: `${data.name[0].toUpperCase()}${data.name.slice(1).replaceAll("_", " ")}`,
      make: () => {
        const leads = context.tree && (data.nodes === null || data.nodes.length > 0);
        return [new Table(data, leads ? (row) => follow(data, row) : null, locating(context)).element];
      },
    }));
    host.append(tabs("tables", "Tables", made));
  },
};
