// The views of the page. A new one is a file in views/ and a line in main.ts.

import type { PageData } from "./data";
import type { Target } from "./timeline/targets";
import type { Tree } from "./tree";

export interface Context {
  page: PageData;
  tree: Tree | null;
  /** The part of the page's address that leads to a node of the tree, with its #. */
  address(node: number): string;
  /** Show a node of the tree, and put it into the address. */
  open(node: number): void;
  /** Show the nodes whose name holds the text. */
  search(text: string): void;
  /** Show the longest event of a target in the timeline. */
  locate(target: Target): void;
  /** Show another rank or device, by its number among the options, and put it into the address. */
  choose(option: number): void;
  /** What is called when the node shown or the text sought changes. */
  onOpen(listener: (node: number) => void): void;
  onSearch(listener: (text: string) => void): void;
  onLocate(listener: (target: Target) => void): void;
}

/** A section: shown where the record has the part of its name; `wide` fills the page. */
export interface View<Part> {
  id: string;
  title: string;
  wide?: boolean;
  draw(part: Part, host: HTMLElement, context: Context): void;
}

export const views: View<any>[] = [];

export function register<Part>(...more: View<Part>[]): void {
  views.push(...more);
}
