// A small curve: the shape of a series without axes, its last value as a dot.

import { svg } from "../dom";

const WIDTH = 148;
const HEIGHT = 30;
const PAD = 3.5;

export function sparkline(values: (number | null)[], label: string): SVGElement {
  const known = values.filter((value): value is number => value !== null);
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const x = (at: number) => PAD + (values.length < 2 ? 1 : at / (values.length - 1)) * (WIDTH - 2 * PAD);
  // A curve that moves by less than 2 % is nearly flat, not noise blown up to the whole height.
  const span = Math.max(most - least, Math.abs(most) * 0.02) || 1;
  const low = (most + least - span) / 2;
  const y = (value: number) => HEIGHT - PAD - ((value - low) / span) * (HEIGHT - 2 * PAD);
  const place = (at: number) => `${x(at).toFixed(1)} ${y(values[at]!).toFixed(1)}`;
  let line = "";
  let area = "";
  values.forEach((value, at) => {
    if (value === null) return;
    const begins = at === 0 || values[at - 1] === null;
    line += `${begins ? "M" : "L"}${place(at)}`;
    area += begins ? `M${x(at).toFixed(1)} ${HEIGHT}L${place(at)}` : `L${place(at)}`;
    if (values[at + 1] == null) area += `L${x(at).toFixed(1)} ${HEIGHT}Z`;
  });
  const last = values.findLastIndex((value) => value !== null);
  return svg(
    "svg",
    { class: "sparkline", width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
    ...(last < 0
      ? []
      : [
          svg("path", { class: "area", d: area }),
          svg("path", { class: "line", d: line }),
          svg("circle", { class: "dot", cx: x(last), cy: y(values[last]!), r: 2.6 }),
        ]),
  );
}
