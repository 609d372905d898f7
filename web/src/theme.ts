// Light or dark: as the system says, until the reader says otherwise.

import { h } from "./dom";

const NEXT: Record<string, string> = { auto: "light", light: "dark", dark: "auto" };

export function themeButton(): HTMLElement {
  const root = document.documentElement;
  const button = h("button", { type: "button", class: "quiet", click: () => set(NEXT[now()]) });
  const now = () => root.dataset.theme ?? "auto";
  function set(theme: string): void {
    if (theme === "auto") delete root.dataset.theme;
    else root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    window.dispatchEvent(new Event("theme"));
  }
  set("auto");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    window.dispatchEvent(new Event("theme")),
  );
  // Paper is white. The style knows that by itself; what is drawn in colours has to be drawn anew.
  let chosen = "auto";
  window.addEventListener("beforeprint", () => {
    chosen = now();
    set("light");
  });
  window.addEventListener("afterprint", () => set(chosen));
  return button;
}
