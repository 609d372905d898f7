// Which nodes of the tree are drawn, and where: a child below its parent, as wide as its share.

import type { Tree } from "./tree";

export interface Cell {
  /** The node; of several too narrow to draw, their parent. */
  node: number;
  level: number;
  x: number;
  width: number;
  /** How many nodes it stands for, where they were too narrow. */
  folded: number;
}

// In pixels: what is narrower cannot be hit with a pointer.
const NARROWEST = 3;

/**
 * Return the cells of all below `focus` in `width` pixels, row by row as they are met.
 *
 * What is too narrow is folded with its neighbours, and nothing below it is looked at: the work is
 * that of what is seen, whatever the size of the tree.
 */
export function layout(tree: Tree, sizes: Float64Array, focus: number, width: number): Cell[] {
  const cells: Cell[] = [{ node: focus, level: 0, x: 0, width, folded: 0 }];
  for (let at = 0; at < cells.length; at++) {
    const above = cells[at];
    const whole = sizes[above.node];
    if (above.folded || !(whole > 0)) continue;
    let x = above.x;
    let fold: Cell | null = null;
    for (const child of tree.children(above.node)) {
      const wide = ((sizes[child] || 0) / whole) * above.width;
      if (wide >= NARROWEST) {
        cells.push({ node: child, level: above.level + 1, x, width: wide, folded: 0 });
        fold = null;
      } else if (wide > 0) {
        if (fold === null) {
          fold = { node: above.node, level: above.level + 1, x, width: 0, folded: 0 };
          cells.push(fold);
        }
        fold.width += wide;
        fold.folded++;
      }
      x += wide;
    }
  }
  return cells.filter((cell) => !cell.folded || cell.width >= 1);
}
