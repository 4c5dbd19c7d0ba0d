// Draws edges: plain ones as one path, those that are lit, conditional or of another kind one by one.

import type { Scene } from "../layout/nested";
import type { Camera } from "./camera";
import { trace } from "./lines";
import type { Look } from "./paint";
import type { Stage } from "./stage";

/** The part of the scene that is seen. */
interface View {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

export function drawEdges(c: CanvasRenderingContext2D, stage: Stage, camera: Camera, look: Look, view: View): void {
  const { scene, model } = stage.laid!;
  const { edges, forwards } = model.graph;
  const { palette } = look;
  const active = look.selected >= 0 ? look.selected : -1;
  const hover = look.hovered >= 0 && scene.port[look.hovered]! < 0 ? scene.call[look.hovered]! : -1;
  const special: number[] = [];
  c.globalAlpha = stage.progress < 1 ? Math.max(0, stage.progress * 1.6 - 0.6) : look.found ? 0.4 : 1;
  c.lineWidth = Math.max(1.3, Math.min(0.9 / camera.k, 4));
  c.strokeStyle = palette.edge;
  c.lineJoin = "round";
  c.beginPath();
  for (let e = 0; e < scene.edge.length; e++) {
    const begin = scene.begin[e]!,
      end = scene.begin[e + 1]!;
    if (!isSeen(scene.points, begin, end, camera.k, view)) continue;
    const edge = edges[scene.edge[e]!]!;
    const lit =
      e === look.hoveredEdge || edge.from.call === active || edge.to.call === active || edge.from.call === hover || edge.to.call === hover;
    if (lit || edge.kind !== "data" || edge.seen < forwards) special.push(e);
    if (!lit && edge.kind === "data" && edge.seen >= forwards) trace(c, scene.points, begin, end);
  }
  c.stroke();
  if (camera.k > 0.4) drawHeads(c, scene, look, view);
  for (const e of special) {
    const edge = edges[scene.edge[e]!]!;
    const lit = e === look.hoveredEdge || [edge.from.call, edge.to.call].some(id => id === active || id === hover);
    c.save();
    c.strokeStyle = lit ? palette.accent : palette.edge;
    c.lineWidth *= lit ? 1.7 : 1;
    if (edge.kind === "hidden") c.setLineDash([7, 4]);
    if (edge.kind === "captured") c.setLineDash([2, 4]);
    if (edge.kind === "unknown") c.setLineDash([2, 7]);
    c.globalAlpha *= lit ? 1 : edge.kind === "unknown" ? 0.5 : 0.3 + 0.7 * Math.min(1, edge.seen / Math.max(1, forwards));
    c.beginPath();
    trace(c, scene.points, scene.begin[e]!, scene.begin[e + 1]!);
    c.stroke();
    c.restore();
  }
  c.globalAlpha = 1;
}

function isSeen(points: Float32Array, begin: number, end: number, k: number, view: View): boolean {
  let minX = Infinity,
    maxX = -Infinity,
    minY = Infinity,
    maxY = -Infinity;
  for (let i = begin; i < end; i += 2) {
    minX = Math.min(minX, points[i]!);
    maxX = Math.max(maxX, points[i]!);
    minY = Math.min(minY, points[i + 1]!);
    maxY = Math.max(maxY, points[i + 1]!);
  }
  const slack = 30;
  return (
    minX - slack < view.right &&
    maxX + slack > view.left &&
    minY - slack < view.bottom &&
    maxY + slack > view.top &&
    (maxX - minX + maxY - minY) * k > 1.5
  );
}

function drawHeads(c: CanvasRenderingContext2D, scene: Scene, look: Look, view: View): void {
  c.fillStyle = look.palette.edge;
  c.beginPath();
  for (let e = 0; e < scene.edge.length; e++) {
    const at = scene.begin[e + 1]! - 2;
    const x = scene.points[at]!,
      y = scene.points[at + 1]!;
    if (x < view.left || x > view.right || y < view.top || y > view.bottom) continue;
    c.moveTo(x, y);
    c.lineTo(x - 3.6, y - 6.5);
    c.lineTo(x + 3.6, y - 6.5);
  }
  c.fill();
}
