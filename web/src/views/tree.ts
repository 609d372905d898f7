// The tree as an icicle: width by time, work or memory; zoom, search, breadcrumbs, the node's figures.

import { Colours } from "../colours";
import type { Figure, TreeData } from "../data";
import { badge, h, name, responsive } from "../dom";
import { format, percent } from "../format";
import { all, type Cell, type Focus, layout } from "../icicle";
import { nodeLink, nodePanel } from "../node_panel";
import type { Context, View } from "../registry";
import type { Tree } from "../tree";

const ROW = 26;
// Edges of cells of two rows that are this close, in percent, are the same.
const NEAR = 0.05;

export const tree: View<TreeData> = {
  id: "tree",
  title: "Tree",
  wide: true,
  draw(part, host, context) {
    const widths = part.figures.filter(([key]) => context.tree!.total(key)[0] > 0);
    if (widths.length) new Icicle(part, host, context, widths).start();
    else host.append(h("p", { class: "note" }, "No time, work or memory of the tree is known."));
  },
};

class Icicle {
  private readonly tree: Tree;
  private focus: Focus;
  private selected = 0;
  private figure: string;
  private readonly colours: Colours;
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

  constructor(
    private readonly part: TreeData,
    private readonly host: HTMLElement,
    private readonly context: Context,
    private readonly widths: Figure[],
  ) {
    this.tree = context.tree!;
    this.colours = new Colours(this.tree);
    this.figure = widths[0][0];
    this.focus = all(this.tree, 0);
  }

  start(): void {
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
          this.colours.ways.map((one) => [one, one]),
          (key) => {
            this.colours.way = key;
            this.redraw();
          },
        ),
        h("label", {}, "Search ", this.input),
        this.said,
        badge(this.part.how),
      ),
      this.part.note ? h("p", { class: "note" }, this.part.note) : "",
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
    this.host.append(this.tip);
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

  private redraw(): void {
    const sizes = this.tree.total(this.figure);
    const found = layout(this.tree, sizes, this.focus, this.width);
    const levels = found.reduce((most, cell) => Math.max(most, cell.level), 0) + 1;
    this.cells.style.height = `${levels * ROW}px`;
    const title = this.tree.figure(this.figure)[1];
    this.cells.setAttribute(
      "aria-label",
      `Tree of ${this.tree.name(this.focus.node)}, sized by ${title}`,
    );
    this.cells.replaceChildren(...found.map((cell) => this.cell(cell, sizes)));
    (this.cells.firstElementChild as HTMLElement).tabIndex = 0;
    this.drawCrumbs();
    this.legend.replaceChildren(...this.colours.legend());
  }

  private cell(cell: Cell, sizes: Float64Array): HTMLElement {
    const { node, folded } = cell;
    const label = folded ? narrower(folded) : this.describe(node, sizes);
    const element = h(
      "button",
      {
        type: "button",
        tabindex: -1,
        class: folded ? "cell folded" : `cell ${this.colours.of(node)}`,
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
    // In shares of the width: paper is narrower than the screen that this was laid out for.
    style.left = `${(100 * cell.x) / this.width}%`;
    style.width = `${(100 * Math.max(cell.width - 1, 1)) / this.width}%`;
    style.top = `${cell.level * ROW}px`;
    return element;
  }

  private describe(node: number, sizes: Float64Array): string {
    const [, title, unit] = this.tree.figure(this.figure);
    const kind = this.tree.text("kind", node);
    const share = sizes[0] > 0 ? `, ${percent(sizes[node] / sizes[0])}` : "";
    return `${this.tree.name(node)}, ${kind}: ${format(sizes[node], unit)} ${title}${share}`;
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
          h("li", {}, nodeLink(this.context, node, node === here && !part ? "location" : null)),
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
      ArrowUp: () => row(level - 1).findLast((cell) => parseFloat(cell.style.left) <= left + NEAR),
      ArrowDown: () =>
        row(level + 1).find((cell) => {
          const x = parseFloat(cell.style.left);
          return x >= left - NEAR && x < right;
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

  private show(node: number): void {
    this.selected = node;
    this.panel.replaceChildren(...nodePanel(this.context, node, this.figure));
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
