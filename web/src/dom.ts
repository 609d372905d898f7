// Elements from code: text stays text, since nothing here ever reads markup.

export type Child = Node | string | null | undefined | false;
type Handler = (event: any) => void;
type Attributes = Record<string, string | number | boolean | null | undefined | Handler>;

const SVG = "http://www.w3.org/2000/svg";

export function h(tag: string, attributes: Attributes = {}, ...children: Child[]): HTMLElement {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  return fill(document.createElementNS(SVG, tag) as SVGElement, attributes, children);
}

function fill<E extends Element>(element: E, attributes: Attributes, children: Child[]): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child): child is Node | string => !!child));
  return element;
}

/** Names from a model may hold marks that turn text around; they must not reach their neighbours. */
export function name(text: string, attributes: Attributes = {}): HTMLElement {
  return h("bdi", attributes, text);
}

/** A sentence, the command lines in it as code. */
export function prose(text: string): HTMLElement {
  const parts = text.split(/`(torchgauge [^`]+)`/);
  return h("bdi", {}, ...parts.map((part, at) => (at % 2 ? h("code", {}, part) : part)));
}

/** A badge that says what a figure is: measured, counted, estimated or unknown. */
export function badge(how: string): HTMLElement | null {
  return how ? h("span", { class: `how ${how}` }, how) : null;
}

/** Draw now and whenever the width of the element changes. */
export function responsive(host: HTMLElement, draw: (width: number) => void): void {
  let drawn = 0;
  const fit = () => {
    const width = Math.floor(host.clientWidth);
    if (width > 0 && width !== drawn) draw((drawn = width));
  };
  fit(); // at once, so that the page has its height before it goes where its address says
  new ResizeObserver(fit).observe(host);
}

/** A part of the page that scrolls, with a sign at its edge while columns are beyond it. */
export function scroller(label: string, content: HTMLElement, attributes: Attributes = {}): HTMLElement {
  const inner = h("div", { ...attributes, tabindex: 0, role: "region", "aria-label": label }, content);
  inner.classList.add("scroller");
  const frame = h("div", { class: "frame" }, inner);
  const cue = () =>
    frame.toggleAttribute("data-more", inner.scrollLeft + inner.clientWidth < inner.scrollWidth - 2);
  inner.addEventListener("scroll", cue);
  const observer = new ResizeObserver(cue);
  observer.observe(inner);
  observer.observe(content);
  return frame;
}

/** A custom property of the style, such as a colour of the current theme. */
export function property(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
