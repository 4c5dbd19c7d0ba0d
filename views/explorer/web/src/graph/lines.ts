// Routes of edges as curves: between two points a line leaves and arrives vertically; between two of the same height it
// turns back, by a half circle.

const TURN = 28;

interface Pen {
  moveTo(x: number, y: number): void;
  lineTo(x: number, y: number): void;
  bezierCurveTo(ax: number, ay: number, bx: number, by: number, x: number, y: number): void;
}

export function trace(pen: Pen, points: Float32Array, begin: number, end: number): void {
  let x = points[begin]!,
    y = points[begin + 1]!,
    down = 1;
  pen.moveTo(x, y);
  for (let i = begin + 2; i < end; i += 2) {
    const nx = points[i]!,
      ny = points[i + 1]!;
    if (nx === x) pen.lineTo(nx, ny);
    else if (ny === y) pen.bezierCurveTo(x, y + down * TURN, nx, y + down * TURN, nx, ny);
    else {
      const middle = (y + ny) / 2;
      pen.bezierCurveTo(x, middle, nx, middle, nx, ny);
    }
    if (ny !== y) down = ny > y ? 1 : -1;
    else if (nx !== x) down = -down;
    x = nx;
    y = ny;
  }
}

/** The square of the distance from a point to a route. */
export function distance(points: Float32Array, begin: number, end: number, px: number, py: number): number {
  let least = Infinity,
    lx = 0,
    ly = 0;
  const line = (x: number, y: number) => {
    const dx = x - lx,
      dy = y - ly,
      length = dx * dx + dy * dy;
    const t = length ? Math.max(0, Math.min(1, ((px - lx) * dx + (py - ly) * dy) / length)) : 0;
    least = Math.min(least, (lx + t * dx - px) ** 2 + (ly + t * dy - py) ** 2);
    lx = x;
    ly = y;
  };
  trace(
    {
      moveTo(x, y) {
        lx = x;
        ly = y;
      },
      lineTo: line,
      bezierCurveTo(ax, ay, bx, by, x, y) {
        const sx = lx,
          sy = ly;
        for (let k = 1; k <= 10; k++) {
          const t = k / 10,
            s = 1 - t;
          line(
            s * s * s * sx + 3 * s * s * t * ax + 3 * s * t * t * bx + t * t * t * x,
            s * s * s * sy + 3 * s * s * t * ay + 3 * s * t * t * by + t * t * t * y,
          );
        }
      },
    },
    points,
    begin,
    end,
  );
  return least;
}
