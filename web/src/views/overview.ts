// The first screen: what was measured on what, the figures, what bounds it, findings, warnings.

import { copyButton, list, markdown } from "../copy";
import type { Overview } from "../data";
import { definitions, stack } from "../definitions";
import { badge, h, name, prose } from "../dom";
import { time } from "../format";
import type { Context, View } from "../registry";
import { ofFinding } from "../timeline/targets";

// Figures of more characters are set smaller, so that they stay on one line in a narrow card.
const LONG = 14;

export const overview: View<Overview> = {
  id: "overview",
  title: "Overview",
  wide: true,
  draw(part, host, context) {
    const known = part.figures.filter(({ value }) => value !== "unknown");
    const unknown = part.figures.filter(({ value }) => value === "unknown");
    const blocks = [findings(part, context), phases(part), bound(part)].filter((one) => one !== null);
    const beside = blocks.length === 1; // warnings find room in the same row
    host.append(
      ...(part.notices ?? []).map(banner),
      h("div", { class: "facts" }, definitions(part.facts)),
      h("ul", { class: "cards" }, ...known.map((figure) => card(figure, context))),
      ...state(part),
      h("div", { class: "blocks" }, ...blocks, beside && warnings(part)),
      beside ? "" : (warnings(part) ?? ""),
      ...missing(unknown),
      h(
        "p",
        { class: "foot" },
        part.created && `Recorded ${part.created.replace("T", " ").replace(/(\.\d+)?\+00:00/, " UTC")}. `,
        copyButton("Copy as Markdown", () => summary(part, context.page.title)),
      ),
    );
  },
};

function state(part: Overview): HTMLElement[] {
  const said = part.interrupted
    ? "This run was interrupted: what was measured before is shown."
    : "Part of this run failed: see the warnings.";
  return part.complete ? [] : [banner(said)];
}

function banner(said: string): HTMLElement {
  return h("p", { class: "banner", role: "status" }, prose(said));
}

/** What is not known, in a line for each reason. */
function missing(figures: Overview["figures"]): HTMLElement[] {
  const reasons = new Map<string, string[]>();
  for (const { label, note } of figures) reasons.set(note, [...(reasons.get(note) ?? []), label]);
  return [...reasons].map(([note, labels]) =>
    h("p", { class: "note missing" }, `Unknown${note ? ` (${note.replace(/\.$/, "")})` : ""}: `, name(labels.join(", ")), "."),
  );
}

function card(figure: Overview["figures"][0], context: Context): HTMLElement {
  const kind = figure.value.length > LONG ? "long" : null;
  // Of any text: a figure may be a name that begins with a space.
  const [, bound, number, unit] = /^(at least )?(\S*) ?(.*)$/s.exec(figure.value)!;
  const label =
    context.page.parts[figure.view]
      ? h("a", { href: `#${figure.view}` }, figure.label)
      : figure.label;
  return h(
    "li",
    { class: "card" },
    h("div", { class: "label" }, label),
    h(
      "div",
      { class: kind ? `figure ${kind}` : "figure" },
      bound && h("span", { class: "unit" }, bound),
      number,
      unit && " ",
      unit && h("span", { class: "unit" }, unit),
    ),
    h("div", { class: "note" }, name(figure.note)),
    badge(figure.how),
  );
}

function bound({ bound }: Overview): HTMLElement | null {
  if (!bound) return null;
  const head = bound.kind ? `Bound by ${bound.kind}` : "Bottleneck: unknown";
  const whole = bound.parts.reduce((sum, [, amount]) => sum + amount, 0);
  return block(
    head,
    [bound.kind ? h("span", { class: "how" }, bound.confidence) : null, badge(bound.how)],
    bound.parts.length > 0 && stack(bound.parts, whole, time),
    h("ul", { class: "plain" }, ...bound.evidence.map((said) => h("li", {}, prose(said)))),
  );
}

function phases({ phases }: Overview): HTMLElement | null {
  if (!phases) return null;
  return block("A training step", [badge(phases.how)], stack(phases.parts, phases.step, time));
}

function findings(part: Overview, context: Context): HTMLElement | null {
  if (!part.findings.length) return null;
  const item = (finding: Overview["findings"][0]) => {
    const { node } = finding;
    const open = (event: Event) => {
      if (node === null && !finding.search) return;
      event.preventDefault();
      if (node === null) context.search(finding.search);
      else context.open(node);
    };
    const href = node === null ? `#${finding.view}` : context.address(node);
    const link = h("a", { href, click: open }, name(finding.title));
    const target = ofFinding(context.page, context.tree, finding);
    const locate = (event: Event) => {
      event.preventDefault();
      context.locate(target!);
    };
    const beside = target && h("a", { href: "#timeline", click: locate, class: "beside" }, "timeline");
    return h("li", {}, link, beside && " · ", beside, h("p", { class: "note" }, prose(finding.text)));
  };
  return block("What matters most", [], h("ol", { class: "findings" }, ...part.findings.map(item)));
}

function warnings(part: Overview): HTMLElement | null {
  if (!part.warnings.length) return null;
  return block(
    part.complete ? "Warnings" : "Failed and warnings",
    [],
    h(
      "ul",
      { class: "warnings" },
      ...part.warnings.map((one) =>
        h(
          "li",
          { class: one.failed ? "failed" : null },
          h("b", {}, one.failed ? "✗ " : "! ", name(one.probe)),
          " ",
          prose(one.text),
          " ",
          h("code", {}, one.id),
        ),
      ),
    ),
  );
}

function block(
  title: string,
  badges: (HTMLElement | null)[],
  ...body: (HTMLElement | false)[]
): HTMLElement {
  return h("div", { class: "block" }, h("h2", {}, title, " ", ...badges), ...body);
}

function summary(part: Overview, title: string): string {
  const figures = part.figures.map((one) => [one.label, one.value, one.note, one.how]);
  return (
    markdown({ head: [title, "", "", ""], rows: figures }) +
    list("Bound by", part.bound ? [part.bound.kind ?? "unknown", ...part.bound.evidence] : []) +
    list(
      "What matters most",
      part.findings.map((one) => `${one.title}. ${one.text}`),
    ) +
    list(
      "Warnings",
      part.warnings.map((one) => `${one.probe} ${one.text} [${one.id}]`.trimStart()),
    )
  );
}
