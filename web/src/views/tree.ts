// The tree as an icicle: width by time, work or memory; zoom, search, breadcrumbs, the node's figures.

import { Colours } from "../colours";
import type { Figure, TreeData } from "../data";
import { badge, h, name, responsive } from "../dom";
import { format, share, tidy } from "../format";
import { all, type Cell, type Focus, layout, whole } from "../icicle";
import { nodeLink, nodePanel } from "../node_panel";
import type { Context, View } from "../registry";
import type { Tree } from "../tree";

const ROW = 26;
// Pixels from which on a cell has its name.
const NAMED = 36;
const WAYS: Record<string, string> = { type: "type of layer", kind: "layer or operator", bound: "what bounds it" };
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
  private readonly axis = h("div", { class: "axis-line", "aria-hidden": "true" });
  private readonly tip = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
  private readonly panel = h("div", { class: "panel", "aria-live": "polite" });
  private readonly said = h("output", { class: "note" });
  private readonly legend = h("ul", { class: "legend" });
  private readonly input = h("input", {
    type: "search",
    placeholder: "part of a name",
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
          this.colours.ways.map((one) => [one, this.part.types && one === "type" ? this.part.types : WAYS[one]]),
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
      this.axis,
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
    this.drawAxis(whole(this.tree, sizes, this.focus));
    this.drawCrumbs();
    this.legend.replaceChildren(...this.colours.legend());
  }

  private cell(cell: Cell, sizes: Float64Array): HTMLElement {
    const { node, folded } = cell;
    const label = folded ? narrower(folded) : this.describe(cell, sizes);
    const hint = (event: Event) =>
      this.hint(event.currentTarget as HTMLElement, folded ? [label] : this.facts(cell));
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
        pointerenter: hint,
        pointerleave: () => (this.tip.hidden = true),
        focus: hint,
        blur: () => (this.tip.hidden = true),
      },
      ...(cell.width > NAMED && !folded ? this.label(cell) : []),
    );
    if (this.matches && !folded) {
      const hit = this.chain(cell).some((one) => this.matches![one]);
      element.classList.add(hit ? "match" : "dim");
    }
    const { style } = element;
    // In shares of the width: paper is narrower than the screen that this was laid out for.
    style.left = `${(100 * cell.x) / this.width}%`;
    style.width = `${(100 * Math.max(cell.width - 1, 1)) / this.width}%`;
    style.top = `${cell.level * ROW}px`;
    return element;
  }

  /** The nodes that a cell stands for, the outermost first. */
  private chain({ node, last }: Cell): number[] {
    const trail = this.tree.trail(last);
    return trail.slice(trail.indexOf(node));
  }

  /** What is written in a cell: of a chain, its two ends. */
  private label(cell: Cell): (HTMLElement | string)[] {
    const { node, last } = cell;
    const type = this.tree.typeBeside(node);
    return [
      name(this.tree.label(node)),
      ...(type ? [" ", name(type, { class: "type" })] : []),
      ...(last === node ? [] : [" › ", name(this.tree.label(last))]),
    ];
  }

  private describe(cell: Cell, sizes: Float64Array): string {
    const { node } = cell;
    const [, title, unit] = this.tree.figure(this.figure);
    const kind = this.tree.text("kind", node);
    const part = sizes[0] > 0 ? `, ${share(sizes[node] / sizes[0])}` : "";
    const shown = this.label(cell).map((text) => (typeof text === "string" ? text : text.textContent));
    return `${shown.join("")}, ${kind}: ${format(sizes[node], unit)} ${title}${part}`;
  }

  /** What the tip says: all names, the type, and each figure with its share of the whole. */
  private facts(cell: Cell): HTMLElement[] {
    const { node } = cell;
    const path = this.tree.text("path", node);
    const about = [this.tree.text("kind", node), this.tree.text("type", node), path].filter(Boolean);
    const rows = this.tree.figures
      .map(([key, title, unit]) => ({ title, unit, sizes: this.tree.total(key) }))
      .filter(({ sizes }) => sizes[node] > 0)
      .map(({ title, unit, sizes }) =>
        h(
          "div",
          {},
          h("span", {}, title),
          h("b", {}, format(sizes[node], unit)),
          h("span", {}, sizes[0] > 0 ? share(sizes[node] / sizes[0]) : ""),
        ),
      );
    return [
      ...this.chain(cell).map((one) => h("strong", {}, name(this.tree.name(one)))),
      h("div", {}, ...about.flatMap((text, at) => [at ? " · " : "", name(text)])),
      h("div", { class: "facts-of" }, ...rows),
    ];
  }

  /** An axis over the whole width: what lies side by side adds up. */
  private drawAxis(size: number): void {
    const [, title, unit] = this.tree.figure(this.figure);
    const step = roundStep(size / Math.max(2, this.width / 130));
    const ticks = size > 0 ? Array.from({ length: Math.floor(size / step) + 1 }, (_, at) => at * step) : [];
    this.axis.replaceChildren(
      ...ticks
        // The last has no room where it is at the edge.
        .filter((tick) => tick < 0.94 * size)
        .map((tick) => {
          const mark = h("span", {}, tick ? tidy(format(tick, unit)) : `0 – ${title}`);
          mark.style.left = `${(100 * tick) / size}%`;
          return mark;
        }),
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
          h("li", {}, nodeLink(this.context, node, node === here && !part ? "location" : null)),
        ),
        part && h("li", { "aria-current": "location" }, narrower(this.focus)),
      ),
    );
  }

  private zoom(node: number): void {
    const inside = this.cells.contains(document.activeElement);
    const end = this.tree.chainEnd(node, this.tree.total(this.figure));
    const leaf = this.tree.children(end).length === 0 && node > 0;
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

  private hint(cell: HTMLElement, facts: (HTMLElement | string)[]): void {
    const place = cell.getBoundingClientRect();
    this.tip.replaceChildren(...facts);
    this.tip.hidden = false;
    const room = document.documentElement.clientWidth - this.tip.offsetWidth - 8;
    this.tip.style.left = `${Math.max(8, Math.min(place.left, room))}px`;
    const below = place.bottom + 6;
    const fits = below + this.tip.offsetHeight < document.documentElement.clientHeight;
    this.tip.style.top = `${fits ? below : Math.max(4, place.top - this.tip.offsetHeight - 6)}px`;
  }

  private search(): void {
    const wanted = this.input.value.trim().toLowerCase();
    this.found = [];
    this.matches = wanted ? new Uint8Array(this.tree.size) : null;
    if (this.matches) {
      const { labels } = this.tree;
      const hits = this.part.texts.map((text, at) =>
        [text, labels.get(at) ?? ""].some((one) => one.toLowerCase().includes(wanted)),
      );
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
    const part = sizes[0] > 0 ? `, ${share(sum / sizes[0])}` : "";
    return `${this.found.length.toLocaleString("en")} found${part}`;
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

/** 1, 2 or 5 of a power of ten, at least as much as is asked for. */
function roundStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((one) => one * power >= least)!;
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
