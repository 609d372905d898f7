// Puts the page together: the head, then the views that the record has something for.

import "uplot/dist/uPlot.min.css";
import "./page.css";
import { Addresses, type Place } from "./address";
import { read } from "./data";
import { h, name } from "./dom";
import { type Context, register, type View, views } from "./registry";
import { themeButton } from "./theme";
import type { Target } from "./timeline/targets";
import { Tree } from "./tree";
import { advice } from "./views/advice";
import { checks, front, service, settings } from "./views/capacity";
import { changes } from "./views/changes";
import { contributions } from "./views/contributions";
import { environment } from "./views/environment";
import { cache, calls, growth, shapes } from "./views/generation";
import { compilation, memoryRanOut } from "./views/groups";
import { latency } from "./views/latency";
import { distribution, gaps, overTime, requests, server } from "./views/load";
import { memory } from "./views/memory";
import { method } from "./views/method";
import { overview } from "./views/overview";
import { roofline } from "./views/roofline";
import { fates, rates } from "./views/serving";
import { course, held, layout, ooms } from "./views/snapshot";
import { steps } from "./views/steps";
import { cells, pareto, scaling } from "./views/sweep";
import { system } from "./views/system";
import { tables } from "./views/tables";
import { job, timeline, timelines } from "./views/timeline";
import { devices, path, ranks, unrecorded } from "./views/trace";
import { trend } from "./views/trend";
import { tree } from "./views/tree";

register<any>(
  overview,
  memoryRanOut,
  changes,
  contributions,
  trend,
  advice,
  cells,
  pareto,
  scaling,
  shapes,
  growth,
  cache,
  calls,
  rates,
  overTime,
  distribution,
  requests,
  gaps,
  fates,
  server,
  settings,
  front,
  checks,
  service,
  ranks,
  job,
  devices,
  path,
  ooms,
  course,
  timeline,
  timelines,
  tree,
  held,
  layout,
  tables,
  compilation,
  roofline,
  latency,
  steps,
  memory,
  system,
  unrecorded,
  method,
  environment,
);

const page = read();
const common = page.parts;
const { choice } = page;
const listeners: {
  open: ((node: number) => void)[];
  search: ((text: string) => void)[];
  locate: ((target: Target) => void)[];
} = { open: [], search: [], locate: [] };
const every = { ...common, ...Object.assign({}, ...(choice?.options ?? []).map((one) => one.parts)) };
const shown = views.filter((view) => every[view.id]);
const titles = (view: View<any>): string => every[view.id].title ?? view.title;
const chooser = choice && select(choice);
const links = new Map(shown.map((view) => [view.id, h("a", { href: `#${view.id}` }, titles(view))]));
const sections = new Map(shown.map((view) => [view.id, section(view)]));
const addresses = new Addresses(choice);
const context = makeContext();

document.body.append(
  h("a", { class: "skip", href: "#main" }, "Skip to the report"),
  header(),
  h("main", { id: "main", tabindex: -1 }, ...sections.values()),
);

// It goes where its address says: the browser would scroll to where it was, before or after that.
if (location.hash) history.scrollRestoration = "manual";

let drawing = 0;
let following = false;
let current = addresses.read(location.hash)?.option ?? choice?.first ?? 0;
showParts(current, shown);

/** Draw these views of a set of parts: the first at once, then one at a time, so that the page answers. */
function showParts(option: number, wanted: View<any>[]): void {
  current = option;
  delete document.documentElement.dataset.ready; // it is there while all is drawn
  page.parts = { ...common, ...choice?.options[option].parts };
  context.tree = page.parts.tree ? new Tree(page.parts.tree) : null;
  for (const view of wanted) {
    sections.get(view.id)!.hidden = links.get(view.id)!.hidden = !page.parts[view.id];
    sections.get(view.id)!.querySelector(".view")!.replaceChildren();
  }
  if (chooser) chooser.value = String(option);
  draw(wanted.filter((view) => page.parts[view.id]), 0, ++drawing);
}

function draw(wanted: View<any>[], at: number, turn: number): void {
  if (turn !== drawing) return; // another set was chosen meanwhile
  if (at === wanted.length) return ready();
  const view = wanted[at];
  const host = sections.get(view.id)!.querySelector<HTMLElement>(".view")!;
  try {
    view.draw(page.parts[view.id], host, context);
  } catch (error) {
    console.error(error); // the other views are drawn all the same
    host.append(h("p", { class: "banner" }, `This view could not be drawn: ${error}`));
  }
  if (at === 0) performance.mark("first view");
  setTimeout(() => draw(wanted, at + 1, turn));
}

function ready(): void {
  if (!following) {
    following = true;
    window.addEventListener("hashchange", follow);
    performance.mark("ready");
  }
  document.documentElement.dataset.ready = "";
  follow();
}

/** Go where the address says; one without a rank stays with the one that is shown, and gets it. */
function follow(): void {
  const place = location.hash ? addresses.read(location.hash) : { option: choice?.first ?? 0 };
  if (!place) return;
  if (place.option !== null && place.option !== current) return replace(place.option);
  if (choice && place.option === null) {
    history.replaceState(null, "", addresses.write({ ...place, option: current }));
  }
  arrive(place);
}

function arrive({ node, view }: Place): void {
  if (node !== undefined) {
    const found = context.tree?.find(node);
    if (found !== null && found !== undefined) show(found);
  } else if (view !== undefined) {
    document.getElementById(view)?.scrollIntoView();
  }
}

/** Show another option; what is common to all stays, and listens to none of this. */
function replace(option: number): void {
  listeners.open = [];
  listeners.search = [];
  listeners.locate = [];
  showParts(option, shown.filter((view) => !common[view.id]));
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
    choice && !choice.view && labelled(chooser!),
    h("nav", { "aria-label": "Sections" }, ...links.values()),
    themeButton(),
  );
}

/** The select of a choice of all views stands in the header, that of one in its section. */
function labelled(chooser: HTMLElement): HTMLElement {
  return h("label", {}, `${choice!.label} `, chooser);
}

function select({ options }: NonNullable<typeof choice>): HTMLSelectElement {
  const element = h(
    "select",
    { change: () => context.choose(Number(element.value)) },
    ...options.map((one, at) => h("option", { value: at }, one.name)),
  ) as HTMLSelectElement;
  return element;
}

function section(view: View<unknown>): HTMLElement {
  // The first is named by what it is: its heading, a file's name, may be another section's.
  const label = view === views[0] ? { "aria-label": view.title } : { "aria-labelledby": `${view.id}-title` };
  return h(
    "section",
    { id: view.id, class: view.wide || every[view.id].missing ? "wide" : null, ...label },
    h(
      view === views[0] ? "h1" : "h2",
      { id: `${view.id}-title` },
      view === views[0] ? name(page.title) : titles(view),
    ),
    choice?.view === view.id && h("div", { class: "controls" }, labelled(chooser!)),
    h("div", { class: "view" }),
  );
}

function makeContext(): Context {
  return {
    page,
    tree: null,
    address: (node) =>
      addresses.write({ option: choice ? current : null, node: context.tree!.address(node) }),
    open(node) {
      history.pushState(null, "", context.address(node));
      show(node);
    },
    search(text) {
      listeners.search.forEach((listener) => listener(text));
      sections.get("tree")?.scrollIntoView({ block: "start" });
    },
    locate(target) {
      listeners.locate.forEach((listener) => listener(target));
    },
    choose(option) {
      history.pushState(null, "", addresses.write({ option }));
      replace(option);
    },
    onOpen: (listener) => listeners.open.push(listener),
    onSearch: (listener) => listeners.search.push(listener),
    onLocate: (listener) => listeners.locate.push(listener),
  };
}
