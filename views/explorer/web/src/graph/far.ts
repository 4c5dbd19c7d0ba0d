// A large model seen from far away: thousands of small things that look the same from one frame to the next. They are
// drawn once, with room around what is seen, and moved as a picture.

import { Camera } from "./camera";
import { paint, type Look } from "./paint";
import type { Stage } from "./stage";

const MANY = 2500,
  NEAR = 0.3;

export class Far {
  private picture: {
    canvas: HTMLCanvasElement;
    x: number;
    y: number;
    k: number;
    width: number;
    height: number;
    key: readonly unknown[];
    ratio: number;
  } | null = null;

  static wanted({ laid }: Stage, { k }: Camera): boolean {
    return laid !== null && k < NEAR && laid.scene.call.length > MANY;
  }

  forget(): void {
    this.picture = null;
  }

  /** False if what was drawn is not sharp: while one zooms, the old picture is stretched. */
  paint(context: CanvasRenderingContext2D, ratio: number, stage: Stage, camera: Camera, look: Look, key: readonly unknown[]): boolean {
    const old = this.picture;
    const same =
      old !== null &&
      old.ratio === ratio &&
      old.key.every((v, i) => v === key[i]) &&
      old.width === 2 * camera.width &&
      old.height === 2 * camera.height;
    const stretch = same ? camera.k / old.k : 0;
    if (!same || stretch < 0.5 || stretch > 2 || !this.covers(camera)) this.draw(ratio, stage, camera, look, key);
    const { canvas, x, y, k, width, height } = this.picture!;
    const by = camera.k / k;
    const [left, top] = camera.screen(x, y);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = look.palette.back;
    context.fillRect(0, 0, camera.width, camera.height);
    // Whole pixels, or the picture would blur as it moves.
    const snap = (v: number) => (by === 1 ? Math.round(v * ratio) / ratio : v);
    context.drawImage(canvas, snap(left), snap(top), width * by, height * by);
    return by === 1;
  }

  private covers(camera: Camera): boolean {
    const { x, y, k, width, height } = this.picture!;
    return (
      camera.x >= x &&
      camera.y >= y &&
      camera.x + camera.width / camera.k <= x + width / k &&
      camera.y + camera.height / camera.k <= y + height / k
    );
  }

  private draw(ratio: number, stage: Stage, camera: Camera, look: Look, key: readonly unknown[]): void {
    const wide = new Camera();
    wide.width = 2 * camera.width;
    wide.height = 2 * camera.height;
    wide.k = camera.k;
    wide.x = camera.x - camera.width / 2 / camera.k;
    wide.y = camera.y - camera.height / 2 / camera.k;
    const canvas = this.picture?.canvas ?? document.createElement("canvas");
    canvas.width = Math.round(wide.width * ratio);
    canvas.height = Math.round(wide.height * ratio);
    paint(canvas.getContext("2d", { alpha: false })!, ratio, stage, wide, look);
    this.picture = { canvas, x: wide.x, y: wide.y, k: wide.k, width: wide.width, height: wide.height, key, ratio };
  }
}
