// Copies of what is shown, as Markdown and CSV.

import { h } from "./dom";

export interface Sheet {
  head: string[];
  rows: string[][];
}

// A spreadsheet would run a cell that starts so as a formula; a negative number is none.
const FORMULA = /^[=+\-@\t\r\n＝＋－＠]/;

export function csv({ head, rows }: Sheet): string {
  const cell = (text: string) => {
    const safe = FORMULA.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [head, ...rows].map((row) => row.map(cell).join(",") + "\n").join("");
}

/** The text as Markdown in which nothing of the record's is markup. */
function plain(text: string): string {
  const line = text.replace(/\s+/g, " ");
  return line.replace(/[\\`*_{}[\]<>|#~]/g, "\\$&").replaceAll("&", "&amp;");
}

export function list(title: string, items: string[]): string {
  return items.length ? `\n**${title}**\n\n${items.map((one) => `- ${plain(one)}\n`).join("")}` : "";
}

export function markdown({ head, rows }: Sheet): string {
  const line = (row: string[]) => `| ${row.map(plain).join(" | ")} |\n`;
  return line(head) + `|${head.map(() => " --- ").join("|")}|\n` + rows.map(line).join("");
}

export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages in a frame, or without a secure origin, have no clipboard but the old one.
    const area = h("textarea", {
      class: "off-screen",
      "aria-hidden": "true",
    }) as HTMLTextAreaElement;
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}

/** A button that copies what `make` returns when it is pressed. */
export function copyButton(label: string, make: () => string): HTMLElement {
  const button = h("button", { type: "button", class: "quiet", click: press }, label);
  async function press() {
    button.textContent = (await copy(make())) ? "Copied" : "Not copied";
    setTimeout(() => (button.textContent = label), 1500);
  }
  return button;
}
