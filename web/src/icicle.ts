// Which nodes of the tree are drawn, and where: a child below its parent, as wide as its share.

import type { Tree } from "./tree";

/** A node, or its children of these numbers alone. */
export interface Focus {
  node: number;
  from: number;
  to: number;
}

export interface Cell {
  /** The node; of several too narrow to draw, their parent. */
  node: number;
  /** The last of the chain that the cell stands for; the node itself where it begins none. */
  last: number;
  level: number;
  x: number;
  width: number;
  /** Which children of `node` it stands for, where they were too narrow. */
  folded: Focus | null;
}

// In pixels: what is narrower cannot be hit with a pointer, and a fold as wide is one of several, so
// that each click into one shows far fewer.
const NARROWEST = 3;
const WIDEST_FOLD = 48;

export function all(tree: Tree, node: number): Focus {
  return { node, from: 0, to: tree.children(node).length };
}

/** The figure of all that a focus shows. */
export function whole(tree: Tree, sizes: Float64Array, { node, from, to }: Focus): number {
  const children = tree.children(node);
  if (to - from === children.length) return sizes[node];
  return children.subarray(from, to).reduce((sum, child) => sum + (sizes[child] || 0), 0);
}

/**
 * Return the cells of all below the focus in `width` pixels, row by row as they are met.
 *
 * What is too narrow is folded with its neighbours, and nothing below it is looked at: the work is
 * that of what is seen, whatever the size of the tree.
 */
export function layout(tree: Tree, sizes: Float64Array, focus: Focus, width: number): Cell[] {
  const part = focus.to - focus.from < tree.children(focus.node).length;
  const top = part ? focus.node : tree.chainEnd(focus.node, sizes);
  const cells: Cell[] = [{ node: focus.node, last: top, level: 0, x: 0, width, folded: null }];
  for (let at = 0; at < cells.length; at++) {
    const { last: node, folded, level, x, width: wide } = cells[at];
    if (folded) continue;
    const children = tree.children(node);
    const [from, to] = at === 0 && part ? [focus.from, focus.to] : [0, children.length];
    const size = at === 0 ? whole(tree, sizes, focus) : sizes[cells[at].node];
    if (size > 0)
      place(tree, cells, { node, from, to }, sizes, {
        level: level + 1,
        x,
        scale: wide / size,
      });
  }
  return cells.filter((cell) => !cell.folded || cell.width >= NARROWEST);
}

function place(
  tree: Tree,
  cells: Cell[],
  { node, from, to }: Focus,
  sizes: Float64Array,
  { level, x, scale }: { level: number; x: number; scale: number },
): void {
  const children = tree.children(node);
  let fold: Cell | null = null;
  for (let number = from; number < to; number++) {
    const width = (sizes[children[number]] || 0) * scale;
    if (width >= NARROWEST) {
      const child = children[number];
      const last = tree.chainEnd(child, sizes);
      cells.push({ node: child, last, level, x, width, folded: null });
      fold = null;
    } else if (width > 0) {
      if (fold === null || fold.width > WIDEST_FOLD) {
        fold = { node, last: node, level, x, width: 0, folded: { node, from: number, to: number } };
        cells.push(fold);
      }
      fold.width += width;
      fold.folded!.to = number + 1;
    }
    x += width;
  }
}
