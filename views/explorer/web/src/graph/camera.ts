// Which part of the scene is seen: screen = (world - (x, y)) * k.

import { reducedMotion } from "../theme";

export interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}
const LEAST = 0.004,
  MOST = 3;

export class Camera {
  x = 0;
  y = 0;
  k = 1;
  width = 1;
  height = 1;
  private move: { from: [number, number, number]; to: [number, number, number]; start: number; ms: number } | null = null;

  resize(width: number, height: number): void {
    // What was in the middle stays there.
    this.x += (this.width - width) / 2 / this.k;
    this.y += (this.height - height) / 2 / this.k;
    this.width = width;
    this.height = height;
  }

  world(sx: number, sy: number): [number, number] {
    return [sx / this.k + this.x, sy / this.k + this.y];
  }
  screen(x: number, y: number): [number, number] {
    return [(x - this.x) * this.k, (y - this.y) * this.k];
  }

  pan(dx: number, dy: number): void {
    this.move = null;
    this.x -= dx / this.k;
    this.y -= dy / this.k;
  }

  zoom(factor: number, sx: number, sy: number): void {
    this.move = null;
    const [wx, wy] = this.world(sx, sy);
    this.k = Math.min(MOST, Math.max(LEAST, this.k * factor));
    this.x = wx - sx / this.k;
    this.y = wy - sy / this.k;
  }

  /** The whole scene clear of the buttons over it, but small ones not much larger than life. */
  fit(box: Box, animated: boolean): void {
    // As in app.css: buttons lie in a row where the window is narrow, and the legend folds where it is narrower still.
    const [left, right, top] = innerWidth <= 1180 ? [14, 14, 62] : [58, 22, 22],
      bottom = innerWidth <= 760 ? 66 : 100;
    const wide = this.width - left - right,
      high = this.height - top - bottom;
    const k = Math.min(1.15, Math.max(LEAST, Math.min(wide / box.w, high / box.h)));
    this.go([box.x + box.w / 2 - (left + wide / 2) / k, box.y + box.h / 2 - (top + high / 2) / k, k], animated);
  }

  /** A comfortable view of one node; keeps the zoom where it is comfortable already. */
  show(box: Box, animated: boolean): void {
    const room = Math.min((this.width * 0.86) / box.w, (this.height * 0.86) / box.h);
    const k = Math.min(room, Math.max(0.8, Math.min(1.3, this.k)));
    this.go([box.x + box.w / 2 - this.width / 2 / k, box.y + box.h / 2 - this.height / 2 / k, k], animated);
  }

  go(to: [number, number, number], animated: boolean): void {
    this.move = null;
    if (!animated || reducedMotion.matches) {
      [this.x, this.y, this.k] = to;
      return;
    }
    this.move = { from: [this.x, this.y, this.k], to, start: performance.now(), ms: 380 };
  }

  /** Moves on; true while there is further to go. */
  tick(now: number): boolean {
    if (!this.move) return false;
    const { from, to, start, ms } = this.move;
    const t = Math.min(1, (now - start) / ms),
      e = 1 - (1 - t) ** 3;
    // The middle moves evenly while the zoom changes by equal factors.
    const k = from[2] * (to[2] / from[2]) ** e;
    const cx = (p: [number, number, number]) => p[0] + this.width / 2 / p[2];
    const cy = (p: [number, number, number]) => p[1] + this.height / 2 / p[2];
    this.k = k;
    this.x = cx(from) + (cx(to) - cx(from)) * e - this.width / 2 / k;
    this.y = cy(from) + (cy(to) - cy(from)) * e - this.height / 2 / k;
    if (t >= 1) {
      this.move = null;
      [this.x, this.y, this.k] = to;
    }
    return this.move !== null;
  }
}
