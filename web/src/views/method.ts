// How the numbers were obtained, and every figure of the summary.

import { copyButton, markdown } from "../copy";
import type { MethodData } from "../data";
import { definitions } from "../definitions";
import { badge, h, name } from "../dom";
import type { View } from "../registry";

export const method: View<MethodData> = {
  id: "method",
  title: "Method",
  wide: true,
  draw(part, host) {
    host.append(
      h("h3", {}, "How these figures were obtained"),
      h(
        "div",
        { class: "columns" },
        ...part.parts.map(([title, rows]) =>
          h("div", {}, h("h4", {}, name(title)), definitions(rows)),
        ),
      ),
    );
    if (!part.figures.length) return;
    const rows = part.figures.flatMap(([title, , found]) => found.map((row) => [title, ...row]));
    host.append(
      h(
        "details",
        {},
        h("summary", {}, "Every figure of the summary"),
        h(
          "div",
          { class: "columns" },
          ...part.figures.map(([title, how, found, notes]) =>
            h(
              "div",
              {},
              h("h4", {}, name(title), " ", badge(how)),
              definitions(found),
              ...notes.map((note) => h("p", { class: "note" }, name(note))),
            ),
          ),
        ),
        copyButton("Copy as Markdown", () => markdown({ head: ["", "", "", ""], rows })),
      ),
    );
  },
};
