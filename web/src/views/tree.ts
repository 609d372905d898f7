// The tree as an icicle: width by time, work or memory; zoom, search, breadcrumbs, the node's figures.

import { copyButton, markdown } from "../copy";
import type { TreeData } from "../data";
import { definitions } from "../definitions";
import { badge, h, name, responsive } from "../dom";
import { format, percent, type Unit } from "../format";
import { all, type Cell, type Focus, layout } from "../icicle";
import type { Context, View } from "../registry";
import type { Tree } from "../tree";

// What a node's figures are called; each can be the width.
const FIGURES: [key: string, title: string, unit: Unit][] = [
  ["device", "device time", "time"],
  ["host", "host time", "time"],
  ["flops", "FLOPs", "count"],
  ["bytes", "bytes moved", "bytes"],
  ["allocations", "memory allocated", "bytes"],
  ["retained", "kept for backward", "bytes"],
  ["parameters", "parameters", "count"],
];
const ROW = 26;
const COLOURS = ["kind", "type", "bound"];
const KINDS = ["model", "layer", "operator", "kernel", "bucket"];
const MOST_TYPES = 7;
const MOST_CHILDREN = 7;

export const tree: View<TreeData> = {
  id: "tree",
  title: "Tree",
  wide: true,
  draw(part, host, context) {
    const widths = FIGURES.filter(
      ([key]) => part.own.includes(key) && context.tree!.total(key)[0] > 0,
    );
    if (widths.length) new Icicle(part, host, context, widths).start();
    else host.append(h("p", { class: "note" }, "No time, work or memory of the tree is known."));
  },
};

class Icicle {
  private readonly tree: Tree;
  private focus: Focus;
  private selected = 0;
  private figure: string;
  private colour = "kind";
  private matches: Uint8Array | null = null;
  private found: number[] = [];
  private width = 0;
  private readonly crumbs = h("nav", { class: "crumbs", "aria-label": "Breadcrumbs" });
  private readonly cells = h("div", {
    class: "icicle",
    role: "group",
    keydown: (e: KeyboardEvent) => this.key(e),
  });
  private readonly tip = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
  private readonly panel = h("div", { class: "panel", "aria-live": "polite" });
  private readonly said = h("output", { class: "note" });
  private readonly legend = h("ul", { class: "legend" });
  private readonly input = h("input", {
    type: "search",
    placeholder: "layer, type or operator",
    input: () => this.search(),
    keydown: (event: KeyboardEvent) => event.key === "Enter" && this.nextMatch(),
  }) as HTMLInputElement;
  private readonly types = new Map<string, number>();

  constructor(
    private readonly part: TreeData,
    private readonly host: HTMLElement,
    private readonly context: Context,
    private readonly widths: typeof FIGURES,
  ) {
    this.tree = context.tree!;
    this.figure = widths[0][0];
    this.focus = all(this.tree, 0);
  }

  start(): void {
    const colours = COLOURS.filter((one) => this.has(one));
    this.host.append(
      h(
        "div",
        { class: "controls" },
        choice(
          "Width",
          this.widths.map(([key, title]) => [key, title]),
          (key) => {
            this.figure = key;
            this.redraw();
          },
        ),
        choice(
          "Colour",
          colours.map((one) => [one, one]),
          (key) => {
            this.colour = key;
            this.redraw();
          },
        ),
        h("label", {}, "Search ", this.input),
        this.said,
        badge(this.part.how),
      ),
      this.crumbs,
      this.cells,
      this.legend,
      h(
        "p",
        { class: "note print-hidden" },
        "Click or Enter: into a node. Arrow keys: to its neighbours. Escape: back out.",
      ),
      this.panel,
    );
    document.body.append(this.tip);
    this.rankTypes();
    responsive(this.cells, (width) => {
      this.width = width;
      this.redraw();
    });
    this.show(0);
    this.context.onOpen((node) => this.zoom(node));
    this.context.onSearch((text) => {
      this.input.value = text;
      this.zoom(0);
      this.search();
    });
  }

  private has(column: string): boolean {
    return !!this.part.columns[column]?.some((value) => value !== -1);
  }

  /** The types that take most get a colour each. */
  private rankTypes(): void {
    const own = this.tree.alone(this.figure);
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
      if (kind === "layer") break;
    }
    return this.tree.text("type", node);
  }

  private redraw(): void {
    const sizes = this.tree.total(this.figure);
    const found = layout(this.tree, sizes, this.focus, this.width);
    const levels = found.reduce((most, cell) => Math.max(most, cell.level), 0) + 1;
    this.cells.style.height = `${levels * ROW}px`;
    const title = FIGURES.find(([key]) => key === this.figure)![1];
    this.cells.setAttribute(
      "aria-label",
      `Tree of ${this.tree.name(this.focus.node)}, sized by ${title}`,
    );
    this.cells.replaceChildren(...found.map((cell) => this.cell(cell, sizes)));
    (this.cells.firstElementChild as HTMLElement).tabIndex = 0;
    this.drawCrumbs();
    this.drawLegend();
  }

  private cell(cell: Cell, sizes: Float64Array): HTMLElement {
    const { node, folded } = cell;
    const label = folded ? narrower(folded) : this.describe(node, sizes);
    const element = h(
      "button",
      {
        type: "button",
        tabindex: -1,
        class: folded ? "cell folded" : `cell ${this.class(node)}`,
        "aria-label": label,
        "data-node": node,
        "data-level": cell.level,
        click: () => (folded ? this.unfold(folded) : this.context.open(node)),
        pointerenter: (event: PointerEvent) => this.hint(event.currentTarget as HTMLElement, label),
        pointerleave: () => (this.tip.hidden = true),
        focus: (event: FocusEvent) => this.hint(event.currentTarget as HTMLElement, label),
        blur: () => (this.tip.hidden = true),
      },
      cell.width > 24 && !folded ? name(this.tree.name(node)) : null,
    );
    if (this.matches && !folded) element.classList.add(this.matches[node] ? "match" : "dim");
    const { style } = element;
    style.left = `${cell.x}px`;
    style.width = `${Math.max(cell.width - 1, 1)}px`;
    style.top = `${cell.level * ROW}px`;
    return element;
  }

  private describe(node: number, sizes: Float64Array): string {
    const [, title, unit] = FIGURES.find(([key]) => key === this.figure)!;
    const kind = this.tree.text("kind", node);
    const share = sizes[0] > 0 ? `, ${percent(sizes[node] / sizes[0])}` : "";
    return `${this.tree.name(node)}, ${kind}: ${format(sizes[node], unit)} ${title}${share}`;
  }

  private class(node: number): string {
    const kind = this.tree.text("kind", node);
    if (this.colour === "type") {
      const at = this.types.get(this.typeOf(node));
      return at === undefined ? "other" : `type-${at}`;
    }
    if (this.colour === "bound") {
      for (let one = node; one >= 0; one = this.tree.parent[one]) {
        const bound = this.tree.text("bound", one);
        if (bound) return `bound-${bound}`;
      }
      return "other";
    }
    return `kind-${kind}`;
  }

  private drawLegend(): void {
    const entries: [string, string][] = {
      kind: KINDS.filter((kind) => this.part.texts.includes(kind)).map((kind): [string, string] => [
        `kind-${kind}`,
        kind,
      ]),
      type: [
        ...[...this.types].map(([type, at]): [string, string] => [`type-${at}`, type]),
        ["other", "other"] as [string, string],
      ],
      bound: ["compute", "memory", "overhead", "other"].map((one): [string, string] => [
        one === "other" ? one : `bound-${one}`,
        one,
      ]),
    }[this.colour]!;
    this.legend.replaceChildren(
      ...entries.map(([style, label]) =>
        h("li", {}, h("span", { class: `swatch ${style}`, "aria-hidden": "true" }), name(label)),
      ),
    );
  }

  private drawCrumbs(): void {
    const { node: here, from, to } = this.focus;
    const part = to - from < this.tree.children(here).length;
    const trail = this.tree.trail(here);
    this.crumbs.replaceChildren(
      h(
        "ol",
        {},
        ...trail.map((node) =>
          h("li", {}, this.link(node, node === here && !part ? "location" : null)),
        ),
        part && h("li", { "aria-current": "location" }, narrower(this.focus)),
      ),
    );
  }

  private zoom(node: number): void {
    const inside = this.cells.contains(document.activeElement);
    const leaf = this.tree.children(node).length === 0 && node > 0;
    this.focus = all(this.tree, leaf ? this.tree.parent[node] : node);
    this.tip.hidden = true;
    if (this.width) this.redraw();
    this.show(node);
    const cell = this.cells.querySelector<HTMLElement>(`[data-node="${node}"]:not(.folded)`);
    if (inside) (cell ?? (this.cells.firstElementChild as HTMLElement | null))?.focus();
  }

  /** Show nodes that were too narrow alone, in the whole width. */
  private unfold(folded: Focus): void {
    this.focus = folded;
    this.tip.hidden = true;
    this.redraw();
    (this.cells.firstElementChild as HTMLElement).focus();
  }

  private key(event: KeyboardEvent): void {
    const cells = [...this.cells.children] as HTMLElement[];
    const at = cells.indexOf(document.activeElement as HTMLElement);
    const { node: here, from, to } = this.focus;
    const part = to - from < this.tree.children(here).length;
    if (event.key === "Escape" && (part || here > 0)) {
      return this.context.open(part ? here : this.tree.parent[here]);
    }
    if (at < 0) return;
    const level = Number(cells[at].dataset.level);
    const left = parseFloat(cells[at].style.left);
    const right = left + parseFloat(cells[at].style.width);
    const row = (wanted: number) => cells.filter((cell) => Number(cell.dataset.level) === wanted);
    const same = row(level);
    const next: Record<string, () => HTMLElement | undefined> = {
      ArrowLeft: () => same[same.indexOf(cells[at]) - 1],
      ArrowRight: () => same[same.indexOf(cells[at]) + 1],
      ArrowUp: () => row(level - 1).findLast((cell) => parseFloat(cell.style.left) <= left + 0.5),
      ArrowDown: () =>
        row(level + 1).find((cell) => {
          const x = parseFloat(cell.style.left);
          return x >= left - 0.5 && x < right;
        }),
    };
    if (!(event.key in next)) return;
    event.preventDefault();
    next[event.key]()?.focus();
  }

  private hint(cell: HTMLElement, text: string): void {
    const place = cell.getBoundingClientRect();
    this.tip.replaceChildren(name(text));
    this.tip.hidden = false;
    const room = document.documentElement.clientWidth - this.tip.offsetWidth - 8;
    this.tip.style.left = `${Math.max(8, Math.min(place.left, room))}px`;
    this.tip.style.top = `${place.bottom + 6}px`;
  }

  private search(): void {
    const wanted = this.input.value.trim().toLowerCase();
    this.found = [];
    this.matches = wanted ? new Uint8Array(this.tree.size) : null;
    if (this.matches) {
      const hits = this.part.texts.map((text) => text.toLowerCase().includes(wanted));
      const columns = ["name", "path", "type"].map((column) => this.part.columns[column]);
      for (let node = 0; node < this.tree.size; node++) {
        if (columns.some((column) => hits[column[node] as number])) {
          this.matches[node] = 1;
          this.found.push(node);
        }
      }
    }
    this.said.textContent = wanted ? this.tell() : "";
    this.redraw();
  }

  /** Say how many nodes match, and their share without counting any time twice. */
  private tell(): string {
    const sizes = this.tree.total(this.figure);
    const covered = new Uint8Array(this.tree.size);
    let sum = 0;
    for (let node = 0; node < this.tree.size; node++) {
      if (node > 0 && covered[this.tree.parent[node]]) covered[node] = 1;
      else if (this.matches![node]) {
        covered[node] = 1;
        sum += sizes[node] || 0;
      }
    }
    const share = sizes[0] > 0 ? `, ${percent(sum / sizes[0])}` : "";
    return `${this.found.length.toLocaleString("en")} found${share}`;
  }

  private nextMatch(): void {
    const next = this.found.find((node) => node > this.selected) ?? this.found[0];
    if (next !== undefined) this.context.open(next);
  }

  /** Tell all that is known of a node. */
  private show(node: number): void {
    this.selected = node;
    const { tree } = this;
    const rows: [string, string, string][] = [];
    const add = (label: string, value: string, note = "") =>
      value && rows.push([label, value, note]);
    add("layer", tree.path(node));
    add("type", tree.text("type", node));
    add("phase", tree.text("phase", node));
    add("input shapes", tree.text("shapes", node));
    add(
      "calls",
      format(tree.number("calls", node), "count"),
      this.part.steps > 1 ? `in ${this.part.steps} steps` : "in a step",
    );
    for (const [key, title, unit] of FIGURES) {
      if (!this.part.own.includes(key)) continue;
      const total = tree.total(key);
      const alone = tree.alone(key)[node];
      const own = tree.children(node).length ? `${format(alone, unit)} of its own` : "";
      const share = total[0] > 0 && total[node] >= 0 ? percent(total[node] / total[0]) : "";
      add(
        title,
        this.least(key, node) + format(total[node], unit),
        [share, own].filter(Boolean).join(", "),
      );
    }
    if (this.part.columns.peak)
      add(
        "peak of a call",
        format(tree.number("peak", node), "bytes"),
        "beyond what was alive before",
      );
    add("bound by", tree.text("bound", node));
    tree.launch(node).forEach((fact, at) => add(at ? "" : "launch", fact));
    const sheet = () => ({ head: [tree.name(node), "", ""], rows });
    this.panel.replaceChildren(
      h("h3", {}, name(tree.name(node)), " ", h("span", { class: "how" }, tree.text("kind", node))),
      h("div", { class: "columns" }, definitions(rows), this.largest(node)),
      copyButton("Copy as Markdown", () => markdown(sheet())),
      copyButton("Copy link", () => `${location.href.split("#")[0]}#node=${tree.address(node)}`),
    );
  }

  /** The children that take most, and what is left to the node itself. */
  private largest(node: number): HTMLElement | null {
    const sizes = this.tree.total(this.figure);
    const alone = this.tree.alone(this.figure)[node] || 0;
    const [, title, unit] = FIGURES.find(([key]) => key === this.figure)!;
    const children = [...this.tree.children(node)].filter((child) => sizes[child] > 0);
    if (!children.length || !(sizes[node] > 0)) return null;
    children.sort((a, b) => sizes[b] - sizes[a]);
    const shown = children.slice(0, MOST_CHILDREN);
    const rest = children.slice(MOST_CHILDREN).reduce((sum, child) => sum + sizes[child], 0);
    const line = (label: HTMLElement | string, size: number) => {
      const bar = h("i", { "aria-hidden": "true" });
      bar.style.width = `${(100 * size) / sizes[node]}%`;
      return h("li", {}, h("span", {}, label), h("b", {}, format(size, unit)), bar);
    };
    const more = children.length - shown.length;
    return h(
      "div",
      {},
      h("h4", {}, `Its ${title}`),
      h(
        "ul",
        { class: "bars" },
        ...shown.map((child) => line(this.link(child), sizes[child])),
        rest > 0 && line(`${more} others`, rest),
        alone > 0 && line("of its own", alone),
      ),
    );
  }

  private link(node: number, here: string | null = null): HTMLElement {
    const click = (event: Event) => {
      event.preventDefault();
      this.context.open(node);
    };
    const href = `#node=${this.tree.address(node)}`;
    return h("a", { href, click, "aria-current": here }, name(this.tree.name(node)));
  }

  private least(key: string, node: number): string {
    const counted = key === "flops" || key === "bytes";
    return counted && this.part.own.includes("unknown") && this.tree.total("unknown")[node] > 0
      ? "≥ "
      : "";
  }
}

function narrower({ from, to }: Focus): string {
  return `${(to - from).toLocaleString("en")} narrower`;
}

function choice(
  label: string,
  options: string[][],
  pick: (key: string) => void,
): HTMLElement | null {
  if (options.length < 2) return null;
  const select = h(
    "select",
    { change: () => pick(select.value) },
    ...options.map(([key, title]) => h("option", { value: key }, title)),
  ) as HTMLSelectElement;
  return h("label", {}, `${label} `, select);
}
