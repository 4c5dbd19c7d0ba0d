// A scene on its way to the canvas: places move smoothly from one layout to the next.

import type { Laid } from "../layout/client";
import { reducedMotion } from "../theme";

const MS = 300,
  MOST_MOVED = 2500;

export class Stage {
  laid: Laid | null = null;
  x = new Float32Array();
  y = new Float32Array();
  w = new Float32Array();
  h = new Float32Array();
  /** How far the layout has moved, and how visible what is new has become: 0 … 1. */
  progress = 1;
  /** Which node is which call; ports are not in it. */
  nodeOf = new Map<number, number>();
  private from: { x: Float32Array; y: Float32Array; w: Float32Array; h: Float32Array } | null = null;
  fresh = new Uint8Array();
  private start = 0;

  /** Where a node stood before, and where it stands now, so that the camera may hold it in place. */
  replace(next: Laid, animated: boolean): void {
    const { scene } = next;
    const n = scene.call.length;
    const before = this.laid && this.laid.model === next.model ? this.index() : null;
    this.fresh = new Uint8Array(n);
    this.from = null;
    if (before && animated && !reducedMotion.matches && n <= MOST_MOVED) {
      const from = { x: scene.x.slice(), y: scene.y.slice(), w: scene.w.slice(), h: scene.h.slice() };
      for (let i = 0; i < n; i++) {
        const old = before.get(scene.call[i]! * 65536 + scene.port[i]! + 1);
        if (old === undefined) {
          this.fresh[i] = 1;
          continue;
        }
        from.x[i] = this.x[old]!;
        from.y[i] = this.y[old]!;
        from.w[i] = this.w[old]!;
        from.h[i] = this.h[old]!;
      }
      this.from = from;
    }
    this.laid = next;
    this.nodeOf = new Map();
    for (let i = 0; i < n; i++) if (scene.port[i]! < 0) this.nodeOf.set(scene.call[i]!, i);
    this.x = scene.x.slice();
    this.y = scene.y.slice();
    this.w = scene.w.slice();
    this.h = scene.h.slice();
    this.start = performance.now();
    this.progress = this.from ? 0 : 1;
    this.tick(this.start);
  }

  private index(): Map<number, number> {
    const { scene } = this.laid!;
    const result = new Map<number, number>();
    for (let i = 0; i < scene.call.length; i++) result.set(scene.call[i]! * 65536 + scene.port[i]! + 1, i);
    return result;
  }

  /** True while it moves. */
  tick(now: number): boolean {
    if (!this.from || !this.laid) return false;
    const t = Math.min(1, Math.max(0, (now - this.start) / MS)),
      e = t < 0.5 ? 4 * t ** 3 : 1 - (2 - 2 * t) ** 3 / 2;
    const { scene } = this.laid;
    for (const key of ["x", "y", "w", "h"] as const) {
      const from = this.from[key],
        to = scene[key],
        now = this[key];
      for (let i = 0; i < to.length; i++) now[i] = from[i]! + (to[i]! - from[i]!) * e;
    }
    this.progress = e;
    if (t >= 1) {
      this.from = null;
      this.progress = 1;
    }
    return this.from !== null;
  }

  /** The topmost node at a point; -1 if there is none. */
  hit(x: number, y: number, slack: number): number {
    if (!this.laid) return -1;
    const { port } = this.laid.scene;
    for (let i = this.x.length - 1; i >= 0; i--) {
      const s = port[i]! >= 0 ? slack : 0;
      if (x >= this.x[i]! - s && x <= this.x[i]! + this.w[i]! + s && y >= this.y[i]! - s && y <= this.y[i]! + this.h[i]! + s) return i;
    }
    return -1;
  }

  box(i: number): { x: number; y: number; w: number; h: number } {
    const { scene } = this.laid!;
    return { x: scene.x[i]!, y: scene.y[i]!, w: scene.w[i]!, h: scene.h[i]! };
  }
}
