// All that is known of one node of the tree, and its largest children.

import { copyButton, markdown } from "./copy";
import type { Figure } from "./data";
import { definitions } from "./definitions";
import { h, name } from "./dom";
import { format, share as shareText } from "./format";
import type { Context } from "./registry";
import { ofNode } from "./timeline/targets";
import type { Tree } from "./tree";

const MOST_CHILDREN = 7;

/** Tell all that is known of a node. */
export function nodePanel(context: Context, node: number, width: string): HTMLElement[] {
  const tree = context.tree!;
  const rows: [string, string, string][] = [];
  const add = (label: string, value: string, note = "") => value && rows.push([label, value, note]);
  const heading = tree.text("kind", node) === "kernel" ? tree.label(node) : tree.name(node);
  if (heading !== tree.name(node)) add("full name", tree.name(node));
  add("layer", tree.path(node));
  add("type", tree.text("type", node));
  add("phase", tree.text("phase", node));
  add("input shapes", tree.text("shapes", node));
  if (tree.number("calls", node) > 0)
    // a bucket, and a recording without its model, are not called
    add(
      "calls",
      format(tree.number("calls", node), "count"),
      tree.data.steps > 1 ? `in ${tree.data.steps} steps` : "in a step",
    );
  for (const [key, title, unit] of tree.figures) {
    const total = tree.total(key);
    const alone = tree.alone(key)[node];
    const own = tree.children(node).length ? `${format(alone, unit)} of its own` : "";
    const share = total[0] > 0 && total[node] >= 0 ? shareText(total[node] / total[0]) : "";
    add(
      title,
      least(tree, key, node) + format(total[node], unit),
      [share, own].filter(Boolean).join(", "),
    );
  }
  if (tree.data.columns.peak)
    add(
      "peak of a call",
      format(tree.number("peak", node), "bytes"),
      "beyond what was alive before",
    );
  add("bound by", tree.text("bound", node));
  tree.launch(node).forEach((fact, at) => add(at ? "" : "launch", fact));
  const target = ofNode(context.page, tree, node);
  const locate = () => context.locate(target!);
  const sheet = () => ({ head: [tree.name(node), "", ""], rows });
  return [
    h("h3", {}, name(heading), " ", h("span", { class: "how" }, tree.text("kind", node))),
    h("div", { class: "blocks" }, definitions(rows), largest(context, node, tree.figure(width))),
    copyButton("Copy as Markdown", () => markdown(sheet())),
    ...(target ? [h("button", { type: "button", class: "quiet", click: locate }, "Show in the timeline")] : []),
    copyButton("Copy link", () => location.href.split("#")[0] + context.address(node)),
  ];
}

/** The children that take most, and what is left to the node itself. */
function largest(context: Context, node: number, [key, title, unit]: Figure): HTMLElement | null {
  const tree = context.tree!;
  const sizes = tree.total(key);
  const alone = tree.alone(key)[node] || 0;
  const children = [...tree.children(node)].filter((child) => sizes[child] > 0);
  if (!children.length || !(sizes[node] > 0)) return null;
  children.sort((a, b) => sizes[b] - sizes[a]);
  const shown = children.slice(0, MOST_CHILDREN);
  const rest = children.slice(MOST_CHILDREN).reduce((sum, child) => sum + sizes[child], 0);
  const line = (label: HTMLElement | string, size: number) => {
    const bar = h("i", { "aria-hidden": "true" });
    bar.style.width = `${(100 * size) / sizes[node]}%`;
    return h("li", {}, h("span", {}, label), h("b", {}, format(size, unit)), bar);
  };
  const more = children.length - shown.length;
  return h(
    "div",
    {},
    h("h4", {}, `Inside, by ${title}`),
    h(
      "ul",
      { class: "bars" },
      ...shown.map((child) => line(nodeLink(context, child), sizes[child])),
      rest > 0 && line(`${more} others`, rest),
      alone > 0 && line("of its own", alone),
    ),
  );
}

/** A link that opens a node; `here` is what it is of the current place. */
export function nodeLink(context: Context, node: number, here: string | null = null): HTMLElement {
  const tree = context.tree!;
  const click = (event: Event) => {
    event.preventDefault();
    context.open(node);
  };
  const href = context.address(node);
  const type = tree.typeBeside(node);
  return h(
    "a",
    { href, click, "aria-current": here, title: tree.name(node) },
    name(tree.label(node)),
    type && " ",
    type && name(type, { class: "type" }),
  );
}

/** A sign that a figure is more than is known: calls below lack a formula, or say no bytes. */
function least(tree: Tree, key: string, node: number): string {
  const lacking = (calls: string) => calls in tree.data.columns && tree.total(calls)[node] > 0;
  const more = (key === "flops" || key === "bytes") && lacking("unknown");
  return more || (key === "bytes" && lacking("calls_without_bytes")) ? "≥ " : "";
}
