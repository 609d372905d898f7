// What the address says after its #: which rank or device is shown, and which node or section of it.
// `#tree`, `#node=layers/0/conv1`, `#rank=2&node=layers/0/conv1`, `#rank=2&view=tree`.

import type { PageData } from "./data";

export interface Place {
  /** The number of the option, null where the address says none. */
  option: number | null;
  node?: string;
  view?: string;
}

export class Addresses {
  private readonly key: string;
  private readonly names: string[] = [];

  constructor(choice: PageData["choice"]) {
    this.key = choice?.label.toLowerCase() ?? "";
    const seen = new Map<string, number>();
    for (const { name } of choice?.options ?? []) {
      const number = (seen.get(name) ?? 0) + 1;
      seen.set(name, number);
      this.names.push(encodeURIComponent(name) + (number > 1 ? `~${number}` : ""));
    }
  }

  /** The fragment of a place, with its #. */
  write({ option, node, view }: Place): string {
    const parts = option === null || !this.key ? [] : [`${this.key}=${this.names[option]}`];
    if (node !== undefined) parts.push(`node=${node}`);
    if (view !== undefined) parts.push(parts.length ? `view=${view}` : view);
    return `#${parts.join("&")}`;
  }

  /** The place that a fragment says; null where it is of a rank that the page does not have. */
  read(fragment: string): Place | null {
    const found: Place = { option: null };
    for (const part of fragment.replace(/^#/, "").split("&")) {
      const [, key, value] = /^([^=]*)=(.*)$/.exec(part) ?? [];
      if (key === undefined) found.view = part || undefined;
      else if (key === "node") found.node = value;
      else if (key === "view") found.view = value;
      else if (key === this.key) {
        found.option = this.names.indexOf(value);
        if (found.option < 0) return null;
      }
    }
    return found;
  }
}
