// The events of a timeline by lane and row: which are at a moment, what is inside, what launched what.

import type { TimelineData } from "../data";
import type { Columns } from "./packed";

/** The events `from` to `to` (exclusive): one row of a lane, in order of begin. */
export interface Row {
  lane: number;
  depth: number;
  from: number;
  to: number;
}

export class Events {
  readonly rows: Row[] = [];
  readonly size: number;
  /** The time of all events before each, to sum up any stretch of a row at once. */
  readonly busy: Float64Array;
  /** Of each event the events that it launched; only calls have any. */
  private launched: Map<number, number[]> | null = null;

  constructor(
    readonly data: TimelineData,
    readonly columns: Columns,
  ) {
    let from = 0;
    data.lanes.forEach((lane, number) =>
      lane.rows.forEach((count, depth) => {
        this.rows.push({ lane: number, depth, from, to: from + count });
        from += count;
      }),
    );
    this.size = from;
    this.busy = new Float64Array(from + 1);
    const { begin, end, blocks } = columns;
    for (let event = 0; event < from; event++) {
      const time = (blocks.size && blocks.get(event)?.busy) || end[event] - begin[event];
      this.busy[event + 1] = this.busy[event] + time;
    }
  }

  name(event: number): string {
    return this.data.names[this.columns.name[event]];
  }

  kind(event: number): string {
    return this.data.kinds[this.columns.name[event]];
  }

  /** The time of an event; of a block that of all in it. */
  time(event: number): number {
    const { begin, end, blocks } = this.columns;
    return (blocks.size && blocks.get(event)?.busy) || end[event] - begin[event];
  }

  count(event: number): number {
    return this.columns.blocks.get(event)?.count ?? 1;
  }

  /** The first event from `from` on that begins after a time. */
  after(time: number, from: number, to: number): number {
    const { begin } = this.columns;
    // Steps that double: the next pixel's event is near.
    let step = 1;
    let low = from;
    while (low + step < to && begin[low + step] <= time) {
      low += step;
      step *= 2;
    }
    let high = Math.min(low + step, to);
    while (low < high) {
      const middle = (low + high) >> 1;
      if (begin[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The event of a row that is at a time, or near it by so many ns; −1 without one. */
  at(row: Row, time: number, near = 0): number {
    const { begin, end } = this.columns;
    const next = this.after(time, row.from, row.to);
    const before = next - 1;
    if (before >= row.from && end[before] >= time) return before;
    const left = before >= row.from ? time - end[before] : Infinity;
    const right = next < row.to ? begin[next] - time : Infinity;
    if (Math.min(left, right) > near) return -1;
    return left <= right ? before : next;
  }

  /** The steps that the host marks. */
  steps(): number[] {
    const found: number[] = [];
    const isStep = this.data.kinds.map((kind) => kind === "step");
    for (const { lane, from, to } of this.rows) {
      if (this.data.lanes[lane].group !== "host") continue;
      for (let event = from; event < to; event++) if (isStep[this.columns.name[event]]) found.push(event);
    }
    return found;
  }

  row(event: number): Row {
    return this.rows[this.rowNumber(event)];
  }

  private rowNumber(event: number): number {
    let [low, high] = [0, this.rows.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.rows[middle].from <= event) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** What an event is inside of, the outermost first. */
  around(event: number): number[] {
    const number = this.rowNumber(event);
    const { depth } = this.rows[number];
    const { begin, end } = this.columns;
    const middle = (begin[event] + end[event]) / 2;
    return Array.from({ length: depth }, (_, at) => this.at(this.rows[number - depth + at], middle)).filter(
      (one) => one >= 0 && end[one] >= end[event],
    );
  }

  /** The time of an event without that of the events directly inside it. */
  own(event: number): number {
    const number = this.rowNumber(event);
    const inner = this.rows[number + 1];
    if (!inner || inner.lane !== this.rows[number].lane) return this.time(event);
    const { begin, end } = this.columns;
    const first = this.firstInside(inner, begin[event]);
    const last = this.after(end[event] - 0.5, Math.max(first, inner.from), inner.to);
    return Math.max(0, this.time(event) - (this.busy[last] - this.busy[first]));
  }

  private firstInside(row: Row, begin: number): number {
    return this.after(begin - 0.5, row.from, row.to);
  }

  /** What was launched by a call, or inside another event of the host. */
  launches(event: number, most: number): number[] {
    const { launch, begin, end } = this.columns;
    if (!this.launched) {
      this.launched = new Map();
      for (let work = 0; work < this.size; work++) {
        if (launch[work] < 0) continue;
        const others = this.launched.get(launch[work]);
        if (others) others.push(work);
        else this.launched.set(launch[work], [work]);
      }
    }
    const own = this.launched.get(event);
    if (own) return own.slice(0, most);
    const { lane } = this.row(event);
    const found: number[] = [];
    if (this.data.lanes[lane].group !== "host") return found;
    for (const row of this.rows) {
      if (row.lane !== lane) continue;
      const first = this.firstInside(row, begin[event]);
      for (let call = first; call < row.to && begin[call] < end[event]; call++) {
        for (const work of this.launched.get(call) ?? []) if (found.length < most) found.push(work);
        if (found.length >= most) return found;
      }
    }
    return found;
  }

  /** Which names hold a text, or are it. */
  named(text: string, exact = false): Uint8Array {
    const wanted = text.toLowerCase();
    const labels = new Map(this.data.labels);
    return Uint8Array.from(this.data.names, (name, at) =>
      Number(
        exact
          ? name === text
          : name.toLowerCase().includes(wanted) || !!labels.get(at)?.toLowerCase().includes(wanted),
      ),
    );
  }

  /** The match that begins next after (or before) another event, of those of all lanes but the path. */
  next(matches: Uint8Array, from: number, back = false): number {
    const { begin, name } = this.columns;
    const here = from < 0 ? (back ? Infinity : -Infinity) : begin[from];
    let best = -1;
    for (const { lane, from: first, to } of this.rows) {
      if (this.data.lanes[lane].group === "path") continue;
      for (let event = first; event < to; event++) {
        if (!matches[name[event]] || event === from) continue;
        const time = begin[event];
        const later = back
          ? time < here || (time === here && event < from)
          : time > here || (time === here && event > from);
        if (later && (best < 0 || (back ? time > begin[best] : time < begin[best]))) best = event;
      }
    }
    return best;
  }

  /** The longest match, preferably in a layer. */
  longest(matches: Uint8Array, layer = ""): number {
    const { begin, end, name, place } = this.columns;
    const wanted = Uint8Array.from([["", ""], ...this.data.places], ([path]) => Number(!!layer && path === layer));
    let best = -1;
    let most = -1;
    for (let event = 0; event < this.size; event++) {
      if (!matches[name[event]]) continue;
      const time = end[event] - begin[event] + (wanted[place[event]] ? this.data.duration + 1 : 0);
      if (time > most && this.data.lanes[this.row(event).lane].group !== "path") [best, most] = [event, time];
    }
    return best;
  }
}
