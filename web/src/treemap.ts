// Rectangles whose areas are sizes, as square as can be, in rows of the shorter side.

export interface Tile {
  at: number;
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Return a tile for each size above 0, in the unit of `width` and `height`, largest first. */
export function treemap(sizes: number[], width: number, height: number): Tile[] {
  const order = sizes.map((_, at) => at).filter((at) => sizes[at] > 0);
  order.sort((a, b) => sizes[b] - sizes[a]);
  const whole = order.reduce((sum, at) => sum + sizes[at], 0);
  const scale = whole ? (width * height) / whole : 0;
  const tiles: Tile[] = [];
  let [x, y] = [0, 0];
  for (let from = 0; from < order.length; ) {
    const [wide, high] = [width - x, height - y];
    const side = Math.min(wide, high);
    let to = from + 1;
    let area = sizes[order[from]] * scale;
    let worst = oblong(area, area, area, side);
    for (; to < order.length; to++) {
      const next = sizes[order[to]] * scale;
      const shape = oblong(sizes[order[from]] * scale, next, area + next, side);
      if (shape > worst) break;
      [worst, area] = [shape, area + next];
    }
    const deep = side ? area / side : 0;
    let along = 0;
    for (const at of order.slice(from, to)) {
      const long = deep ? (sizes[at] * scale) / deep : 0;
      tiles.push(
        wide >= high
          ? { at, x, y: y + along, width: deep, height: long }
          : { at, x: x + along, y, width: long, height: deep },
      );
      along += long;
    }
    if (wide >= high) x += deep;
    else y += deep;
    from = to;
  }
  return tiles;
}

/** How far the worst of a row's tiles is from a square. */
function oblong(most: number, least: number, area: number, side: number): number {
  return Math.max((side * side * most) / (area * area), (area * area) / (side * side * least));
}
