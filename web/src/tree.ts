// The tree in columns: 100,000 nodes are a few arrays, and a sum over all of them one loop.

import type { Figure, TreeData } from "./data";

const NEARLY_ALL = 0.9;
const PREFIX = /^(aten::|autograd::engine::evaluate_function: )?(torch::autograd::)?/;

export class Tree {
  readonly size: number;
  readonly parent: Int32Array;
  readonly depth: Uint16Array;
  readonly figures: Figure[];
  private readonly own = new Map<string, Float64Array>();
  private readonly sums = new Map<string, Float64Array>();
  private readonly first: Int32Array;
  private readonly below: Int32Array;
  readonly labels: Map<number, string>;
  private readonly launches: Map<number, string[]>;

  constructor(readonly data: TreeData) {
    this.parent = Int32Array.from(data.columns.parent as number[]);
    this.size = this.parent.length;
    this.figures = data.figures;
    this.depth = new Uint16Array(this.size);
    this.first = new Int32Array(this.size + 1);
    this.below = new Int32Array(this.size);
    for (let node = 1; node < this.size; node++) {
      this.depth[node] = this.depth[this.parent[node]] + 1;
      this.first[this.parent[node] + 1]++;
    }
    for (let node = 0; node < this.size; node++) this.first[node + 1] += this.first[node];
    const next = this.first.slice();
    for (let node = 1; node < this.size; node++) this.below[next[this.parent[node]]++] = node;
    this.labels = new Map(data.labels);
    this.launches = new Map(data.kernels.node.map((node, at) => [node, data.kernels.facts[at]]));
  }

  text(column: string, node: number): string {
    return this.data.texts[this.data.columns[column]?.[node] as number] ?? "";
  }

  name(node: number): string {
    return this.text("name", node) || this.text("path", node) || "model";
  }

  /** The name as a label has it: short where it is a kernel's, and without torch's own prefixes. */
  label(node: number): string {
    return this.labels.get(this.data.columns.name[node]!) ?? this.name(node).replace(PREFIX, "");
  }

  /** A layer's type where its name is a number, which says nothing alone. */
  typeBeside(node: number): string {
    return /^\d+$/.test(this.name(node)) ? this.text("type", node) : "";
  }

  /**
   * The last of a chain that begins here: each has one child, of its own kind, that nearly all of
   * its figure is in.
   */
  chainEnd(node: number, sizes: Float64Array): number {
    for (;;) {
      const [child, more] = this.children(node);
      const kind = this.data.columns.kind;
      if (child === undefined || more !== undefined || kind[child] !== kind[node]) return node;
      if (!(sizes[child] >= NEARLY_ALL * sizes[node])) return node;
      node = child;
    }
  }

  number(column: string, node: number): number {
    return this.data.columns[column]?.[node] ?? NaN;
  }

  children(node: number): Int32Array {
    return this.below.subarray(this.first[node], this.first[node + 1]);
  }

  figure(key: string): Figure {
    return this.figures.find(([one]) => one === key)!;
  }

  launch(node: number): string[] {
    return this.launches.get(node) ?? [];
  }

  /** The figure of each node alone; NaN is unknown. */
  alone(figure: string): Float64Array {
    return memoized(this.own, figure, () =>
      Float64Array.from(this.data.columns[figure], (value) => value ?? NaN),
    );
  }

  /** The figure of each node with all below it; what is unknown counts as nothing. */
  total(figure: string): Float64Array {
    return memoized(this.sums, figure, () => {
      const sum = this.alone(figure).slice();
      for (let node = this.size - 1; node > 0; node--) {
        const above = this.parent[node];
        if (!Number.isNaN(sum[node])) sum[above] = (sum[above] || 0) + sum[node];
      }
      return sum;
    });
  }

  /** From the root to the node. */
  trail(node: number): number[] {
    const found = [];
    for (; node >= 0; node = this.parent[node]) found.unshift(node);
    return found;
  }

  /** The qualified name of the layer that the node is or belongs to. */
  path(node: number): string {
    for (; node > 0; node = this.parent[node]) {
      if (this.text("kind", node) === "layer") return this.text("path", node);
    }
    return "";
  }

  /** The node's place in words that stay the same from run to run, for links. */
  address(node: number): string {
    return this.trail(node)
      .slice(1)
      .map((one) => this.step(one))
      .join("/");
  }

  find(address: string): number | null {
    let node = 0;
    for (const step of address ? address.split("/") : []) {
      const next = this.children(node).find((child) => this.step(child) === step);
      if (next === undefined) return null;
      node = next;
    }
    return node;
  }

  private step(node: number): string {
    const name = this.name(node);
    let number = 1;
    for (const other of this.children(this.parent[node])) {
      if (other === node) break;
      if (this.name(other) === name) number++;
    }
    return encodeURIComponent(name).replaceAll("%3A", ":") + (number > 1 ? `~${number}` : "");
  }
}

function memoized<K, V>(known: Map<K, V>, key: K, make: () => V): V {
  let value = known.get(key);
  if (value === undefined) known.set(key, (value = make()));
  return value;
}
