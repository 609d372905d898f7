// Puts the page together: the head, then the views that the record has something for.

import "uplot/dist/uPlot.min.css";
import "./page.css";
import { read } from "./data";
import { h, name } from "./dom";
import { type Context, register, type View, views } from "./registry";
import { themeButton } from "./theme";
import { Tree } from "./tree";
import { advice } from "./views/advice";
import { changes } from "./views/changes";
import { contributions } from "./views/contributions";
import { environment } from "./views/environment";
import { latency } from "./views/latency";
import { memory } from "./views/memory";
import { method } from "./views/method";
import { overview } from "./views/overview";
import { roofline } from "./views/roofline";
import { steps } from "./views/steps";
import { cells, pareto, scaling } from "./views/sweep";
import { system } from "./views/system";
import { tables } from "./views/tables";
import { trend } from "./views/trend";
import { tree } from "./views/tree";

register<any>(
  overview,
  changes,
  contributions,
  trend,
  advice,
  cells,
  pareto,
  scaling,
  tree,
  tables,
  roofline,
  latency,
  steps,
  memory,
  system,
  method,
  environment,
);

const page = read();
const listeners: { open: ((node: number) => void)[]; search: ((text: string) => void)[] } = {
  open: [],
  search: [],
};
const shown = views.filter((view) => page.parts[view.id]);
const sections = new Map(shown.map((view) => [view.id, section(view)]));
const context = makeContext();

document.body.append(
  h("a", { class: "skip", href: "#main" }, "Skip to the report"),
  header(),
  h("main", { id: "main", tabindex: -1 }, ...sections.values()),
);

// The first screen at once, then a view at a time, so that the page answers meanwhile.
draw(0);

function draw(at: number): void {
  if (at === shown.length) return ready();
  const view = shown[at];
  const host = sections.get(view.id)!.querySelector<HTMLElement>(".view")!;
  try {
    view.draw(page.parts[view.id], host, context);
  } catch (error) {
    console.error(error); // the other views are drawn all the same
    host.append(h("p", { class: "banner" }, `This view could not be drawn: ${error}`));
  }
  if (at === 0) performance.mark("first view");
  setTimeout(() => draw(at + 1));
}

function ready(): void {
  follow();
  window.addEventListener("hashchange", follow);
  performance.mark("ready");
  document.documentElement.dataset.ready = "";
}

/** Go where the address says: `#tree`, or `#node=layers/0/conv1`. */
function follow(): void {
  const [, address] = /^#node=(.*)$/.exec(location.hash) ?? [];
  if (address !== undefined) {
    const node = context.tree?.find(address);
    if (node !== null && node !== undefined) show(node);
  } else if (location.hash.length > 1) {
    sections.get(location.hash.slice(1))?.scrollIntoView();
  }
}

function show(node: number): void {
  listeners.open.forEach((listener) => listener(node));
  sections.get("tree")?.scrollIntoView({ block: "start" });
}

function header(): HTMLElement {
  return h(
    "header",
    {},
    h("strong", { class: "title" }, name(page.title)),
    h(
      "nav",
      { "aria-label": "Sections" },
      ...shown.map((view) => h("a", { href: `#${view.id}` }, view.title)),
    ),
    themeButton(),
  );
}

function section(view: View<unknown>): HTMLElement {
  return h(
    "section",
    { id: view.id, class: view.wide ? "wide" : null, "aria-labelledby": `${view.id}-title` },
    h(
      view === views[0] ? "h1" : "h2",
      { id: `${view.id}-title` },
      view === views[0] ? name(page.title) : view.title,
    ),
    h("div", { class: "view" }),
  );
}

function makeContext(): Context {
  const nodes = page.parts.tree ? new Tree(page.parts.tree) : null;
  return {
    page,
    tree: nodes,
    open(node) {
      history.pushState(null, "", `#node=${nodes!.address(node)}`);
      show(node);
    },
    search(text) {
      listeners.search.forEach((listener) => listener(text));
      sections.get("tree")?.scrollIntoView({ block: "start" });
    },
    onOpen: (listener) => listeners.open.push(listener),
    onSearch: (listener) => listeners.search.push(listener),
  };
}
