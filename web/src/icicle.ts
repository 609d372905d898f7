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

/**
 * Return the cells of all below the focus in `width` pixels, row by row as they are met.
 *
 * What is too narrow is folded with its neighbours, and nothing below it is looked at: the work is
 * that of what is seen, whatever the size of the tree.
 */
export function layout(tree: Tree, sizes: Float64Array, focus: Focus, width: number): Cell[] {
  const cells: Cell[] = [{ node: focus.node, level: 0, x: 0, width, folded: null }];
  for (let at = 0; at < cells.length; at++) {
    const { node, folded, level, x, width: wide } = cells[at];
    if (folded) continue;
    const children = tree.children(node);
    const [from, to] = at === 0 ? [focus.from, focus.to] : [0, children.length];
    let whole = sizes[node];
    if (to - from < children.length) {
      whole = children.subarray(from, to).reduce((sum, child) => sum + (sizes[child] || 0), 0);
    }
    if (whole > 0)
      place(cells, { node, from, to }, children, sizes, {
        level: level + 1,
        x,
        scale: wide / whole,
      });
  }
  return cells.filter((cell) => !cell.folded || cell.width >= 1);
}

function place(
  cells: Cell[],
  { node, from, to }: Focus,
  children: Int32Array,
  sizes: Float64Array,
  { level, x, scale }: { level: number; x: number; scale: number },
): void {
  let fold: Cell | null = null;
  for (let number = from; number < to; number++) {
    const width = (sizes[children[number]] || 0) * scale;
    if (width >= NARROWEST) {
      cells.push({ node: children[number], level, x, width, folded: null });
      fold = null;
    } else if (width > 0) {
      if (fold === null || fold.width > WIDEST_FOLD) {
        fold = { node, level, x, width: 0, folded: { node, from: number, to: number } };
        cells.push(fold);
      }
      fold.width += width;
      fold.folded!.to = number + 1;
    }
    x += width;
  }
}
