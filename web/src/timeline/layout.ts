// Where lanes are drawn: a heading each, its rows below it; counters between devices and host.

import type { Counter } from "./counters";
import type { Events, Row } from "./events";

export const HEADING = 20;
export const ROW = 18;
export const PLOT = 44;
// With more rows than this only the first threads of the host are open at first.
const MANY_ROWS = 60;
const OPEN_THREADS = 2;

/** What is drawn from `top` on: the rows of a lane, or a counter. */
export interface Strip {
  title: string;
  /** The number of the lane, −1 for a counter. */
  lane: number;
  rows: Row[];
  counter: Counter | null;
  open: boolean;
  top: number;
  height: number;
}

export function strips(events: Events, counters: Counter[]): Strip[] {
  const found: Strip[] = [];
  let threads = 0;
  const few = events.rows.length <= MANY_ROWS;
  events.data.lanes.forEach((lane, number) => {
    if (lane.group === "host" && threads++ === 0) counters.forEach((counter) => found.push(counterStrip(counter)));
    found.push({
      title: lane.name + (lane.left ? ` (without ${lane.left.toLocaleString("en")} nested deeper)` : ""),
      lane: number,
      rows: events.rows.filter((row) => row.lane === number),
      counter: null,
      open: lane.group !== "host" || few || threads <= OPEN_THREADS,
      top: 0,
      height: 0,
    });
  });
  if (!threads) counters.forEach((counter) => found.push(counterStrip(counter)));
  return found;
}

/** The lanes of devices first and the others closed; without devices all as they are. */
export function devicesFirst(all: Strip[], events: Events): Strip[] {
  const isDevice = ({ lane }: Strip) => events.data.lanes[lane].group === "device";
  if (!all.some(isDevice)) return all;
  for (const strip of all) strip.open = isDevice(strip);
  return [...all.filter(isDevice), ...all.filter((strip) => !isDevice(strip))];
}

function counterStrip(counter: Counter): Strip {
  return { title: counter.name, lane: -1, rows: [], counter, open: true, top: 0, height: 0 };
}

/** Set where each is; return the height of all. */
export function arrange(all: Strip[]): number {
  let top = 0;
  for (const strip of all) {
    strip.top = top;
    strip.height = HEADING + (strip.open ? (strip.counter ? PLOT : strip.rows.length * ROW) : 0) + 4;
    top += strip.height;
  }
  return top;
}

/** The row that is drawn at a height, null where there is none. */
export function rowAt(all: Strip[], y: number): Row | null {
  const strip = all.find(({ top, height }) => y >= top && y < top + height);
  if (!strip?.open) return null;
  return strip.rows[Math.floor((y - strip.top - HEADING) / ROW)] ?? null;
}

/** The top of a row in the whole drawing; null where its lane is closed. */
export function topOf(all: Strip[], row: Row): number | null {
  const strip = all.find(({ lane }) => lane === row.lane)!;
  return strip.open ? strip.top + HEADING + row.depth * ROW : null;
}
