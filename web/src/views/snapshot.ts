// A memory snapshot: who held memory, the course of it, how it is filled, why it ran out.

import { chart, type Line } from "../chart";
import type { CourseData, HeldData, LayoutData, OomsData } from "../data";
import { definitions, stack } from "../definitions";
import { badge, h, name, responsive } from "../dom";
import { bytes, time } from "../format";
import { lanes } from "../lanes";
import type { View } from "../registry";
import { Table } from "../table";
import { tabs } from "../tabs";
import { treemap } from "../treemap";

export const held: View<HeldData> = {
  id: "held",
  title: "Who holds memory",
  wide: true,
  draw(part, host) {
    const made = part.map((one) => ({
      title: `${one.title}: ${bytes(one.whole)}`,
      make: () => [
        ...(one.categories.length ? [stack(one.categories, one.whole, bytes)] : []),
        h("p", { class: "note" }, one.note),
        new Table(one.table, null).element,
      ],
    }));
    host.append(tabs("held", "Who holds memory", made));
  },
};

export const course: View<CourseData> = {
  id: "course",
  title: "Memory over time",
  wide: true,
  draw(part, host) {
    const stacked = part.stacked.length > 0;
    const lines: Line[] = stacked
      ? part.stacked.map(([label, values], at) => ({
          label,
          values,
          colour: at ? `--series-${at - 1}` : "--series-7",
          stepped: true,
        }))
      : [{ label: "alive", values: part.alive, colour: "--series-0", fill: true, stepped: true }];
    if (part.reserved) {
      lines.push({ label: "reserved", values: part.reserved, colour: "--text", stepped: true, apart: true });
    }
    if (part.failed.length) {
      const at = new Set(part.failed);
      const values = part.alive.map((value, place) => (at.has(place) ? value : null));
      lines.push({ label: "an allocation failed at", values, colour: "--fail", points: true, size: 9, apart: true });
    }
    chart(host, {
      summary: part.summary,
      x: part.x,
      lines,
      stacked,
      legend: true,
      height: 300,
      showX: (value) => (part.timed ? time(value) : value.toLocaleString("en")),
      showY: (value) => bytes(value, 4),
      xLabel: part.timed ? "time" : "event",
      levels: [{ value: part.peak, label: `peak ${bytes(part.peak)}`, colour: stacked ? "--text" : "--series-1" }],
      marks: part.marks?.drawn,
      fromZero: true,
    });
    host.append(
      h("p", { class: "note" }, `${part.note} `, badge("measured")),
    );
    if (part.marks) {
      const all = new Table(part.marks.table, null).element;
      const { drawn } = part.marks;
      const deeper = drawn.length - lanes(drawn).flat().length;
      const said = drawn.length
        ? "Above: what the program marked (record_function). Drag to zoom in, double click to zoom out."
        : "The program marked ranges, at times that are not known.";
      const less = deeper > 0 && `${deeper.toLocaleString("en")} marks inside of these are in the table alone.`;
      host.append(
        h("p", { class: "note" }, said, less && ` ${less}`),
        h("details", {}, h("summary", {}, "All that was marked"), all),
      );
    }
  },
};

const FILLED = ["in use", "pending", "largest free piece", "other free pieces", "unlisted"];

export const layout: View<LayoutData> = {
  id: "layout",
  title: "Segments",
  wide: true,
  draw(part, host) {
    const said = h("div", { class: "readout note", "aria-live": "polite" }, "\u00a0");
    const frame = h("div", {
      class: "map",
      role: "img",
      "aria-label": `Map of ${part.map.length} segments by size; the table below says all of it.`,
    });
    const [segments, size] = part.left;
    host.append(
      h(
        "p",
        {},
        "A segment is a piece of memory that the allocator took from the device in one go; it gives parts of it, ",
        "blocks, to tensors. A free block can serve another tensor that is no larger. Memory goes back to the ",
        "device only where a whole segment is free (or a page of an expandable one), so free blocks between ",
        "blocks in use may lie idle while an allocation fails.",
      ),
      h("h3", {}, `Of ${bytes(part.reserved, 4)} reserved `, badge("counted")),
      stack(part.parts, part.reserved, bytes, (at) => `filled-${FILLED.indexOf(part.parts[at][0])}`),
      h("h3", {}, "Fragmentation, by three definitions"),
      definitions(part.rows),
      h("h3", {}, "Map of the segments"),
      h(
        "p",
        { class: "note" },
        "Area: size. From left to right: blocks by address, neighbours of one state together.",
        segments > 0 && ` Without ${segments.toLocaleString("en")} smaller ones, ${bytes(size)} together.`,
      ),
      frame,
      said,
      legend(),
      h("details", {}, h("summary", {}, "All segments"), new Table(part.table, null).element),
    );
    responsive(frame, (width) => draw(part, frame, width, said));
  },
};

function draw(part: LayoutData, frame: HTMLElement, width: number, said: HTMLElement): void {
  const height = Math.round(Math.max(200, Math.min(340, width / 3)));
  frame.style.height = `${height}px`;
  const tiles = treemap(
    part.map.map((one) => one.size),
    width,
    height,
  );
  frame.replaceChildren(
    ...tiles.map(({ at, x, y, width: wide, height: high }) => {
      const one = part.map[at];
      const largest = Math.min(...one.runs);
      const drawn = one.runs.map((run) => {
        const kind = run > 0 ? 0 : run === largest ? 2 : 3;
        const element = h("span", { class: `filled-${kind}` });
        element.style.flex = `${Math.abs(run) / one.size} 0 0`;
        return element;
      });
      const tell = () => said.replaceChildren(name(one.said));
      const tile = h("div", { class: "tile", pointerenter: tell }, ...drawn);
      const { style } = tile;
      // In shares of the whole: paper is narrower than the screen that this was laid out for.
      style.left = `${(100 * x) / width}%`;
      style.top = `${(100 * y) / height}%`;
      style.width = `calc(${(100 * wide) / width}% - 1px)`;
      style.height = `calc(${(100 * high) / height}% - 1px)`;
      return tile;
    }),
  );
}

function legend(): HTMLElement {
  const shown = ["in use or pending", "", "largest free piece", "other free pieces", "unlisted"];
  const item = (label: string, at: number) =>
    label && h("li", {}, h("span", { class: `swatch filled-${at}`, "aria-hidden": "true" }), label);
  return h("ul", { class: "legend" }, ...shown.map(item));
}

export const ooms: View<OomsData> = {
  id: "ooms",
  title: "Allocations that failed",
  wide: true,
  draw(part, host) {
    host.append(
      h(
        "div",
        { class: "blocks" },
        ...part.last.map(({ title, bars }) => {
          const most = Math.max(...bars.map(([, size]) => size ?? 0), 1);
          return h(
            "div",
            {},
            h("h3", {}, title, " ", badge("estimated")),
            h("ul", { class: "bars" }, ...bars.map(([label, size]) => bar(label, size, most))),
          );
        }),
      ),
      h("h3", {}, "All of them"),
      new Table(part.table, null).element,
    );
  },
};

function bar(label: string, size: number | null, most: number): HTMLElement {
  const drawn = h("i", { class: label === "asked for" ? "asked" : null, "aria-hidden": "true" });
  drawn.style.width = `${(100 * (size ?? 0)) / most}%`;
  return h("li", {}, h("span", {}, label), h("b", {}, size === null ? "unknown" : bytes(size)), size !== null && drawn);
}
