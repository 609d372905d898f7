// How figures look: the rules of torchgauge's units.py, on whole nanoseconds and bytes.

export type Unit =
  | "text"
  | "time"
  | "bytes"
  | "count"
  | "elements"
  | "share"
  | "flop/s"
  | "bytes/s"
  | "flop/byte"
  | "watt"
  | "hertz"
  | "delta"
  | "change"
  | "growth"
  | "number";
export type Value = number | string | null;

const NOTHING = "–";
const SMALLEST = 1e-3;
const DECIMAL: [number, string][] = [
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
  [1, ""],
];
const ELEMENTS: [number, string][] = [
  [1e12, "T"],
  [1e9, "B"],
  ...DECIMAL.slice(3),
];
const TIME: [number, string][] = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

export function significant(value: number, digits = 3): string {
  if (value === 0) return "0";
  if (!Number.isFinite(value)) return "–"; // of nothing
  let decimals = digits - 1 - Math.floor(Math.log10(Math.abs(value)));
  const rounded = Number(value.toPrecision(digits));
  decimals = digits - 1 - Math.floor(Math.log10(Math.abs(rounded)));
  const shown = Math.min(Math.max(decimals, 0), 15);
  const text = rounded.toLocaleString("en", {
    minimumFractionDigits: shown,
    maximumFractionDigits: shown,
  });
  return text.replace(/^-/, "−");
}

function scaled(value: number, steps: [number, string][], digits: number): [string, string] {
  const step =
    steps.find(([factor]) => Math.abs(value) >= factor * (1 - 0.5 * 10 ** -digits)) ??
    steps[steps.length - 1];
  return [significant(value / step[0], digits), step[1]];
}

export function time(ns: number, digits = 3): string {
  return ns === 0 ? "0 s" : scaled(ns, TIME, digits).join(" ");
}

export function bytes(count: number, digits = 3): string {
  if (Math.abs(count) < 1000) return `${Math.round(count)} B`;
  return `${scaled(count, DECIMAL, digits).join(" ")}B`;
}

export function count(number: number, digits = 3): string {
  return counted(number, DECIMAL, digits);
}

/** A number of parameters: as a count, billions as B. */
export function elements(number: number, digits = 3): string {
  return counted(number, ELEMENTS, digits);
}

function counted(number: number, steps: [number, string][], digits: number): string {
  if (Math.abs(number) < 10_000) return number.toLocaleString("en", { maximumFractionDigits: 0 });
  return scaled(number, steps, digits).join(" ").trim();
}

export function percent(fraction: number, digits = 1): string {
  return `${(100 * fraction).toFixed(digits)} %`;
}

/** A share of a whole: none is 0 %, what is too small for a digit is said to be. */
export function share(fraction: number): string {
  if (fraction === 0) return "0 %";
  return fraction > 0 && fraction < SMALLEST ? `<${percent(SMALLEST)}` : percent(fraction);
}

function rate(value: number, unit: string): string {
  const [number, prefix] = scaled(value, DECIMAL, 3);
  return `${number} ${prefix}${unit}`;
}

const SHOWN: Record<Unit, (value: number, digits?: number) => string> = {
  text: (value) => String(value),
  time,
  bytes,
  count,
  elements,
  share,
  "flop/s": (value) => rate(value, "FLOP/s"),
  "bytes/s": (value) => rate(value, "B/s"),
  "flop/byte": (value) => significant(value),
  delta: (value) => signed(value, time(Math.abs(value))),
  change: (value) => signed(value, percent(Math.abs(value))),
  growth: (value) => signed(value, bytes(Math.abs(value))),
  number: (value) => significant(value),
  watt: (value) => `${significant(value)} W`,
  hertz: (value) => rate(value, "Hz"),
};

function signed(value: number, text: string): string {
  return value === 0 ? text : (value > 0 ? "+" : "−") + text;
}

/** As at the ticks of an axis: without zeros that only fill up digits. */
export function tidy(text: string): string {
  return text.replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, "");
}

/** A figure as text; what is not known is a dash, never 0. */
export function format(value: Value, unit: Unit, digits?: number): string {
  if (value === null || (typeof value === "number" && Number.isNaN(value))) return NOTHING;
  return typeof value === "string" ? value : SHOWN[unit](value, digits);
}
