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
      label: `Timeline of ${side.title}`,
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

interface JobData {
  /** The ranks drawn, with the time of each begin on the clock of all, in ns after the first. */
  ranks: { option: number; begin: number; late: boolean }[];
  note: string;
}

const TALLEST_RANK = 170;

/** All ranks above each other on one clock, drawn once they come into view. */
export const job: View<JobData> = {
  id: "job",
  title: "Ranks over time",
  wide: true,
  draw(part, host, context) {
    const place = h("div", {});
    place.style.minHeight = `${part.ranks.length * 60}px`;
    host.append(h("p", { class: "note" }, part.note), place);
    new IntersectionObserver((entries, observer) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      observer.disconnect();
      drawRanks(part, place, context).then(
        () => (host.dataset.drawn = ""),
        (error) => place.append(h("p", { class: "note" }, `The timelines could not be unpacked: ${error}`)),
      );
    }).observe(place);
  },
};

async function drawRanks({ ranks }: JobData, place: HTMLElement, context: Context): Promise<void> {
  const { options } = context.page.choice!;
  const sides = ranks.map(({ option }) => options[option].parts.timeline as TimelineData);
  const columns = await Promise.all(sides.map(unpack));
  // An event belongs to the tree of its own rank, and findings lead to that rank's timeline.
  const apart: Context = { ...context, tree: null, onLocate: () => {} };
  const drawings: Drawing[] = ranks.map((rank, at) => {
    const host = h("div", { class: "side" });
    const choose = () => context.choose(rank.option);
    place.append(
      h(
        "h3",
        {},
        h("button", { type: "button", class: "link inline", click: choose }, `Rank ${options[rank.option].name}`),
        rank.late && " · straggler",
      ),
      host,
    );
    return new Drawing(sides[at], new Events(sides[at], columns[at]), host, apart, {
      tallest: TALLEST_RANK,
      label: `Timeline of rank ${options[rank.option].name}`,
      brief: at + 1 < ranks.length,
      row: true,
      below: at > 0,
      moved: (from, to) => drawings.forEach((other, number) => number !== at && other.follow(from, to)),
    });
  });
  drawings.forEach((drawing) => drawing.start());
  const high = Math.max(...ranks.map(({ begin }, at) => begin + sides[at].duration));
  drawings.forEach((drawing, at) => drawing.align({ origin: -ranks[at].begin, low: 0, high }));
}
