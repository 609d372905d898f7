// The first screen: what runs now, and each model of the history with its newest figures.

import { h, name } from "../dom";
import { format, percent } from "../format";
import type { Fleet, ModelRow, MonitorRow, State } from "./data";
import { Rows } from "./rows";
import { Poll } from "./source";
import { sparkline } from "./sparkline";
import { ago, failure, number, since, stateBadge } from "./words";

const EVERY = 2; // seconds
const MORE = 100;
const ORDER: State["kind"][] = ["alert", "failed", "silent", "unknown", "pending", "unruled", "steady"];

/** Draw the view; returns what ends it. */
export function fleet(host: HTMLElement): () => void {
  const query = { words: "", limit: String(MORE) };
  const summary = h("p", { class: "summary" });
  const monitors = section("live", "Live", summaryOf("live"));
  const models = section("models", "Models", summaryOf("models"));
  const liveTable = new Rows<MonitorRow>("Live series", LIVE_COLUMNS, liveCells);
  const modelTable = new Rows<ModelRow>("Models", MODEL_COLUMNS, modelCells);
  const filter = h("input", { type: "search", placeholder: "part of a name", input: () => narrow() }) as HTMLInputElement;
  const sort = h(
    "select",
    { change: () => modelTable.sort(SORTS[(sort as HTMLSelectElement).value].compare) },
    ...Object.entries(SORTS).map(([key, { title }]) => h("option", { value: key }, title)),
  );
  const count = h("output", { class: "note" });
  const more = h("button", { type: "button", class: "quiet more", click: () => enlarge() }, "Show more");
  const trouble = h("div");
  models.append(
    h("div", { class: "controls" }, h("label", {}, "Filter ", filter), h("label", {}, "Order ", sort), count),
    trouble,
    modelTable.element,
    more,
  );
  const liveTrouble = h("div");
  monitors.append(liveTrouble, liveTable.element);
  host.append(h("h1", { class: "off-screen" }, "Fleet"), summary, monitors, models);
  monitors.hidden = models.hidden = true;

  const poll = new Poll<Fleet>("/api/fleet", { ...query }, EVERY, draw, (error) => summary.replaceChildren(failure(error)));
  let timer = 0;

  function narrow(): void {
    query.words = filter.value.trim();
    query.limit = String(MORE);
    clearTimeout(timer);
    timer = window.setTimeout(() => poll.now({ ...query }), 80);
  }

  function enlarge(): void {
    query.limit = String(Number(query.limit) + MORE);
    poll.now({ ...query });
  }

  function draw(answer: Fleet): void {
    const { history, monitors: live } = answer;
    summary.replaceChildren(...summarized(answer));
    monitors.hidden = !live;
    if (live) {
      liveTrouble.replaceChildren(live.error ? failure(live.error) : "");
      liveTable.show(live.rows, `No monitor has recorded anything in ${live.folder} yet.`);
    }
    models.hidden = !history;
    if (history?.error) return trouble.replaceChildren(failure(history.error));
    if (!history) return;
    trouble.replaceChildren();
    modelTable.show(history.rows, query.words ? "No model has such a name." : "The history has no runs yet.");
    more.hidden = history.rows.length >= history.fitting;
    count.textContent = counted(history.rows.length, history.fitting, history.targets);
    performance.mark("fleet");
  }

  return () => {
    clearTimeout(timer);
    poll.end();
  };
}

function counted(rows: number, fitting: number, targets: number): string {
  const all = `${number(targets)} model${targets === 1 ? "" : "s"}`;
  const some = fitting < targets ? `${number(fitting)} of ${all}` : all;
  return rows < fitting ? `${some}, the newest ${number(rows)} shown` : some;
}

function summarized({ history, monitors }: Fleet): HTMLElement[] {
  const parts: [string, string][] = [];
  const alerts = [...(monitors?.rows ?? []), ...(history && !history.error ? history.rows : [])].filter(
    ({ state }) => state.kind === "alert",
  ).length;
  parts.push([number(alerts), alerts === 1 ? "with an alert" : "with alerts"]);
  if (monitors) parts.push([number(monitors.rows.length), "live series"]);
  if (history && !history.error) {
    parts.push([number(history.targets), history.targets === 1 ? "model" : "models"]);
    parts.push([number(history.runs), history.runs === 1 ? "run" : "runs"]);
  }
  return parts.map(([figure, text], at) =>
    h("span", { class: at === 0 && alerts ? "tile-figure alerting" : "tile-figure" }, h("b", {}, figure), ` ${text}`),
  );
}

function summaryOf(id: string): string {
  return id === "live" ? "What monitors recorded, by window." : "The newest run of each model, with the runs before it.";
}

function section(id: string, title: string, note: string): HTMLElement {
  return h(
    "section",
    { id, class: "wide", "aria-labelledby": `${id}-title` },
    h("h2", { id: `${id}-title` }, title, " ", h("span", { class: "note" }, note)),
  );
}

const LIVE_COLUMNS = ["state", "series", "p50", "p99", "p99 over time", "per second", "errors", "last window"];

function liveCells(row: MonitorRow): (HTMLElement | SVGElement | string)[] {
  const curve = `${row.name}, 99th percentile of the last ${row.curve.length} windows`;
  return [
    stateBadge(row.state),
    subject(`#monitor=${row.key}`, row.name, row.labels),
    format(row.middle, row.unit),
    format(row.high, row.unit),
    sparkline(row.curve, curve),
    format(row.rate, "number"),
    row.errors ? h("span", { class: "failing" }, percent(row.errors, row.errors < 0.01 ? 2 : 1)) : format(row.errors, "share"),
    ago(row.age),
  ];
}

const MODEL_COLUMNS = ["state", "model", "newest", "trend", "memory peak", "parameters", "runs", "last run"];

function modelCells(row: ModelRow): (HTMLElement | SVGElement | string)[] {
  const { main, curve } = row;
  const label = main ? `${main.name} of the newest ${curve.length} runs` : "no figure";
  return [
    stateBadge(row.state),
    subject(`#model=${row.key}`, row.target, row.place),
    main ? h("span", { class: "main-figure", title: main.how }, h("b", {}, main.value), h("small", {}, name(main.name))) : "–",
    sparkline(curve, label),
    ...row.side.map((figure) => figure?.value ?? "–"),
    number(row.runs),
    since(row.newest),
  ];
}

/** A name that leads to its view, and below it what tells it from others. */
function subject(href: string, title: string, place: string): HTMLElement {
  return h("span", { class: "subject" }, h("a", { href, title }, name(title)), h("small", { title: place }, name(place)));
}

const collator = new Intl.Collator("en", { numeric: true });
const SORTS: Record<string, { title: string; compare: ((a: ModelRow, b: ModelRow) => number) | null }> = {
  newest: { title: "newest run first", compare: null },
  alerts: { title: "alerts first", compare: (a, b) => ORDER.indexOf(a.state.kind) - ORDER.indexOf(b.state.kind) },
  name: { title: "by name", compare: (a, b) => collator.compare(a.target, b.target) },
  runs: { title: "most runs first", compare: (a, b) => b.runs - a.runs },
};
