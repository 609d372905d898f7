// Unpacks what analyze/lanes/recorded_lanes.py packs: deflated LEB128 columns, in base64.

import type { TimelineData } from "../data";

/** The events of a timeline as columns, in order of lane, row and begin; times in ns. */
export interface Columns {
  begin: Float64Array;
  end: Float64Array;
  name: Uint32Array;
  /** The number of the layer and phase, counted from 1; 0 without. */
  place: Uint32Array;
  /** The event that launched it, −1 without. */
  launch: Int32Array;
  /** How many events it stands for, and the time of all of them, where it is a block of short ones. */
  blocks: Map<number, { count: number; busy: number }>;
}

export async function unpack(data: TimelineData): Promise<Columns> {
  const bytes = await inflated(data.columns);
  let at = 0;
  const [gaps, durations, names, places, launches, merged] = data.sizes.map((size) => {
    const part = bytes.subarray(at, at + size);
    at += size;
    return part;
  });
  const count = data.lanes.reduce((sum, lane) => sum + lane.rows.reduce((a, b) => a + b, 0), 0);
  const begin = new Float64Array(count);
  const end = new Float64Array(count);
  const read = { gap: reader(gaps), duration: reader(durations) };
  let event = 0;
  for (const { rows } of data.lanes)
    for (const size of rows) {
      let reached = 0;
      for (const last = event + size; event < last; event++) {
        begin[event] = reached + signed(read.gap());
        end[event] = reached = begin[event] + read.duration();
      }
    }
  const name = whole(names, count, data.names.length);
  return {
    begin,
    end,
    name,
    place: whole(places, count, data.places.length + 1),
    launch: readLaunches(data, launches, count),
    blocks: readBlocks(data, merged, name),
  };
}

async function inflated(base64: string): Promise<Uint8Array> {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** A function that returns the next number; products, since shifts end at 32 bits. */
function reader(bytes: Uint8Array): () => number {
  let at = 0;
  return () => {
    let byte = bytes[at++];
    let value = byte & 0x7f;
    for (let scale = 128; byte > 0x7f; scale *= 128) {
      byte = bytes[at++];
      value += (byte & 0x7f) * scale;
    }
    return value;
  };
}

function signed(value: number): number {
  return value % 2 ? -(value + 1) / 2 : value / 2;
}

/** Numbers below a limit; a file could say others. */
function whole(bytes: Uint8Array, count: number, limit: number): Uint32Array {
  const next = reader(bytes);
  const values = new Uint32Array(count);
  for (let at = 0; at < count; at++) values[at] = Math.min(next(), limit - 1);
  return values;
}

function readLaunches(data: TimelineData, bytes: Uint8Array, count: number): Int32Array {
  const next = reader(bytes);
  const launch = new Int32Array(count).fill(-1);
  let event = 0;
  let before = 0;
  for (const { group, rows } of data.lanes) {
    const last = event + rows.reduce((a, b) => a + b, 0);
    for (; event < last; event++)
      if (group === "device") {
        before += signed(next());
        launch[event] = before <= count ? before - 1 : -1;
      }
  }
  return launch;
}

function readBlocks(data: TimelineData, bytes: Uint8Array, name: Uint32Array): Columns["blocks"] {
  const next = reader(bytes);
  const blocks: Columns["blocks"] = new Map();
  const merged = data.kinds.lastIndexOf("merged");
  if (!bytes.length) return blocks;
  for (let event = 0; event < name.length; event++)
    if (name[event] === merged) blocks.set(event, { count: next(), busy: next() });
  return blocks;
}
