// The roofline: layers as points under what the device can do, both axes by powers of ten.

import { grid, logarithmic, MARGIN, type Scale } from "../axes";
import type { NoRoofs, RooflineData } from "../data";
import { badge, h, name, responsive, svg } from "../dom";
import { format, share, significant, time } from "../format";
import type { Context, View } from "../registry";

const HEIGHT = 420;
const BOUNDS = ["compute", "memory", "overhead"];

export const roofline: View<RooflineData | NoRoofs> = {
  id: "roofline",
  title: "Roofline",
  draw(data, host, context) {
    if ("missing" in data) {
      host.append(h("p", {}, `${data.missing} `, data.command && h("code", {}, data.command)));
      return;
    }
    const part = data;
    const said = h("div", { class: "readout note", "aria-live": "polite" }, "\u00a0");
    const frame = h("div", { class: "roofline" });
    host.append(
      h("p", { class: "note" }, source(part), badge(part.how)),
      frame,
      said,
      legend(part),
    );
    responsive(frame, (width) => frame.replaceChildren(draw(part, width, said, context)));
  },
};

function source({ roofs }: RooflineData): string {
  const named = roofs.map((one) => `${one.device} (${one.source})`).join(", ");
  return `Each layer by how fast it is and how much it computes for a byte. No layer can lie above the roofs of ${named}. `;
}

function legend({ points }: RooflineData): HTMLElement {
  const known = BOUNDS.filter((one) => points.bound.includes(one));
  const entry = (shape: string, label: string) =>
    h(
      "li",
      {},
      svg("svg", { width: 14, height: 14, "aria-hidden": "true" }, mark(shape, 7, 7, 5)),
      label,
    );
  return h(
    "ul",
    { class: "legend" },
    ...known.map((one) => entry(one, `bound by ${one}`)),
    points.bound.includes(null) && entry("unknown", "not known"),
    h("li", {}, "Area: time of the layer. The ring is the whole model."),
  );
}

/** Shapes besides colours, for those who cannot tell these apart. */
function mark(bound: string, x: number, y: number, r: number): SVGElement {
  const attributes = { class: `point ${bound}` };
  if (bound === "memory") {
    return svg("rect", {
      ...attributes,
      x: x - r * 0.9,
      y: y - r * 0.9,
      width: r * 1.8,
      height: r * 1.8,
    });
  }
  if (bound === "overhead") {
    return svg("path", {
      ...attributes,
      d: `M${x} ${y - r * 1.2}L${x + r * 1.1} ${y + r * 0.8}H${x - r * 1.1}Z`,
    });
  }
  return svg("circle", { ...attributes, cx: x, cy: y, r });
}

type Roof = RooflineData["roofs"][0];

function draw(part: RooflineData, width: number, said: HTMLElement, context: Context): SVGElement {
  const { points, roofs } = part;
  const peaks = roofs.flatMap((one) => Object.values(one.peaks));
  const bottom = HEIGHT - MARGIN.bottom;
  const x = logarithmic([...points.intensity, ...ridges(part)], MARGIN.left, width - MARGIN.right);
  const y = logarithmic([...points.speed, ...peaks], bottom, MARGIN.top);
  const picture = svg(
    "svg",
    {
      width,
      height: HEIGHT,
      viewBox: `0 0 ${width} ${HEIGHT}`,
      role: "group",
      "aria-label": `Roofline with ${points.node.length} layers`,
    },
    ...grid(x, y, width, HEIGHT, "intensity, FLOP per byte", "speed, FLOP/s"),
    ...roofs.flatMap((one) => roofLines(one, x, y, width)),
    ...order(points.time).map((at) => point(part, at, x, y, said, context)),
    ...roofs.flatMap((one) => roofLabels(one, roofs.length > 1, x, y, width)),
  );
  return picture;
}

/** Where traffic's slopes meet the peaks, so that both are in the picture. */
function ridges({ roofs }: RooflineData): number[] {
  return roofs.flatMap((one) =>
    Object.values(one.traffic).flatMap((speed) =>
      Object.values(one.peaks).map((peak) => peak / speed),
    ),
  );
}

function roofLines(
  { source, traffic, peaks }: Roof,
  x: Scale,
  y: Scale,
  width: number,
): SVGElement[] {
  const fastest = Math.max(...Object.values(traffic), 0);
  const peak = Math.max(...Object.values(peaks));
  const line = (x1: number, y1: number, x2: number, y2: number) =>
    svg("line", { class: `roof ${source}`, x1, y1, x2, y2 });
  return [
    ...Object.values(traffic).map((speed) => {
      const [from, to] = ends(speed, peak, x, y);
      return line(x(from), y(from * speed), x(to), y(to * speed));
    }),
    ...Object.values(peaks).map((speed) => {
      const from = fastest ? Math.max(x.low, speed / fastest) : x.low;
      return line(x(from), y(speed), width - MARGIN.right, y(speed));
    }),
  ];
}

/** From where to where, in intensity, a slope of traffic is in the picture and below the peak. */
function ends(speed: number, peak: number, x: Scale, y: Scale): [number, number] {
  return [Math.max(x.low, y.low / speed), Math.min(x.high, peak / speed, y.high / speed)];
}

/** Above what was measured, below what a datasheet promises: the two may lie close together. */
function roofLabels(
  { source, traffic, peaks }: Roof,
  several: boolean,
  x: Scale,
  y: Scale,
  width: number,
): SVGElement[] {
  const printed = source === "datasheet";
  const which = several && printed ? "datasheet: " : "";
  const aside = several && printed ? 14 : -6;
  const peak = Math.max(...Object.values(peaks));
  const slopes = Object.entries(traffic).map(([label, speed]) => {
    const [from, to] = ends(speed, peak, x, y);
    const angle = (Math.atan2(y(to * speed) - y(from * speed), x(to) - x(from)) * 180) / Math.PI;
    const place = `translate(${x(from)} ${y(from * speed)}) rotate(${angle})`;
    const text = `${which}${label} ${format(speed, "bytes/s")}`;
    return svg("text", { class: "roof-label", x: 10, y: aside, transform: place }, text);
  });
  const flats = Object.entries(peaks).map(([label, speed]) => {
    const place = { x: width - MARGIN.right - 4, y: y(speed) + aside, "text-anchor": "end" };
    const text = `${which}${label} ${format(speed, "flop/s")}`;
    return svg("text", { class: "roof-label", ...place }, text);
  });
  return [...slopes, ...flats];
}

/** Large ones first, so that they do not hide small ones. */
function order(times: number[]): number[] {
  return times.map((_, at) => at).sort((a, b) => times[b] - times[a]);
}

function point(
  { points }: RooflineData,
  at: number,
  x: Scale,
  y: Scale,
  said: HTMLElement,
  context: Context,
): SVGElement {
  const longest = Math.max(...points.time.slice(1), 1);
  const whole = points.node[at] === 0;
  const r = whole ? 9 : Math.max(3.5, 12 * Math.sqrt(points.time[at] / longest));
  const [cx, cy] = [x(points.intensity[at]), y(points.speed[at])];
  const efficiency = points.efficiency[at];
  const parts = [
    `${points.path[at]} (${points.type[at]}): ${time(points.time[at])}`,
    format(points.speed[at], "flop/s"),
    `${significant(points.intensity[at])} FLOP/B`,
    points.bound[at] && `bound by ${points.bound[at]}`,
    efficiency !== null && `${share(efficiency)} of the roof`,
  ];
  const label = parts.filter(Boolean).join(", ");
  const tell = () => said.replaceChildren(name(label));
  const open = () => context.open(points.node[at]);
  const press = (event: KeyboardEvent) =>
    (event.key === "Enter" || event.key === " ") && (event.preventDefault(), open());
  return svg(
    "g",
    {
      role: "button",
      tabindex: 0,
      class: whole ? "whole" : null,
      "aria-label": label,
      click: open,
      keydown: press,
      pointerenter: tell,
      focus: tell,
    },
    mark(points.bound[at] ?? "unknown", cx, cy, r),
    svg("title", {}, label),
  );
}
