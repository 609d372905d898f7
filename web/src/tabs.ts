// Tabs: one of several at a time, each made when it is first shown.

import { h } from "./dom";

export interface Tab {
  title: string;
  make: () => HTMLElement[];
}

/** Return tabs and their panel; `id` tells them from others of the page. */
export function tabs(id: string, label: string, all: Tab[]): HTMLElement {
  const buttons = all.map(({ title }, at) =>
    h(
      "button",
      {
        type: "button",
        role: "tab",
        id: `${id}-tab-${at}`,
        "aria-controls": `${id}-panel`,
        click: () => show(at),
        keydown: (event: KeyboardEvent) => turn(event, at),
      },
      title,
    ),
  );
  const panel = h("div", { role: "tabpanel", id: `${id}-panel` });
  const made = new Map<number, HTMLElement[]>();

  function show(at: number): void {
    buttons.forEach((tab, other) => {
      tab.setAttribute("aria-selected", String(other === at));
      tab.tabIndex = other === at ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", buttons[at].id);
    if (!made.has(at)) made.set(at, all[at].make());
    panel.replaceChildren(...made.get(at)!);
  }

  function turn(event: KeyboardEvent, at: number): void {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const next = (at + step + buttons.length) % buttons.length;
    show(next);
    buttons[next].focus();
  }

  if (buttons.length) show(0);
  return h(
    "div",
    {},
    h("div", { role: "tablist", class: "tabs", "aria-label": label }, ...buttons),
    panel,
  );
}
