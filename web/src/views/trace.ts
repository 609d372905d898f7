// A recorded trace: its ranks, where each device's time went, the critical path, what is missing.

import { breakdown } from "../breakdown";
import type { BreakdownData, PathData, RanksData } from "../data";
import { stack } from "../definitions";
import { badge, h, name } from "../dom";
import { time } from "../format";
import type { View } from "../registry";
import { Table } from "../table";
import { locating } from "../timeline/targets";

export const ranks: View<RanksData> = {
  id: "ranks",
  title: "Ranks",
  wide: true,
  draw(part, host, context) {
    host.append(
      breakdown(part, "rank", (option) => {
        context.choose(option);
        document.getElementById("devices")?.scrollIntoView();
      }),
      h("ul", { class: "plain" }, ...part.said.map((said) => h("li", {}, said))),
    );
    if (part.slow) {
      host.append(h("h3", {}, "Collectives that took much longer than usual"));
      host.append(new Table(part.slow, null).element);
    }
  },
};

export const devices: View<BreakdownData> = {
  id: "devices",
  title: "Time of devices",
  wide: true,
  draw(part, host, context) {
    host.append(
      breakdown(part, "device", (option) => context.choose(option)),
      h(
        "p",
        { class: "note" },
        "Communication and copies: the exposed part. Idle, by what the next piece of work waited ",
        "for: the host, which had not launched it; the device's own pause of 5 µs at most; other, as ",
        "another stream or a launch that the file does not hold; outside: before the stream's first ",
        "piece of work and after its last.",
      ),
    );
  },
};

export const path: View<PathData> = {
  id: "path",
  title: "Critical path",
  wide: true,
  draw(part, host, context) {
    host.append(
      h(
        "p",
        { class: "note" },
        `The chain of work that decided how long it took: ${time(part.length, 4)}. A trace does not say `,
        "what waited for what; this is read from launches, streams and synchronisations. ",
        badge("estimated"),
      ),
      stack(part.parts, part.length, time),
    );
    if (part.table.rows) {
      host.append(h("div", { class: "low" }, new Table(part.table, null, locating(context)).element));
    }
  },
};

export const unrecorded: View<string[]> = {
  id: "unrecorded",
  title: "Not recorded",
  draw(part, host) {
    host.append(h("ul", { class: "plain" }, ...part.map((said) => h("li", {}, name(said)))));
  },
};
