// By what the icicle's cells are coloured: each way a class of the style per node, and a legend.

import { h, name } from "./dom";
import type { Tree } from "./tree";

const WAYS = ["type", "kind", "bound"];
const KINDS = ["model", "layer", "operator", "kernel", "bucket"];
const BOUNDS = ["compute", "memory", "overhead"];
const MOST_TYPES = 7;

export class Colours {
  way: string;
  private readonly types = new Map<string, number>();

  constructor(private readonly tree: Tree) {
    this.rankTypes(tree.figures[0][0]);
    this.way = this.ways[0];
  }

  /** The ways for which the tree has what they need. */
  get ways(): string[] {
    const { columns } = this.tree.data;
    return WAYS.filter((way) => columns[way]?.some((value) => value !== -1));
  }

  /** The types that take most get a colour each. */
  private rankTypes(figure: string): void {
    const own = this.tree.alone(figure);
    const sums = new Map<string, number>();
    let type = "";
    for (let node = 0; node < this.tree.size; node++) {
      type = this.typeOf(node);
      if (type) sums.set(type, (sums.get(type) ?? 0) + (own[node] || 0));
    }
    [...sums]
      .sort((a, b) => b[1] - a[1])
      .slice(0, MOST_TYPES)
      .forEach(([one], at) => this.types.set(one, at));
  }

  /** The type of the layer that a node is or belongs to. */
  private typeOf(node: number): string {
    for (; node > 0; node = this.tree.parent[node]) {
      const kind = this.tree.text("kind", node);
      if (kind === "bucket") return "";
      if (kind === "layer" || kind === "frame") break;
    }
    return this.tree.text("type", node);
  }

  of(node: number): string {
    const kind = this.tree.text("kind", node);
    if (this.way === "type") {
      const at = this.types.get(this.typeOf(node));
      const inside = kind === "operator" || kind === "kernel" ? " inside" : "";
      return (at === undefined ? "other" : `type-${at}`) + inside;
    }
    if (this.way === "bound") {
      for (let one = node; one >= 0; one = this.tree.parent[one]) {
        const bound = this.tree.text("bound", one);
        if (bound) return `bound-${bound}`;
      }
      return "other";
    }
    return `kind-${kind}`;
  }

  legend(): HTMLElement[] {
    const kinds = KINDS.filter((kind) => this.tree.data.texts.includes(kind));
    const entries: Record<string, string[][]> = {
      kind: kinds.map((kind) => [`kind-${kind}`, kind]),
      type: [...[...this.types].map(([type, at]) => [`type-${at}`, type]), ["other", "other"]],
      bound: [...BOUNDS.map((one) => [`bound-${one}`, one]), ["other", "not known"]],
    };
    return entries[this.way].map(([style, label]) =>
      h("li", { title: label }, h("span", { class: `swatch ${style}`, "aria-hidden": "true" }), name(label, { class: "cut" })),
    );
  }
}
