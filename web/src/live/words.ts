// What the live views share: states, times, failures.

import { h, name, prose } from "../dom";
import type { Failure, State } from "./data";

const SIGNS: Record<State["kind"], [sign: string, text: string]> = {
  alert: ["▲", "alert"],
  steady: ["●", "steady"],
  unknown: ["○", "unknown"],
  unruled: ["–", "no rule"],
  pending: ["…", "checking"],
  silent: ["◌", "silent"],
  failed: ["✕", "not judged"],
};
const MEANINGS: Record<State["kind"], string> = {
  alert: "",
  steady: "No rule is broken.",
  unknown: "There is too little to judge",
  unruled: "No rule is about it.",
  pending: "The newest runs are being analyzed.",
  silent: "Nothing was recorded lately.",
  failed: "The judgement failed.",
};

export function stateBadge(state: State): HTMLElement {
  const [sign, text] = SIGNS[state.kind];
  const count = state.alerts.length;
  return h(
    "span",
    { class: `state ${state.kind}`, title: state.alerts.join("\n") || meaning(state) },
    h("span", { "aria-hidden": "true" }, sign),
    ` ${count > 1 ? `${count} alerts` : text}`,
  );
}

function meaning({ kind, unjudged }: State): string {
  return unjudged.length && kind === "unknown" ? `${MEANINGS[kind]}: ${unjudged.join(", ")}` : MEANINGS[kind];
}

export function alertList({ alerts }: State): HTMLElement | null {
  if (!alerts.length) return null;
  return h("ul", { class: "warnings alerts", "aria-label": "Alerts" }, ...alerts.map((text) => h("li", { class: "failed" }, prose(text))));
}

export function failure(error: Failure): HTMLElement {
  const { message, cause, remedy, id } = error;
  const lines = [cause, remedy].filter(Boolean).map((text) => h("p", {}, name(text)));
  return h("div", { class: "banner", role: "alert" }, h("p", {}, h("strong", {}, name(message)), ` [${id}]`), ...lines);
}

const STEPS: [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
];

/** "3 h ago" */
export function ago(seconds: number): string {
  const [size, unit] = STEPS.find(([step]) => seconds >= step) ?? [1, "s"];
  return seconds < 2 ? "now" : `${Math.floor(seconds / size)} ${unit} ago`;
}

/** A time that ages where it stands. */
export function since(iso: string): HTMLElement {
  const date = new Date(iso);
  const element = h("time", { datetime: iso, title: moment(iso) });
  element.textContent = Number.isNaN(date.getTime()) ? iso : ago((Date.now() - date.getTime()) / 1000);
  return element;
}

export function moment(iso: string): string {
  return `${iso.slice(0, 16).replace("T", " ")} UTC`;
}

/** "14:03:21", in the reader's time zone. */
export function clock(seconds: number): string {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

export function number(value: number): string {
  return value.toLocaleString("en");
}
