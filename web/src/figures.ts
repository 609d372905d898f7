// The figures of the tree's nodes.

import type { Unit } from "./format";

export type Figure = [key: string, title: string, unit: Unit];

// What they are called; each can be the width.
export const FIGURES: Figure[] = [
  ["device", "device time", "time"],
  ["host", "host time", "time"],
  ["flops", "FLOPs", "count"],
  ["bytes", "bytes moved", "bytes"],
  ["allocations", "memory allocated", "bytes"],
  ["retained", "kept for backward", "bytes"],
  ["parameters", "parameters", "count"],
];

export function figure(key: string): Figure {
  return FIGURES.find(([one]) => one === key)!;
}
