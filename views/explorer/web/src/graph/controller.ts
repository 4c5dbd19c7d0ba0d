// The canvas of the graph: draws when something changed, and turns pointer and keys into changes of the state.

import { effect, signal, untracked } from "@preact/signals";
import { lay, laid } from "../layout/client";
import * as state from "../state";
import type { Call } from "../data/protocol";
import { palette } from "../theme";
import { Camera } from "./camera";
import { appearance, wantShapes } from "./appearance";
import { distance } from "./lines";
import { Far } from "./far";
import { paint, type Look } from "./paint";
import { Stage } from "./stage";

export interface Hover {
  call: number;
  port: number;
  edge: number;
  x: number;
  y: number;
}
export const hover = signal<Hover | null>(null);
export const cameraMoved = signal(0);

const CLICK = 5;

export class GraphController {
  readonly stage = new Stage();
  readonly camera = new Camera();
  /** Milliseconds that drawing took, newest last, for tests and the curious. */
  readonly drawn: number[] = [];
  private readonly context: CanvasRenderingContext2D;
  private readonly undo: (() => void)[] = [];
  private readonly pointers = new Map<number, { x: number; y: number }>();
  private frame = 0;
  private readonly far = new Far();
  private sharpen: ReturnType<typeof setTimeout> | undefined;
  private hovered = -1;
  private hoveredEdge = -1;
  private fitNext = true;
  private hold: { call: number; sx: number; sy: number } | null = null;
  private shownReveal = 0;
  private wholeShown = state.wholeAsked.value;
  private down: { x: number; y: number; node: number; moved: boolean; touch: boolean } | null = null;
  private lastTap = { at: 0, node: -1 };

  constructor(private readonly canvas: HTMLCanvasElement) {
    this.context = canvas.getContext("2d", { alpha: false })!;
    const on = <K extends keyof HTMLElementEventMap>(type: K, listener: (e: HTMLElementEventMap[K]) => void, options = {}) => {
      canvas.addEventListener(type, listener, options);
      this.undo.push(() => canvas.removeEventListener(type, listener));
    };
    on("pointerdown", this.pointerDown);
    on("pointermove", this.pointerMove);
    on("pointerup", this.pointerUp);
    on("pointercancel", this.pointerUp);
    on("pointerleave", () => {
      if (!this.down) this.setHover(-1, -1, 0, 0);
    });
    on("wheel", this.wheel, { passive: false });
    const watch = new ResizeObserver(() => this.resize());
    watch.observe(canvas.parentElement!);
    this.undo.push(() => watch.disconnect());
    this.undo.push(
      effect(() => {
        const model = state.a.value?.model.value;
        if (model) lay(model, state.open.value);
      }),
    );
    this.undo.push(
      effect(() => {
        if (laid.value) untracked(() => this.take());
      }),
    );
    this.undo.push(effect(() => this.reveal()));
    this.undo.push(
      effect(() => {
        // Everything that drawing reads; the drawing itself happens in the next frame.
        void [state.selected.value, state.pinned.value, state.dark.value, state.query.value];
        appearance.value;
        this.redraw();
      }),
    );
    document.fonts?.ready.then(() => this.redraw());
  }

  end(): void {
    cancelAnimationFrame(this.frame);
    for (const f of this.undo) f();
  }

  redraw = (): void => {
    if (!this.frame) this.frame = requestAnimationFrame(this.draw);
  };

  private readonly draw = (now: number): void => {
    this.frame = 0;
    const moving = this.camera.tick(now),
      changing = this.stage.tick(now);
    const model = state.a.value?.model.value;
    const start = performance.now();
    const id = (key: string) => model?.byKey.get(key)?.id ?? -1;
    const look: Look = {
      palette: palette(state.dark.value),
      selected: id(state.selected.value),
      hovered: this.hovered,
      hoveredEdge: this.hoveredEdge,
      pinned: new Set(state.pinned.value.map(id)),
      ...appearance.value,
    };
    const key = [appearance.value, this.stage.laid, state.selected.value, state.pinned.value, this.hovered, this.hoveredEdge, look.palette];
    if (!changing && Far.wanted(this.stage, this.camera)) {
      if (!this.far.paint(this.context, devicePixelRatio, this.stage, this.camera, look, key)) {
        clearTimeout(this.sharpen);
        this.sharpen = setTimeout(() => {
          this.far.forget();
          this.redraw();
        }, 140);
      }
    } else {
      paint(this.context, devicePixelRatio, this.stage, this.camera, look);
    }
    this.drawn.push(performance.now() - start);
    if (this.drawn.length > 600) this.drawn.shift();
    cameraMoved.value++;
    wantShapes(this.visible());
    if (moving || changing) this.redraw();
  };

  /** Closed calls that are large enough on the screen for a distribution in them. */
  private visible(): number[] {
    const { stage, camera } = this;
    if (!stage.laid || camera.k * 46 <= 26) return [];
    const { call, port } = stage.laid.scene;
    const [left, top] = camera.world(0, 0),
      [right, bottom] = camera.world(camera.width, camera.height);
    const result: number[] = [];
    for (let i = 0; i < call.length && result.length < 160; i++) {
      if (
        port[i]! < 0 &&
        stage.x[i]! < right &&
        stage.x[i]! + stage.w[i]! > left &&
        stage.y[i]! < bottom &&
        stage.y[i]! + stage.h[i]! > top
      )
        result.push(call[i]!);
    }
    return result;
  }

  private resize(): void {
    const { clientWidth, clientHeight } = this.canvas.parentElement!;
    if (!clientWidth || !clientHeight) return;
    this.canvas.width = Math.round(clientWidth * devicePixelRatio);
    this.canvas.height = Math.round(clientHeight * devicePixelRatio);
    const first = this.camera.width <= 1;
    this.camera.resize(clientWidth, clientHeight);
    if (this.stage.laid && (first || this.fitNext)) this.fit(false);
    this.redraw();
  }

  private take(): void {
    const next = laid.value!;
    const other = this.stage.laid?.model !== next.model;
    const version = this.stage.laid?.model.graph.mode === next.model.graph.mode;
    this.stage.replace(next, true);
    this.setHover(-1, -1, 0, 0);
    if (this.fitNext || (other && !version)) {
      this.fitNext = this.camera.width <= 1;
      this.fit(false);
    } else if (state.wholeAsked.value !== this.wholeShown) {
      this.wholeShown = state.wholeAsked.value;
      this.fit(next.scene.call.length < 2500);
    } else if (this.hold) {
      const at = this.stage.nodeOf.get(this.hold.call);
      if (at !== undefined) {
        const { x, y, w } = this.stage.box(at);
        const k = this.camera.k;
        this.camera.go([x + w / 2 - this.hold.sx / k, y - this.hold.sy / k, k], true);
      }
    }
    this.hold = null;
    this.reveal();
    this.redraw();
  }

  fit(animated = true): void {
    const { laid } = this.stage;
    if (laid) this.camera.fit({ x: 0, y: 0, w: laid.scene.width, h: laid.scene.height }, animated);
    this.redraw();
  }

  zoom(factor: number): void {
    this.camera.zoom(factor, this.camera.width / 2, this.camera.height / 2);
    this.redraw();
  }

  private reveal(): void {
    const { id, again } = state.revealed.value;
    const at = this.stage.nodeOf.get(id);
    if (again === this.shownReveal || at === undefined) return;
    this.shownReveal = again;
    this.camera.show(this.stage.box(at), true);
    this.redraw();
  }

  /** Opens or closes a call; it stays where it is on the screen. */
  toggle(call: number): void {
    const model = state.a.value?.model.value;
    if (!model?.canOpen(call)) return;
    const at = this.stage.nodeOf.get(call);
    if (at !== undefined) {
      const { x, y, w } = this.stage.box(at);
      const [sx, sy] = this.camera.screen(x + w / 2, y);
      this.hold = { call, sx, sy: Math.max(24, sy) };
    }
    state.toggleOpen(model.key(call));
  }

  private at(e: { offsetX: number; offsetY: number }): number {
    const [x, y] = this.camera.world(e.offsetX, e.offsetY);
    return this.stage.hit(x, y, 4 / this.camera.k);
  }

  private edgeAt(e: { offsetX: number; offsetY: number }): number {
    const { laid } = this.stage;
    if (!laid || this.camera.k < 0.25) return -1;
    const [x, y] = this.camera.world(e.offsetX, e.offsetY);
    const slack = 6 / this.camera.k;
    let best = -1,
      least = slack * slack;
    const { scene } = laid;
    for (let i = 0; i < scene.edge.length; i++) {
      const begin = scene.begin[i]!,
        end = scene.begin[i + 1]!;
      const top = Math.min(scene.points[begin + 1]!, scene.points[end - 1]!) - 40;
      const bottom = Math.max(scene.points[begin + 1]!, scene.points[end - 1]!) + 40;
      if (end - begin < 12 && (y < top || y > bottom)) continue;
      const d = distance(scene.points, begin, end, x, y);
      if (d < least) {
        least = d;
        best = i;
      }
    }
    return best;
  }

  private setHover(node: number, edge: number, x: number, y: number): void {
    const { laid } = this.stage;
    const at = this.hovered !== node || this.hoveredEdge !== edge;
    this.hovered = node;
    this.hoveredEdge = edge;
    if (!laid || (node < 0 && edge < 0)) {
      if (hover.value) hover.value = null;
    } else if (at) {
      const { scene } = laid;
      hover.value = {
        call: node >= 0 ? scene.call[node]! : -1,
        port: node >= 0 ? scene.port[node]! : -1,
        edge: node < 0 ? scene.edge[edge]! : -1,
        x,
        y,
      };
    }
    this.canvas.style.cursor = node >= 0 && laid!.scene.port[node]! < 0 ? "pointer" : "";
    if (at) this.redraw();
  }

  private readonly pointerDown = (e: PointerEvent): void => {
    if (e.button !== 0) return;
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(e.pointerId);
    this.pointers.set(e.pointerId, { x: e.offsetX, y: e.offsetY });
    this.down = { x: e.offsetX, y: e.offsetY, node: this.at(e), moved: this.pointers.size > 1, touch: e.pointerType === "touch" };
  };

  private readonly pointerMove = (e: PointerEvent): void => {
    const before = this.pointers.get(e.pointerId);
    if (!before || !this.down) {
      if (e.pointerType === "touch") return;
      const node = this.at(e);
      const frame = node >= 0 && (this.stage.laid!.scene.flags[node]! & 1) !== 0;
      const edge = node < 0 || frame ? this.edgeAt(e) : -1;
      this.setHover(edge >= 0 ? -1 : node, edge, e.offsetX, e.offsetY);
      return;
    }
    const { down } = this;
    if (!down.moved && Math.hypot(e.offsetX - down.x, e.offsetY - down.y) < CLICK) return;
    down.moved = true;
    this.setHover(-1, -1, 0, 0);
    this.canvas.style.cursor = "grabbing";
    const others = [...this.pointers].filter(([id]) => id !== e.pointerId);
    if (others.length === 1) {
      const [, other] = others[0]!;
      const was = Math.hypot(before.x - other.x, before.y - other.y),
        is = Math.hypot(e.offsetX - other.x, e.offsetY - other.y);
      if (was > 8) this.camera.zoom(is / was, (e.offsetX + other.x) / 2, (e.offsetY + other.y) / 2);
      this.camera.pan((e.offsetX - before.x) / 2, (e.offsetY - before.y) / 2);
    } else if (this.dragged(down)) {
      state.dragging.value = { key: this.dragged(down)!, x: e.clientX, y: e.clientY };
    } else {
      this.camera.pan(e.offsetX - before.x, e.offsetY - before.y);
    }
    this.pointers.set(e.pointerId, { x: e.offsetX, y: e.offsetY });
    this.redraw();
  };

  /** The call that a drag which began here takes to the panels; null where it moves the graph. */
  private dragged({ node, touch }: { node: number; touch: boolean }): string | null {
    if (touch || node < 0) return null;
    const { scene, model } = this.stage.laid!;
    const header = scene.flags[node]! & 1 && this.down!.y > this.camera.screen(0, this.stage.y[node]! + 26)[1];
    return scene.port[node]! >= 0 || header ? null : model.key(scene.call[node]!);
  }

  private readonly pointerUp = (e: PointerEvent): void => {
    this.pointers.delete(e.pointerId);
    const { down } = this;
    if (this.pointers.size) return;
    this.down = null;
    this.canvas.style.cursor = "";
    const dragged = state.dragging.value;
    if (dragged) {
      state.dragging.value = null;
      const target = document.elementFromPoint(e.clientX, e.clientY)?.closest("[data-drop]");
      if (target) state.pin(dragged.key);
      return;
    }
    if (down && !down.moved && e.type === "pointerup") this.click(down.node, e);
  };

  private click(node: number, e: PointerEvent): void {
    const { laid } = this.stage;
    if (node < 0 || !laid || laid.scene.port[node]! >= 0) {
      state.selected.value = "";
      return;
    }
    const call = laid.scene.call[node]!,
      key = laid.model.key(call);
    const twice = this.lastTap.node === call && performance.now() - this.lastTap.at < 380;
    this.lastTap = { at: twice ? 0 : performance.now(), node: call };
    state.selected.value = key;
    const group = (laid.scene.flags[node]! & 2) !== 0,
      opened = (laid.scene.flags[node]! & 1) !== 0;
    const [x, y] = this.camera.world(e.offsetX, e.offsetY);
    const arrow = opened
      ? x < this.stage.x[node]! + 26 && y < this.stage.y[node]! + 30
      : x > this.stage.x[node]! + this.stage.w[node]! - 30;
    if (group && (arrow || twice)) this.toggle(call);
    else if (twice) state.pin(key);
  }

  private readonly wheel = (e: WheelEvent): void => {
    e.preventDefault();
    const unit = e.deltaMode === 1 ? 16 : 1;
    if (e.shiftKey) this.camera.pan(-(e.deltaX || e.deltaY) * unit, 0);
    else this.camera.zoom(Math.exp(-Math.max(-240, Math.min(240, e.deltaY * unit)) * (e.ctrlKey ? 0.01 : 0.0016)), e.offsetX, e.offsetY);
    this.setHover(-1, -1, 0, 0);
    this.redraw();
  };

  /** Does what a key of the graph means, wherever the focus is; false if it means nothing. */
  key(key: string): boolean {
    const model = state.a.value?.model.value;
    const call = model?.byKey.get(state.selected.value);
    if (key === "+" || key === "=") this.zoom(1.25);
    else if (key === "-") this.zoom(0.8);
    else if (key === "0") this.fit();
    else if (key.startsWith("Arrow") && this.stage.laid) this.step(key, call);
    else if (key === "Enter" && call) {
      if (model!.canOpen(call.id)) this.toggle(call.id);
      else state.pin(state.selected.value);
    } else if (key.toLowerCase() === "p" && call) state.togglePin(state.selected.value);
    else if (key === "Escape") state.selected.value = "";
    else return false;
    return true;
  }

  /**
   * Arrows walk over what is shown: up and down in order of execution, left to what is around, right to what is inside. The
   * first one goes to the first call.
   */
  private step(key: string, call: Call | undefined): void {
    const { model } = this.stage.laid!;
    const ids = [...this.stage.nodeOf.keys()].sort((x, y) => x - y);
    let next = call?.id ?? ids[0];
    if (next === undefined) return;
    if (!call) key = "";
    else if (key === "ArrowLeft") next = call.parent !== null && call.parent !== model.root?.id ? call.parent : call.id;
    else if (key === "ArrowRight") {
      if (!state.open.value.has(state.selected.value)) {
        this.toggle(call.id);
        return;
      }
      next = model.childrenOf(call.id)[0]?.id ?? call.id;
    } else {
      next = ids[ids.indexOf(call.id) + (key === "ArrowDown" ? 1 : -1)] ?? call.id;
    }
    state.selected.value = model.key(next);
    const at = this.stage.nodeOf.get(next);
    if (at === undefined) return;
    const { x, y, w, h } = this.stage.box(at);
    const [sx, sy] = this.camera.screen(x, y),
      [ex, ey] = this.camera.screen(x + w, y + h);
    if (sx < 0 || sy < 0 || ex > this.camera.width || ey > this.camera.height) this.camera.show(this.stage.box(at), true);
    this.redraw();
  }
}
