// Draws the part of a stage that a camera sees: open frames, edges, then closed nodes and ports. What is too small to
// be seen is left out or drawn as a plain bar, so that a large model moves as smoothly as a small one.

import { shapeText, type Model } from "../data/model";
import type { FirstBad } from "../data/protocol";
import { badgeOf, isBad } from "../data/rules";
import { HEADER, portNumber } from "../layout/nested";
import { typeColour, type Palette } from "../theme";
import type { Camera } from "./camera";
import { drawEdges } from "./paint_edges";
import type { Stage } from "./stage";
import { fitted, setFont } from "./text";

/** `first`: which values were not finite here for the first time. */
export interface Badge {
  kind: string;
  value: number;
  inside: boolean;
  first: FirstBad["what"] | null;
}

/** All that decides how nodes look besides their places. */
export interface Look {
  palette: Palette;
  selected: number;
  hovered: number;
  hoveredEdge: number;
  pinned: ReadonlySet<number>;
  /** The fill of a call that a statistic colours; null for calls without one. Undefined: types colour the nodes. */
  fill: ((call: number) => string | null) | undefined;
  badges: ReadonlyMap<number, Badge>;
  /** Heights 0 … 1 of the output's distribution at the shown step. */
  shape: (call: number) => Float32Array | null;
  /** Null: no search; else what was found. */
  found: ReadonlySet<number> | null;
}

const RADIUS = 9;
/** The sides of a node that is too small to be drawn, in pixels of the screen. */
const LEAST_BAR = 1.5;

export function paint(context: CanvasRenderingContext2D, ratio: number, stage: Stage, camera: Camera, look: Look): void {
  const { palette } = look;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = palette.back;
  context.fillRect(0, 0, camera.width, camera.height);
  dots(context, camera, palette);
  if (!stage.laid) return;
  new Painter(context, ratio, stage, camera, look).draw();
}

/** A grid of dots, as on squared paper, that fades where it would be too dense. */
function dots(context: CanvasRenderingContext2D, camera: Camera, palette: Palette): void {
  let gap = 24 * camera.k;
  while (gap < 18) gap *= 4;
  while (gap > 72) gap /= 4;
  context.fillStyle = palette.dots;
  const left = -(((camera.x * camera.k) % gap) + gap) % gap,
    top = -(((camera.y * camera.k) % gap) + gap) % gap;
  for (let y = top; y < camera.height; y += gap) for (let x = left; x < camera.width; x += gap) context.fillRect(x, y, 1.4, 1.4);
}

class Painter {
  private readonly model: Model;
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;

  constructor(
    private readonly c: CanvasRenderingContext2D,
    ratio: number,
    private readonly stage: Stage,
    private readonly camera: Camera,
    private readonly look: Look,
  ) {
    this.model = stage.laid!.model;
    const { x, y, k, width, height } = camera;
    [this.left, this.top, this.right, this.bottom] = [x, y, x + width / k, y + height / k];
    c.setTransform(ratio * k, 0, 0, ratio * k, -x * k * ratio, -y * k * ratio);
  }

  draw(): void {
    const { scene } = this.stage.laid!;
    const { k } = this.camera;
    const closed: number[] = [];
    for (let i = 0; i < scene.call.length; i++) {
      if (!this.seen(i)) continue;
      if (scene.flags[i]! & 1) this.frame(i);
      else closed.push(i);
    }
    if (k > 0.05) drawEdges(this.c, this.stage, this.camera, this.look, this);
    const bars = new Map<string, number[]>();
    for (const i of closed) {
      if (scene.port[i]! >= 0) {
        if (k > 0.2) this.port(i);
        continue;
      }
      if (this.stage.h[i]! * k < 9) {
        const colour = this.colour(i);
        const list = bars.get(colour);
        if (list) list.push(i);
        else bars.set(colour, [i]);
      } else {
        this.node(i);
      }
    }
    this.bars(bars);
    this.marks(closed);
  }

  private seen(i: number): boolean {
    const { x, y, w, h } = this.stage;
    return x[i]! < this.right && x[i]! + w[i]! > this.left && y[i]! < this.bottom && y[i]! + h[i]! > this.top;
  }

  /** New nodes appear; what a search does not find steps back. */
  private alpha(i: number): number {
    const fresh = this.stage.fresh[i] ? Math.max(0, this.stage.progress * 2 - 1) : 1;
    const { found } = this.look;
    return found && !found.has(this.stage.laid!.scene.call[i]!) ? fresh * 0.28 : fresh;
  }

  private colour(i: number): string {
    const call = this.stage.laid!.scene.call[i]!;
    if (this.look.fill) return this.look.fill(call) ?? this.look.palette.line;
    return typeColour(this.model.byId.get(call)!.type, this.look.palette.dark);
  }

  private frame(i: number): void {
    const {
      c,
      stage,
      look: { palette },
    } = this;
    const { scene } = stage.laid!;
    const call = this.model.byId.get(scene.call[i]!)!;
    const [x, y, w, h] = [stage.x[i]!, stage.y[i]!, stage.w[i]!, stage.h[i]!];
    const { k } = this.camera;
    c.globalAlpha = stage.fresh[i] ? Math.max(0, stage.progress * 2 - 1) : 1;
    c.fillStyle = palette.frames[scene.depth[i]! % palette.frames.length]!;
    c.beginPath();
    if (h * k > 40) c.roundRect(x, y, w, h, RADIUS + 3);
    else c.rect(x, y, w, h);
    c.fill();
    if (h * k < 12 && !this.look.fill) {
      c.globalAlpha = 1;
      return;
    }
    const statistic = this.look.fill?.(call.id);
    c.lineWidth = Math.min(1.2 / k, 3);
    c.strokeStyle = statistic ?? (this.isActive(i) ? palette.accent : palette.line);
    if (this.isActive(i)) c.lineWidth = 2 / Math.min(1, k);
    c.stroke();
    const size = HEADER * k;
    if (size > 9) {
      const colour = typeColour(call.type, palette.dark);
      c.fillStyle = colour;
      triangle(c, x + 15, y + HEADER / 2 + 4, true);
      setFont(c, 12.5, 600);
      c.textBaseline = "middle";
      c.fillStyle = palette.ink;
      const name = fitted(c, this.model.label(call), w - 44);
      c.fillText(name, x + 25, y + HEADER / 2 + 4);
      const used = 25 + c.measureText(name).width + 8;
      setFont(c, 11);
      c.fillStyle = palette.soft;
      if (w - used > 40) c.fillText(fitted(c, call.type, w - used - 16), x + used, y + HEADER / 2 + 4);
    } else if (w * k > 46 && h * k > 24 && (size > 4 || scene.depth[i] === 0)) {
      // Too far away for a header to be read: a name of readable size, if there is room between header and content.
      const font = Math.min(10.5 / k, HEADER * 1.1);
      setFont(c, font, 600);
      c.textBaseline = "top";
      c.fillStyle = palette.soft;
      c.fillText(fitted(c, this.model.label(call), w - 16 / k), x + 6 / k, y + 4);
    }
    c.globalAlpha = 1;
  }

  private isActive(i: number): boolean {
    const { scene } = this.stage.laid!;
    return scene.port[i]! < 0 && (scene.call[i] === this.look.selected || (i === this.look.hovered && !(scene.flags[i]! & 1)));
  }

  private port(i: number): void {
    const {
      c,
      stage,
      look: { palette },
    } = this;
    const { scene } = stage.laid!;
    const x = stage.x[i]! + stage.w[i]! / 2,
      y = stage.y[i]! + stage.h[i]! / 2;
    c.globalAlpha = this.look.found ? 0.4 : stage.progress < 1 && stage.fresh[i] ? 0 : 1;
    c.beginPath();
    c.arc(x, y, 4.2, 0, 7);
    c.fillStyle = i === this.look.hovered ? palette.accent : palette.surface;
    c.fill();
    c.lineWidth = 1.5;
    c.strokeStyle = palette.edge;
    c.stroke();
    if (scene.depth[i] === 0 && this.camera.k > 0.42) {
      const call = this.model.byId.get(scene.call[i]!)!,
        k = portNumber(scene.port[i]!),
        out = scene.port[i]! % 2 === 1;
      const port = (out ? call.outputs : call.inputs)[k];
      setFont(c, 11);
      c.textBaseline = "middle";
      c.textAlign = "center";
      c.fillStyle = palette.soft;
      const many = (out ? call.outputs : call.inputs).length > 1;
      c.fillText(
        `${k < 0 ? "captured" : out ? "output" : "input"}${many && k >= 0 ? " " + k : ""}${port ? "  " + shapeText(port.shape) : ""}`,
        x,
        y + (out ? 16 : -15),
      );
      c.textAlign = "left";
    }
    c.globalAlpha = 1;
  }

  private node(i: number): void {
    const { c, stage, look } = this;
    const { palette } = look;
    const { scene } = stage.laid!;
    const { k } = this.camera;
    const id = scene.call[i]!,
      call = this.model.byId.get(id)!;
    const [x, y, w, h] = [stage.x[i]!, stage.y[i]!, stage.w[i]!, stage.h[i]!];
    const group = (scene.flags[i]! & 2) !== 0;
    const active = this.isActive(i);
    const statistic = look.fill?.(id);
    const colour = typeColour(call.type, palette.dark);
    c.globalAlpha = this.alpha(i);
    if (group && k > 0.3) {
      // A second sheet below: there is more inside.
      c.fillStyle = palette.surface;
      c.strokeStyle = palette.line;
      c.lineWidth = 1;
      c.beginPath();
      c.roundRect(x + 5, y + 4, w - 10, h, RADIUS);
      c.fill();
      c.stroke();
    }
    if (k > 0.5 && !palette.dark && !group) {
      // A blurred shadow of the canvas costs more than all the rest of a node.
      c.fillStyle = palette.shadow;
      c.beginPath();
      c.roundRect(x - 0.5, y + 0.5, w + 1, h + 1.5, RADIUS);
      c.fill();
    }
    c.fillStyle = statistic ?? palette.surface;
    c.beginPath();
    c.roundRect(x, y, w, h, RADIUS);
    c.fill();
    c.save();
    c.clip();
    if (!statistic) {
      c.fillStyle = colour;
      // Without readable words the colour has to say more.
      c.globalAlpha *= (palette.dark ? 0.1 : 0.06) + 0.34 * Math.max(0, Math.min(1, (0.5 - k) / 0.2));
      c.fillRect(x, y, w, h);
      c.globalAlpha = this.alpha(i);
    }
    const shape = h * k > 26 && !statistic ? look.shape(id) : null;
    if (shape) this.silhouette(shape, x, y, w, h, colour);
    c.fillStyle = colour;
    c.fillRect(x, y, 4, h);
    c.restore();
    c.lineWidth = active ? 2 : 1;
    c.strokeStyle = active ? palette.accent : look.pinned.has(id) ? colour : palette.line;
    if (look.pinned.has(id) && !active) c.lineWidth = 1.6;
    c.beginPath();
    c.roundRect(x, y, w, h, RADIUS);
    c.stroke();
    if (h * k > 15) this.words(i, statistic ?? null);
    c.globalAlpha = 1;
  }

  private words(i: number, fill: string | null): void {
    const {
      c,
      stage,
      look: { palette },
    } = this;
    const { scene } = stage.laid!;
    const call = this.model.byId.get(scene.call[i]!)!;
    const [x, y, w] = [stage.x[i]!, stage.y[i]!, stage.w[i]!];
    const group = (scene.flags[i]! & 2) !== 0;
    const bright = fill ? luminance(fill) > 0.45 : false;
    const ink = fill ? (bright ? "#16181d" : "#ffffff") : palette.ink;
    const soft = fill ? (bright ? "rgba(22,24,29,.7)" : "rgba(255,255,255,.78)") : palette.soft;
    c.textBaseline = "alphabetic";
    setFont(c, 12.5, 600);
    c.fillStyle = ink;
    c.fillText(fitted(c, this.model.label(call), w - (group ? 40 : 24)), x + 14, y + 19.5);
    if (this.camera.k > 0.42) {
      setFont(c, 11);
      c.fillStyle = soft;
      c.fillText(fitted(c, call.type, w - 24), x + 14, y + 35.5);
    }
    if (group) {
      c.fillStyle = soft;
      triangle(c, x + w - 15, y + 16, false);
    }
  }

  /** The distribution of the output as a hill that grows out of the node's floor. */
  private silhouette(shape: Float32Array, x: number, y: number, w: number, h: number, colour: string): void {
    const { c } = this;
    const left = x + 4,
      wide = w - 4,
      step = wide / shape.length,
      high = h * 0.72;
    c.beginPath();
    c.moveTo(left, y + h);
    let before = 0;
    shape.forEach((v, b) => {
      const px = left + (b + 0.5) * step;
      if (b === 0) c.lineTo(left, y + h - v * high);
      const middle = px - step / 2;
      c.bezierCurveTo(middle, y + h - before * high, middle, y + h - v * high, px, y + h - v * high);
      before = v;
    });
    c.lineTo(x + w, y + h - before * high);
    c.lineTo(x + w, y + h);
    c.closePath();
    c.fillStyle = colour;
    const alpha = c.globalAlpha;
    c.globalAlpha = alpha * (this.look.palette.dark ? 0.34 : 0.25);
    c.fill();
    c.globalAlpha = alpha;
  }

  private bars(bars: ReadonlyMap<string, number[]>): void {
    const { c, stage, look } = this;
    const { k } = this.camera;
    for (const [colour, list] of bars) {
      c.fillStyle = colour;
      for (const i of list) {
        c.globalAlpha = look.fill ? 1 : 0.75 * this.alpha(i);
        // From any distance something is seen where a node is.
        const w = Math.max(stage.w[i]!, LEAST_BAR / k),
          h = Math.max(stage.h[i]!, LEAST_BAR / k);
        c.fillRect(stage.x[i]!, stage.y[i]!, w, h);
      }
    }
    c.globalAlpha = 1;
    const at = stage.nodeOf.get(look.selected);
    if (at !== undefined && stage.h[at]! * k < 9) {
      c.strokeStyle = look.palette.accent;
      c.lineWidth = 2.5 / k;
      c.strokeRect(stage.x[at]!, stage.y[at]!, stage.w[at]!, stage.h[at]!);
    }
  }

  /** Findings, drawn last: they should be seen from any distance. */
  private marks(closed: readonly number[]): void {
    const {
      c,
      stage,
      look: { badges, palette },
    } = this;
    if (!badges.size) return;
    const { scene } = stage.laid!;
    const { k } = this.camera;
    for (const i of closed) {
      const badge = scene.port[i]! < 0 ? badges.get(scene.call[i]!) : undefined;
      if (!badge) continue;
      const colour = isBad(badge.kind) ? palette.bad : palette.warn;
      const [x, y, w, h] = [stage.x[i]!, stage.y[i]!, stage.w[i]!, stage.h[i]!];
      c.strokeStyle = colour;
      c.lineWidth = Math.max(2, Math.min(2 / k, 14));
      c.beginPath();
      c.roundRect(x, y, w, h, Math.min(RADIUS, h / 3));
      c.globalAlpha = 0.25;
      c.lineWidth *= 3;
      c.stroke();
      c.globalAlpha = 1;
      c.lineWidth /= 3;
      c.stroke();
      if (badge.first && k < 0.42) {
        // The one to look at is seen from any distance.
        c.fillStyle = colour;
        c.beginPath();
        c.arc(x + w, y, 6 / k, 0, 7);
        c.fill();
      }
      if (k < 0.42 || (isBad(badge.kind) && !badge.first)) continue;
      setFont(c, 9.5, 700);
      const text = badge.first ? `first ${badge.first === "nan" ? "NaN" : "Inf"}` : badgeOf(badge.kind),
        wide = c.measureText(text).width + 12;
      c.fillStyle = colour;
      c.beginPath();
      c.roundRect(x + w - wide - 6, y - 8, wide, 16, 8);
      c.fill();
      c.fillStyle = palette.dark ? "#14161c" : "#ffffff";
      c.textBaseline = "middle";
      c.fillText(text, x + w - wide, y + 0.5);
    }
  }
}

function triangle(c: CanvasRenderingContext2D, x: number, y: number, open: boolean): void {
  c.beginPath();
  if (open) {
    c.moveTo(x - 4.5, y - 2.5);
    c.lineTo(x + 4.5, y - 2.5);
    c.lineTo(x, y + 3.2);
  } else {
    c.moveTo(x - 2.5, y - 4.5);
    c.lineTo(x - 2.5, y + 4.5);
    c.lineTo(x + 3.2, y);
  }
  c.fill();
}

function luminance(colour: string): number {
  const [r = 0, g = 0, b = 0] = (colour.match(/\d+/g) ?? []).map(Number);
  return (0.299 * r + 0.587 * g + 0.114 * b) / 255;
}
