// The live page: a view at a time, which the address names after its #.
// `#` the fleet, `#model=KEY` a model of the history, `#monitor=KEY` a live series.

import "uplot/dist/uPlot.min.css";
import "../page.css";
import "./live.css";
import { h, svg } from "../dom";
import { themeButton } from "../theme";
import { fleet } from "./fleet";
import { model } from "./model";
import { monitor } from "./monitor";
import { onLink } from "./source";

const VIEWS: Record<string, (host: HTMLElement, key: string) => () => void> = { model, monitor };

const link = h("span", { class: "link", role: "status" }, "connecting");
const back = h("a", { href: "#", class: "back" }, "Fleet");
const main = h("main", { id: "main", tabindex: -1 });
document.body.append(
  h("a", { class: "skip", href: "#main", click: skip }, "Skip to the content"),
  h("header", {}, h("a", { class: "brand", href: "#" }, icon(), h("strong", {}, "torchgauge")), h("nav", { "aria-label": "Views" }, back), link, themeButton()),
  main,
);
onLink.push((state) => {
  if (link.dataset.link === state) return;
  link.dataset.link = state;
  link.textContent = state === "live" ? "live" : "no answer; asking again";
});

let end: (() => void) | null = null;

function show(): void {
  const [, kind, key] = /^#(\w+)=([0-9a-f]{16})$/.exec(location.hash) ?? [];
  const view = kind ? VIEWS[kind] : undefined;
  end?.();
  main.replaceChildren();
  document.title = "torchgauge";
  if (view) back.removeAttribute("aria-current");
  else back.setAttribute("aria-current", "page");
  end = view ? view(main, key) : fleet(main);
  window.scrollTo(0, 0);
}

/** The address names the view: the link that skips to it must not change it. */
function skip(event: Event): void {
  event.preventDefault();
  main.focus();
}

function icon(): SVGElement {
  return svg(
    "svg",
    { viewBox: "0 0 32 32", width: 22, height: 22, "aria-hidden": "true", class: "icon" },
    svg("path", { class: "dial", d: "M5 23a12 12 0 1 1 22 0" }),
    svg("path", { class: "hand", d: "m16 20 6-8" }),
  );
}

window.addEventListener("hashchange", () => {
  show();
  main.focus({ preventScroll: true });
});
show();
document.documentElement.dataset.ready = "";
performance.mark("ready");
