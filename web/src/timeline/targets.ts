// Where in the timeline a finding, a row of a table or a node of the tree is.

import type { Overview, PageData, TimelineData } from "../data";
import type { Context } from "../registry";
import type { Tree } from "../tree";

export interface Target {
  /** The name of an event, or where that is empty the kind of events. */
  name: string;
  kind?: string;
  layer?: string;
}

// Shorter names are words of a sentence.
const LEAST_NAME = 5;
// Those that take most time come first.
const MOST_NAMES = 2000;
const known = new WeakMap<object, Set<string>>();

/** The timeline that is shown; null where the page has none. */
function shown(page: PageData): TimelineData | null {
  const part = page.parts.timeline as (TimelineData & { missing?: string }) | undefined;
  return part && !part.missing ? part : null;
}

export function ofName(page: PageData, name: string, layer = ""): Target | null {
  const one = shown(page);
  const two = page.parts.timelines as { sides: TimelineData[] } | undefined;
  const parts = one ? [one] : (two?.sides ?? []);
  if (!parts.length) return null;
  let names = known.get(parts[0]);
  if (!names) known.set(parts[0], (names = new Set(parts.flatMap((part) => part.names))));
  return names.has(name) ? { name, layer } : null;
}

export function ofNode(page: PageData, tree: Tree, node: number): Target | null {
  const isLayer = ["layer", "model"].includes(tree.text("kind", node));
  return ofName(page, (isLayer && tree.text("path", node)) || tree.name(node), tree.path(node));
}

/** What a finding names: its search, its node, the longest name in its words, else a kind of event. */
export function ofFinding(page: PageData, tree: Tree | null, finding: Overview["findings"][0]): Target | null {
  const part = shown(page);
  if (!part) return null;
  const words = `${finding.title} ${finding.text}`;
  const longest = part.names.slice(0, MOST_NAMES).reduce(
    (best, one) => (one.length >= LEAST_NAME && one.length > best.length && words.includes(one) ? one : best),
    "",
  );
  return (
    ofName(page, finding.search) ??
    (finding.node !== null && tree ? ofNode(page, tree, finding.node) : null) ??
    (longest && !part.kinds.includes(finding.kind) ? { name: longest } : null) ??
    (part.kinds.includes(finding.kind) ? { name: "", kind: finding.kind } : null)
  );
}

/** For a table: what shows the event of a row's name, null where there is none. */
export function locating(context: Context): (name: string) => (() => void) | null {
  return (name) => {
    const target = ofName(context.page, name);
    return target && (() => context.locate(target));
  };
}
