// The machine, the software and the settings; what about them makes timings lie.

import type { EnvironmentData } from "../data";
import { definitions } from "../definitions";
import { h, name, prose } from "../dom";
import type { View } from "../registry";

export const environment: View<EnvironmentData> = {
  id: "environment",
  title: "Environment",
  wide: true,
  draw(part, host) {
    host.append(
      h(
        "div",
        { class: "columns" },
        ...part.groups.map(([title, rows]) => h("div", {}, h("h3", {}, title), definitions(rows))),
      ),
    );
    if (!part.findings.length) return;
    const item = ([severity, title, evidence, remedy]: EnvironmentData["findings"][0]) =>
      h(
        "li",
        {},
        h("span", { class: "how" }, severity),
        " ",
        h("b", {}, name(title)),
        h("p", { class: "note" }, prose(`${evidence} ${remedy}`)),
      );
    host.append(
      h("h3", {}, "Checks of the machine"),
      h("ul", { class: "plain" }, ...part.findings.map(item)),
    );
  },
};
