// The timeline of a page, and those of two traces above each other.

import type { TimelineData } from "../data";
import { h, name } from "../dom";
import type { Context, View } from "../registry";
import { type Align, Drawing } from "../timeline/drawing";
import { Events } from "../timeline/events";
import { unpack } from "../timeline/packed";

export const timeline: View<TimelineData & { missing?: string }> = {
  id: "timeline",
  title: "Timeline",
  wide: true,
  draw(part, host, context) {
    if (part.missing) return void host.append(missing(part.missing));
    const note = h("p", { class: "note" }, "Unpacking …");
    host.append(note);
    unpack(part).then(
      (columns) => {
        note.remove();
        new Drawing(part, new Events(part, columns), host, context).start();
        performance.mark("timeline");
        host.dataset.drawn = "";
      },
      (error) => {
        console.error(error);
        note.textContent = `The timeline could not be unpacked: ${error}`;
      },
    );
  },
};

function missing(said: string): HTMLElement {
  const parts = said.split("`");
  return h("p", { class: "note" }, ...parts.map((text, at) => (at % 2 ? h("code", {}, text) : text)));
}

interface TwoData {
  sides: (TimelineData & { title: string })[];
}

export const timelines: View<TwoData> = {
  id: "timelines",
  title: "Timelines",
  wide: true,
  draw({ sides }, host, context) {
    Promise.all(sides.map(unpack)).then(
      (columns) => {
        together(sides, columns.map((one, at) => new Events(sides[at], one)), host, context);
        host.dataset.drawn = "";
      },
      (error) => host.append(h("p", { class: "note" }, `The timelines could not be unpacked: ${error}`)),
    );
  },
};

/** Both with one view: at the same place are moments equally long after the begin of a step. */
function together(sides: TwoData["sides"], events: Events[], host: HTMLElement, context: Context): void {
  const steps = events.map((side) => side.steps().map((step) => side.columns.begin[step]).sort((a, b) => a - b));
  const common = Math.min(...steps.map((begins) => begins.length));
  const origins = (step: number) => steps.map((begins) => (common ? begins[step] : 0));
  const select = h("select", {
    change: () => align(Number(select.value)),
  }, ...Array.from({ length: common }, (_, step) => h("option", { value: step }, `${step + 1}`))) as HTMLSelectElement;
  host.append(
    h(
      "div",
      { class: "controls" },
      common > 0 && h("label", {}, "Aligned at the begin of step ", select),
      !common && h("span", { class: "note" }, "Aligned at the begin: one of them marks no steps."),
    ),
  );
  const drawings: Drawing[] = sides.map((side, at) => {
    const place = h("div", { class: "side" });
    host.append(h("h3", {}, name(side.title)), place);
    return new Drawing(side, events[at], place, context, {
      tallest: 380,
      brief: at + 1 < sides.length,
      moved: (from, to) => drawings.forEach((other, number) => number !== at && other.follow(from, to)),
    });
  });
  drawings.forEach((drawing) => drawing.start());
  function align(step: number): void {
    const begins = origins(step);
    const low = Math.min(...begins.map((begin) => -begin));
    const high = Math.max(...begins.map((begin, at) => sides[at].duration - begin));
    drawings.forEach((drawing, at) => drawing.align({ origin: begins[at], low, high } satisfies Align));
  }
  align(0);
}
