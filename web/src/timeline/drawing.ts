// Draws one timeline and answers to pointer and keys; two of them can share their view.

import type { TimelineData } from "../data";
import { h, name, responsive } from "../dom";
import { format, tidy } from "../format";
import type { Context } from "../registry";
import { Table } from "../table";
import { counters } from "./counters";
import { eventPanel, legend, tipLines } from "./event_panel";
import type { Events } from "./events";
import { arrange, devicesFirst, HEADING, rowAt, ROW, type Strip, strips, topOf } from "./layout";
import { Painter, Palette, type Scene } from "./paint";
import { sums } from "./sums";
import type { Target } from "./targets";

const TALLEST = 620;
const LEAST_VIEW = 20; // ns
const ZOOM = 1.5;
const PAN = 0.15;
const NEAR = 3; // px
const ARROWS = 48;
const MARGIN = 3; // an event that is gone to is this part of the view

let drawings = 0;

/** What time is called 0, and the first and last time after it that can be shown. */
export interface Align {
  origin: number;
  low: number;
  high: number;
}

interface Options {
  tallest?: number;
  /** What it is of, for those who cannot see it. */
  label?: string;
  /** Without the legend and the keys, which another drawing below has. */
  brief?: boolean;
  /** One of many: without controls of its own, as tall as its devices' lanes. */
  row?: boolean;
  /** Without the axis, which another drawing above has. */
  below?: boolean;
  /** Called with the view, in ns after the origin, when the reader has moved it. */
  moved?: (from: number, to: number) => void;
}

export class Drawing {
  private readonly strips: Strip[];
  private readonly painter: Painter;
  private palette = new Palette();
  private readonly scene: Scene;
  private frame = 0;
  private limits: Align;
  private readonly keys = `timeline-keys-${++drawings}`;
  private readonly canvas = h("canvas", { "aria-hidden": "true" }) as HTMLCanvasElement;
  private readonly inner = h("div", { class: "lanes-inner" }, this.canvas);
  private readonly box = h(
    "div",
    {
      class: "lanes-box",
      tabindex: 0,
      role: "application",
      keydown: (event: KeyboardEvent) => this.key(event),
      scroll: () => this.redraw(),
    },
    this.inner,
  );
  private readonly axis = h("div", { class: "axis-line", "aria-hidden": "true" });
  private readonly tip = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
  private readonly panel = h("div", { class: "panel", "aria-live": "polite" });
  private readonly range = h("div", { class: "low" });
  private readonly said = h("output", { class: "note" });
  private readonly seen = h("output", { class: "note" });
  private readonly input = h("input", {
    type: "search",
    placeholder: "part of a name",
    input: () => this.search(false),
    keydown: (event: KeyboardEvent) => event.key === "Enter" && this.goNext(event.shiftKey),
  }) as HTMLInputElement;

  constructor(
    private readonly part: TimelineData,
    private readonly events: Events,
    private readonly host: HTMLElement,
    private readonly context: Context,
    private readonly options: Options = {},
  ) {
    this.limits = { origin: 0, low: 0, high: Math.max(part.duration, LEAST_VIEW) };
    this.strips = options.row ? devicesFirst(strips(events, []), events) : strips(events, counters(events));
    this.painter = new Painter(this.canvas, events);
    this.scene = {
      events,
      strips: this.strips,
      from: 0,
      to: Math.max(part.duration, LEAST_VIEW),
      width: 0,
      height: 0,
      scroll: 0,
      selected: -1,
      hovered: -1,
      matches: null,
      range: null,
      arrows: [],
      steps: events.steps(),
    };
  }

  start(): void {
    const button = (text: string, act: () => void, title = "") =>
      h("button", { type: "button", class: "quiet", title, click: act }, text);
    const controls = h(
      "div",
      { class: "controls" },
      h("label", {}, "Search ", this.input),
      button("Previous", () => this.goNext(true), "Shift Enter"),
      button("Next", () => this.goNext(false), "Enter"),
      this.said,
      button("Sum what is in view", () => this.choose([this.scene.from, this.scene.to]), "R"),
      button("Show all", () => this.showAll(), "0"),
      this.seen,
    );
    this.host.append(
      ...(this.options.row ? [] : [controls]),
      ...(this.options.below ? [] : [this.axis]),
      this.box,
      ...(this.options.brief ? [] : [legend(this.events), this.hints()]),
      this.part.note ? h("p", { class: "note" }, this.part.note) : "",
      this.range,
      this.panel,
    );
    this.host.append(this.tip);
    this.box.setAttribute("aria-label", this.options.label ?? "Timeline");
    if (!this.options.brief) this.box.setAttribute("aria-describedby", this.keys);
    this.listen();
    this.placeHeadings();
    responsive(this.box, () => this.resize());
    window.addEventListener("theme", () => {
      this.palette = new Palette();
      this.redraw();
    });
    this.context.onLocate((target) => this.locate(target));
  }

  private hints(): HTMLElement {
    return h(
      "p",
      { class: "note print-hidden", id: this.keys },
      "Drag: move. Click: an event. Shift and drag: sum a range. Wheel, once clicked (or with Ctrl): zoom. " +
        "Keys: W S zoom, A D move, ↑ ↓ lanes, . and , the next event in a row, I and O into it and out, " +
        "F the event in the whole width, R sum, 0 all, Escape back.",
    );
  }

  private listen(): void {
    let drag: { x: number; y: number; from: number; to: number; top: number; select: boolean; moved: boolean } | null = null;
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const { from, to } = this.scene;
      drag = { x: event.offsetX, y: event.clientY, from, to, top: this.box.scrollTop, select: event.shiftKey, moved: false };
      canvas.setPointerCapture(event.pointerId);
      this.box.focus({ preventScroll: true });
      event.preventDefault();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!drag) return this.hover(event);
      const moved = event.offsetX - drag.x;
      drag.moved ||= Math.abs(moved) > NEAR || Math.abs(event.clientY - drag.y) > NEAR;
      if (!drag.moved) return;
      this.tip.hidden = true;
      if (drag.select) {
        const ends = [this.timeAt(drag.x), this.timeAt(event.offsetX)];
        this.scene.range = [Math.min(...ends), Math.max(...ends)];
        return this.redraw();
      }
      const shift = (moved * (drag.to - drag.from)) / this.scene.width;
      this.box.scrollTop = drag.top - (event.clientY - drag.y);
      this.show(drag.from - shift, drag.to - shift);
    });
    const finish = (event: PointerEvent) => {
      if (!drag) return;
      const { select, moved } = drag;
      drag = null;
      if (event.type === "pointercancel") return;
      if (!moved) this.select(this.eventAt(event.offsetX, event.offsetY));
      else if (select) this.choose(this.scene.range);
    };
    canvas.addEventListener("pointerup", finish);
    canvas.addEventListener("pointercancel", finish);
    canvas.addEventListener("pointerleave", () => this.unhover());
    canvas.addEventListener("dblclick", () => this.fit());
    this.box.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  private wheel(event: WheelEvent): void {
    const across = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    const zooms = event.ctrlKey || event.metaKey || document.activeElement === this.box;
    if (!across && !zooms) return; // the page scrolls
    event.preventDefault();
    if (across) return this.pan((event.deltaX || event.deltaY) / this.scene.width);
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    this.zoom(Math.exp(Math.max(-1, Math.min(event.deltaY / 300, 1))), this.timeAt(x));
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.box) return;
    const acts: Record<string, () => void> = {
      w: () => this.zoom(1 / ZOOM),
      "+": () => this.zoom(1 / ZOOM),
      "=": () => this.zoom(1 / ZOOM),
      s: () => this.zoom(ZOOM),
      "-": () => this.zoom(ZOOM),
      a: () => this.pan(-PAN),
      arrowleft: () => this.pan(-PAN),
      d: () => this.pan(PAN),
      arrowright: () => this.pan(PAN),
      arrowup: () => (this.box.scrollTop -= 3 * ROW),
      arrowdown: () => (this.box.scrollTop += 3 * ROW),
      "0": () => this.showAll(),
      home: () => this.showAll(),
      f: () => this.fit(),
      r: () => this.choose([this.scene.from, this.scene.to]),
      n: () => this.goNext(event.shiftKey),
      ".": () => this.step(1),
      ",": () => this.step(-1),
      i: () => this.inward(),
      o: () => this.outward(),
      escape: () => (this.scene.range ? this.choose(null) : this.select(-1)),
    };
    const act = acts[event.key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    this.tip.hidden = true;
    act();
  }

  // Where the view is.

  private timeAt(x: number): number {
    const { from, to, width } = this.scene;
    return from + (x * (to - from)) / width;
  }

  private show(from: number, to: number): void {
    const { origin, low, high } = this.limits;
    const length = Math.min(Math.max(to - from, LEAST_VIEW), high - low);
    this.scene.from = Math.max(origin + low, Math.min(from, origin + high - length));
    this.scene.to = this.scene.from + length;
    this.redraw();
    this.options.moved?.(this.scene.from - origin, this.scene.to - origin);
  }

  private showAll(): void {
    const { origin, low, high } = this.limits;
    this.show(origin + low, origin + high);
  }

  /** Show what another drawing shows. */
  follow(from: number, to: number): void {
    this.scene.from = this.limits.origin + from;
    this.scene.to = this.limits.origin + to;
    this.redraw();
  }

  /** Put the origin elsewhere, and show all. */
  align(range: Align): void {
    this.limits = { ...range, high: Math.max(range.high, range.low + LEAST_VIEW) };
    this.scene.from = range.origin + range.low;
    this.scene.to = range.origin + this.limits.high;
    this.redraw();
  }

  private zoom(factor: number, around?: number): void {
    const { from, to, selected } = this.scene;
    const { begin, end } = this.events.columns;
    const middle = selected >= 0 ? (begin[selected] + end[selected]) / 2 : NaN;
    const centre = around ?? (middle > from && middle < to ? middle : (from + to) / 2);
    this.show(centre - (centre - from) * factor, centre + (to - centre) * factor);
  }

  private pan(share: number): void {
    const { from, to } = this.scene;
    const shift = share * (to - from);
    this.show(from + shift, to + shift);
  }

  private fit(): void {
    const { selected } = this.scene;
    if (selected < 0) return;
    const { begin, end } = this.events.columns;
    const margin = (end[selected] - begin[selected]) * 0.05;
    this.show(begin[selected] - margin, end[selected] + margin);
  }

  // What is selected.

  private eventAt(x: number, y: number): number {
    const row = rowAt(this.strips, y + this.box.scrollTop);
    if (!row) return -1;
    const near = (NEAR * (this.scene.to - this.scene.from)) / this.scene.width;
    return this.events.at(row, this.timeAt(x), near);
  }

  private hover(event: PointerEvent): void {
    const found = this.eventAt(event.offsetX, event.offsetY);
    if (found < 0) return this.unhover();
    if (found !== this.scene.hovered) {
      this.scene.hovered = found;
      this.tip.replaceChildren(...tipLines(this.events, found));
      this.redraw();
    }
    this.tip.hidden = false;
    const room = document.documentElement.clientWidth - this.tip.offsetWidth - 8;
    this.tip.style.left = `${Math.max(8, Math.min(event.clientX + 12, room))}px`;
    const below = event.clientY + 16;
    const fits = below + this.tip.offsetHeight < document.documentElement.clientHeight;
    this.tip.style.top = `${fits ? below : Math.max(4, event.clientY - this.tip.offsetHeight - 12)}px`;
  }

  private unhover(): void {
    this.tip.hidden = true;
    if (this.scene.hovered >= 0) {
      this.scene.hovered = -1;
      this.redraw();
    }
  }

  private select(event: number): void {
    const { scene, events } = this;
    scene.selected = event;
    scene.arrows = [];
    if (event >= 0) {
      const launch = events.columns.launch[event];
      if (launch >= 0) scene.arrows = [[launch, event]];
      else
        scene.arrows = events
          .launches(event, ARROWS)
          .map((work) => [events.columns.launch[work], work]);
    }
    this.panel.replaceChildren(
      ...(event < 0
        ? []
        : eventPanel(events, event, this.context, {
            go: (other) => this.go(other),
            next: (back) => {
              this.input.value = events.name(event);
              this.search(true);
              this.goNext(back);
            },
            fit: () => this.fit(),
          })),
    );
    this.redraw();
  }

  /** Select an event and bring it into view. */
  private go(event: number): void {
    if (event < 0) return;
    const { begin, end } = this.events.columns;
    const { from, to } = this.scene;
    const length = end[event] - begin[event];
    const shown = begin[event] >= from && end[event] <= to && length > (to - from) / 200;
    if (!shown) {
      const view = Math.max(Math.min(to - from, length * 40), length * MARGIN, LEAST_VIEW);
      const centre = (begin[event] + end[event]) / 2;
      this.show(centre - view / 2, centre + view / 2);
    }
    const row = this.events.row(event);
    const strip = this.strips.find(({ lane }) => lane === row.lane)!;
    if (!strip.open) this.toggle(strip);
    const top = topOf(this.strips, row)!;
    const { scrollTop, clientHeight } = this.box;
    if (top < scrollTop + HEADING || top + ROW > scrollTop + clientHeight) {
      this.box.scrollTop = top - clientHeight / 2;
    }
    this.select(event);
  }

  private step(way: number): void {
    const { selected } = this.scene;
    if (selected < 0) return this.go(this.firstInView());
    const { from, to } = this.events.row(selected);
    const other = selected + way;
    if (other >= from && other < to) this.go(other);
  }

  private firstInView(): number {
    for (const strip of this.strips) {
      if (!strip.open || strip.top + strip.height < this.box.scrollTop) continue;
      for (const row of strip.rows) {
        const event = Math.max(this.events.after(this.scene.from, row.from, row.to) - 1, row.from);
        if (this.events.columns.begin[event] < this.scene.to) return event;
      }
    }
    return -1;
  }

  private inward(): void {
    const { selected } = this.scene;
    if (selected < 0) return this.go(this.firstInView());
    const { lane, depth } = this.events.row(selected);
    const inner = this.events.rows.find((row) => row.lane === lane && row.depth === depth + 1);
    if (!inner) return;
    const { begin, end } = this.events.columns;
    const first = this.events.after(begin[selected] - 0.5, inner.from, inner.to);
    if (first < inner.to && begin[first] < end[selected]) this.go(first);
  }

  private outward(): void {
    const { selected } = this.scene;
    if (selected >= 0) this.go(this.events.around(selected).at(-1) ?? -1);
  }

  // Search and sums.

  private search(exact: boolean): void {
    const wanted = this.input.value.trim();
    this.scene.matches = wanted ? this.events.named(wanted, exact) : null;
    this.said.textContent = "";
    if (this.scene.matches) {
      const { name: names } = this.events.columns;
      const of = new Float64Array(this.part.names.length);
      for (const { lane, from, to } of this.events.rows)
        if (this.part.lanes[lane].group !== "path")
          for (let event = from; event < to; event++) of[names[event]]++;
      const count = of.reduce((sum, some, at) => sum + (this.scene.matches![at] ? some : 0), 0);
      this.said.textContent = `${count.toLocaleString("en")} found`;
      if (!count) this.scene.matches = null; // nothing to dim the others for
    }
    this.redraw();
  }

  private goNext(back: boolean): void {
    const { matches, selected } = this.scene;
    if (!matches) return;
    const next = this.events.next(matches, selected, back);
    this.go(next >= 0 ? next : this.events.next(matches, -1, back));
  }

  /** Show the longest event of a name, in a layer if it has any there, or of a kind. */
  private locate({ name: wanted, kind, layer }: Target): void {
    this.input.value = wanted;
    this.search(true);
    const matches = this.scene.matches ?? Uint8Array.from(this.part.kinds, (one) => Number(one === kind));
    this.go(this.events.longest(matches, layer));
    this.host.closest("section")?.scrollIntoView({ block: "start" });
    this.box.focus({ preventScroll: true });
  }

  private choose(range: [number, number] | null): void {
    this.scene.range = range;
    this.range.replaceChildren();
    if (range) {
      const [from, to] = range;
      this.range.append(
        h("h3", {}, `From ${format(from, "time")} to ${format(to, "time")}: ${format(to - from, "time")}`),
        new Table(sums(this.events, from, to), null).element,
      );
    }
    this.redraw();
  }

  // Drawing.

  private placeHeadings(): void {
    this.inner.querySelectorAll("button").forEach((button) => button.remove());
    const height = arrange(this.strips);
    this.inner.style.height = `${height}px`;
    for (const strip of this.strips) {
      const button = h(
        "button",
        { type: "button", class: "lane", "aria-expanded": String(strip.open), tabindex: -1, click: () => this.toggle(strip) },
        strip.open ? "▾ " : "▸ ",
        name(strip.title),
      );
      button.style.top = `${strip.top}px`;
      this.inner.append(button);
    }
    this.resize();
  }

  private toggle(strip: Strip): void {
    strip.open = !strip.open;
    this.placeHeadings();
  }

  private resize(): void {
    const open = this.strips.filter((strip) => strip.open).reduce((sum, { height }) => sum + height, 0);
    const all = this.options.row && open ? open : parseFloat(this.inner.style.height);
    const height = Math.min(all, this.options.tallest ?? TALLEST, innerHeight * 0.75);
    this.box.style.height = `${height + 2}px`;
    this.scene.width = Math.max(this.inner.clientWidth, 50);
    this.scene.height = height;
    this.canvas.style.width = `${this.scene.width}px`;
    this.canvas.style.height = `${height}px`;
    this.axis.style.width = `${this.scene.width}px`;
    this.paint();
  }

  private redraw(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.paint());
  }

  private paint(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.scene.width) return;
    this.scene.scroll = this.box.scrollTop;
    this.painter.paint(this.scene, this.palette);
    this.drawAxis();
    const { from, to } = this.scene;
    const begin = from - this.limits.origin;
    this.seen.textContent = `${format(to - from, "time")} from ${signed(begin, 5)} on`;
  }

  private drawAxis(): void {
    const { width } = this.scene;
    const [from, to] = [this.scene.from, this.scene.to].map((time) => time - this.limits.origin);
    const step = roundStep((to - from) / Math.max(2, width / 120));
    const last = Math.max(Math.abs(from), Math.abs(to));
    const digits = Math.min(15, Math.max(3, Math.ceil(Math.log10(Math.max(last / step, 1))) + 2));
    const marks: HTMLElement[] = [];
    for (let at = Math.ceil(from / step); at * step < to - 0.06 * (to - from); at++) {
      const mark = h("span", {}, at ? tidy(signed(at * step, digits)) : "0");
      mark.style.left = `${((at * step - from) / (to - from)) * width}px`;
      marks.push(mark);
    }
    this.axis.replaceChildren(...marks);
  }
}

function signed(ns: number, digits: number): string {
  return (ns < 0 ? "−" : "") + format(Math.abs(ns), "time", digits);
}

/** 1, 2 or 5 of a power of ten, at least as much as is asked for. */
function roundStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((one) => one * power >= least)!;
}
