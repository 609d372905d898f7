// Counters below the lanes: what an allocator held, and how much launched work waited for a stream.

import type { TimelineData } from "../data";
import { format, type Unit } from "../format";
import type { Events } from "./events";

/** A value that holds from its time to the next. */
export interface Counter {
  name: string;
  unit: Unit;
  most: number;
  time: Float64Array | number[];
  values: Float64Array | number[];
}

export function counters(events: Events): Counter[] {
  return [...queues(events), ...events.data.counters.map(memory)];
}

function memory({ name, unit, time, values }: TimelineData["counters"][0]): Counter {
  const most = values.reduce((a, b) => Math.max(a, b), 0);
  return { name: `${name}, at most ${format(most, unit)}`, unit, most, time, values };
}

/** The queue of each stream: pieces of work that were launched and have not begun. */
function queues(events: Events): Counter[] {
  const { begin, launch } = events.columns;
  const found: Counter[] = [];
  events.data.lanes.forEach((lane, number) => {
    if (lane.group !== "device") return;
    const rows = events.rows.filter((row) => row.lane === number);
    const all = rows.reduce((sum, { from, to }) => sum + to - from, 0);
    const into = new Float64Array(all);
    const out = new Float64Array(all);
    let count = 0;
    for (const { from, to } of rows) {
      for (let work = from; work < to; work++) {
        if (launch[work] < 0) continue;
        into[count] = begin[launch[work]];
        out[count++] = Math.max(begin[work], begin[launch[work]]);
      }
    }
    if (count > 1) found.push(queue(lane.name, into.subarray(0, count).sort(), out.subarray(0, count).sort()));
  });
  return found;
}

function queue(name: string, into: Float64Array, out: Float64Array): Counter {
  const time = new Float64Array(2 * into.length);
  const values = new Float64Array(2 * into.length);
  let [first, second, length, most] = [0, 0, 0, 0];
  for (let at = 0; at < time.length; at++) {
    const enters = first < into.length && into[first] <= out[second];
    time[at] = enters ? into[first++] : out[second++];
    values[at] = length += enters ? 1 : -1;
    most = Math.max(most, length);
  }
  return { name: `Queue of ${name}, at most ${most.toLocaleString("en")}`, unit: "count", most, time, values };
}

/** The number of the value that holds at a time, −1 before the first. */
export function valueAt({ time }: Counter, wanted: number): number {
  let [low, high] = [0, time.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (time[middle] <= wanted) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
