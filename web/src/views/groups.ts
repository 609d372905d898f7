// Groups of figures with a table each: compilation, and where memory ran out.

import type { GroupsData } from "../data";
import { definitions } from "../definitions";
import { badge, h, name, prose } from "../dom";
import type { View } from "../registry";
import { Table } from "../table";

function groups(id: string, title: string): View<GroupsData> {
  return {
    id,
    title,
    wide: true,
    draw({ groups }, host) {
      for (const group of groups) {
        host.append(
          group.title ? h("h3", {}, name(group.title), " ", badge(group.how)) : h("p", {}, badge(group.how)),
          ...group.notes.map((note) => h("p", { class: "note" }, prose(note))),
          ...(group.rows.length ? [definitions(group.rows)] : []),
          ...(group.table ? [new Table(group.table, null).element] : []),
        );
      }
    },
  };
}

export const compilation = groups("compilation", "Compilation");
export const memoryRanOut = groups("memory_ran_out", "Where memory ran out");
