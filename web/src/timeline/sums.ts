// Sums over a range of the timeline: time and count by name, what reaches over its ends is cut there.

import type { TableData } from "../data";
import type { Events } from "./events";

const MOST = 500;

/** The table of what is in a range; host and device add up apart, and own times on each thread. */
export function sums(events: Events, from: number, to: number): TableData {
  const { data, columns } = events;
  const { begin, end, name } = columns;
  const time = new Float64Array(data.names.length);
  const own = new Float64Array(data.names.length);
  const count = new Float64Array(data.names.length);
  events.rows.forEach((row, number) => {
    if (data.lanes[row.lane].group === "path") return; // the same work once more
    const above = row.depth > 0 ? events.rows[number - 1] : null;
    let outer = above ? Math.max(events.after(from, above.from, above.to) - 1, above.from) : -1;
    let event = Math.max(events.after(from, row.from, row.to) - 1, row.from);
    for (; event < row.to && begin[event] < to; event++) {
      const length = Math.min(end[event], to) - Math.max(begin[event], from);
      if (end[event] <= from && !(begin[event] === end[event] && begin[event] >= from)) continue;
      const whole = end[event] - begin[event];
      const taken = whole > 0 ? (Math.max(length, 0) * events.time(event)) / whole : 0;
      time[name[event]] += taken;
      own[name[event]] += taken;
      count[name[event]] += events.count(event);
      if (!above) continue;
      while (outer + 1 < above.to && begin[outer + 1] <= begin[event]) outer++;
      if (begin[outer] <= begin[event] && end[outer] >= end[event]) own[name[outer]] -= taken;
    }
  });
  const rows = [...data.names.keys()].filter((one) => count[one] > 0).sort((a, b) => own[b] - own[a]);
  const shown = rows.slice(0, MOST);
  const labels = new Map(data.labels);
  return {
    name: "the range",
    rows: shown.length,
    left: rows.length - shown.length,
    note: "Time of a name holds that of what runs inside it; own time does not. Host and devices run beside each other.",
    sorted: "own time",
    nodes: [],
    columns: [
      {
        title: "name",
        unit: "text",
        values: shown.map((one) => labels.get(one) ?? data.names[one]),
        names: shown.map((one) => data.names[one]),
      },
      { title: "kind", unit: "text", values: shown.map((one) => data.kinds[one]) },
      { title: "count", unit: "count", values: shown.map((one) => count[one]) },
      { title: "time", unit: "time", values: shown.map((one) => Math.round(time[one])) },
      { title: "own time", unit: "time", values: shown.map((one) => Math.round(own[one])) },
      { title: "own share of the range", unit: "share", values: shown.map((one) => own[one] / (to - from)) },
    ],
  };
}
