// The layout of all open frames, innermost first. Frames of the same structure are laid out once.

import type { Edge } from "../data/protocol";
import { layered, type Placed } from "./layered";

export const HEADER = 26,
  PADDING = 14,
  LEAF_HEIGHT = 46,
  PORT = 10;

export interface Item {
  id: number;
  parent: number;
  width: number;
}
export interface Request {
  open: Set<number>;
}

/** Ports are numbered from 0; -1 is the one for tensors that come in or go out beside arguments and results. */
export function portCode(port: number, out: number): number {
  return 2 * (port + 1) + out;
}
export function portNumber(code: number): number {
  return (code >> 1) - 1;
}

/** Flat arrays, children after the frames around them, so that they are drawn on top. */
export interface Scene {
  /** The call; of a port, the frame that it belongs to. */
  call: Int32Array;
  /** -1 for a call, else what `portCode` makes of a port. */
  port: Int32Array;
  /** 1: open, 2: can be opened. */
  flags: Uint8Array;
  depth: Uint16Array;
  x: Float32Array;
  y: Float32Array;
  w: Float32Array;
  h: Float32Array;
  /** Index into the graph's edges, and where the points of each begin, one more than edges. */
  edge: Int32Array;
  begin: Uint32Array;
  points: Float32Array;
  width: number;
  height: number;
}

interface Frame {
  id: number;
  placed: Placed;
  width: number;
  height: number;
  /** Offsets of the ports from the left end. */
  inputs: Map<number, number>;
  outputs: Map<number, number>;
}
interface Node {
  call: number;
  port: number;
  frame: Frame | null;
  width: number;
  height: number;
}
/** What stands in a frame; the frame's places may be shared with another one of the same structure. */
interface Content {
  nodes: Node[];
  edges: number[];
  frame: Frame;
}

export class Nested {
  private readonly widths = new Map<number, number>();
  private readonly children = new Map<number, number[]>();
  private readonly edgesOf = new Map<number, number[]>();
  private readonly byStructure = new Map<string, Frame>();
  private contents = new Map<number, Content>();
  private frames = 0;
  /** Frames laid out anew in the last call of `lay`. */
  fresh = 0;

  constructor(
    private readonly items: Item[],
    private readonly edges: Edge[],
  ) {
    for (const { id, parent, width } of items) {
      this.widths.set(id, width);
      if (parent < 0) continue;
      const list = this.children.get(parent);
      if (list) list.push(id);
      else this.children.set(parent, [id]);
    }
    edges.forEach((edge, e) => {
      const list = this.edgesOf.get(edge.caller);
      if (list) list.push(e);
      else this.edgesOf.set(edge.caller, [e]);
    });
  }

  canOpen(call: number): boolean {
    return this.children.has(call);
  }

  /** The root is always open. */
  lay({ open }: Request): Scene {
    this.fresh = 0;
    this.contents = new Map();
    const root = this.items[0];
    if (!root) return empty();
    // Frames within frames: parents come before children in order of execution, so the reverse has children first.
    const shown = new Set<number>([root.id]);
    for (const { id, parent } of this.items) if (shown.has(parent) && open.has(id) && this.canOpen(id)) shown.add(id);
    for (let i = this.items.length - 1; i >= 0; i--) {
      const id = this.items[i]!.id;
      if (shown.has(id)) this.contents.set(id, this.frame(id));
    }
    return this.flatten(root.id);
  }

  private frame(call: number): Content {
    const nodes: Node[] = [],
      calls = new Map<number, number>(),
      ports = new Map<number, number>();
    const list = this.edgesOf.get(call) ?? [];
    const addPort = (code: number) => {
      if (ports.has(code)) return;
      ports.set(code, nodes.length);
      nodes.push({ call, port: code, frame: null, width: PORT, height: PORT });
    };
    for (const e of list) {
      const { from } = this.edges[e]!;
      if (from.call === call) addPort(portCode(from.port, 0));
    }
    for (const child of this.children.get(call) ?? []) {
      const inner = this.contents.get(child)?.frame ?? null;
      calls.set(child, nodes.length);
      nodes.push(
        inner
          ? { call: child, port: -1, frame: inner, width: inner.width, height: inner.height }
          : { call: child, port: -1, frame: null, width: this.widths.get(child)!, height: LEAF_HEIGHT },
      );
    }
    for (const e of list) {
      const { to } = this.edges[e]!;
      if (to.call === call) addPort(portCode(to.port, 1));
    }

    const kept: number[] = [],
      pairs: number[] = [],
      ends: number[] = [];
    const known = new Set<number>();
    for (const e of list) {
      const { from, to } = this.edges[e]!;
      const a = from.call === call ? ports.get(portCode(from.port, 0)) : calls.get(from.call);
      const b = to.call === call ? ports.get(portCode(to.port, 1)) : calls.get(to.call);
      if (a === undefined || b === undefined || a === b) continue;
      // Exact for 90 000 nodes of up to 1000 ports; a string would cost as much as all the rest.
      const key = ((a * nodes.length + b) * 1024 + from.port + 1) * 1024 + to.port + 1;
      if (known.has(key)) continue;
      known.add(key);
      kept.push(e);
      pairs.push(a, b);
      ends.push(offset(nodes[a]!, from.port, true), offset(nodes[b]!, to.port, false));
    }
    return { nodes, edges: kept, frame: this.place(nodes, pairs, ends) };
  }

  private place(nodes: Node[], pairs: number[], ends: number[]): Frame {
    const key = nodes.map(n => (n.frame ? `f${n.frame.id}` : `${n.width}.${n.port}`)).join() + "|" + pairs.join() + "|" + ends.join();
    const found = this.byStructure.get(key);
    if (found) return found;
    this.fresh++;
    const count = nodes.length;
    const problem = {
      count,
      pairs: Int32Array.from(pairs),
      left: new Float64Array(count),
      right: new Float64Array(count),
      height: new Float64Array(count),
      fixed: new Uint8Array(count),
    };
    nodes.forEach((n, i) => {
      const anchor = anchorOf(n);
      problem.left[i] = anchor;
      problem.right[i] = n.width - anchor;
      problem.height[i] = n.height;
      problem.fixed[i] = n.port < 0 ? 0 : n.port % 2 ? 2 : 1;
    });
    const placed = layered(problem, Float64Array.from(ends));
    const frame: Frame = {
      id: this.frames++,
      placed,
      width: placed.width + 2 * PADDING,
      height: placed.height + HEADER + 2 * PADDING,
      inputs: new Map(),
      outputs: new Map(),
    };
    nodes.forEach((n, i) => {
      if (n.port < 0) return;
      (n.port % 2 ? frame.outputs : frame.inputs).set(portNumber(n.port), placed.x[i]! + PADDING);
    });
    this.byStructure.set(key, frame);
    return frame;
  }

  private flatten(root: number): Scene {
    let nodes = 0,
      edges = 0,
      points = 0;
    for (const { nodes: n, edges: e, frame } of this.contents.values()) {
      nodes += n.length;
      edges += e.length;
      for (let i = 0; i < e.length; i++) points += frame.placed.routes[i]!.length;
    }
    const top = this.contents.get(root)!;
    const scene: Scene = {
      call: new Int32Array(nodes),
      port: new Int32Array(nodes),
      flags: new Uint8Array(nodes),
      depth: new Uint16Array(nodes),
      x: new Float32Array(nodes),
      y: new Float32Array(nodes),
      w: new Float32Array(nodes),
      h: new Float32Array(nodes),
      edge: new Int32Array(edges),
      begin: new Uint32Array(edges + 1),
      points: new Float32Array(points),
      width: top.frame.width,
      height: top.frame.height,
    };
    let n = 0,
      e = 0,
      p = 0;
    // A stack of its own: models may be nested deeper than the engine's.
    const todo: [number, number, number, number][] = [[root, 0, 0, 0]];
    while (todo.length) {
      const [call, x, y, depth] = todo.pop()!;
      const { nodes: list, edges: kept, frame } = this.contents.get(call)!;
      list.forEach((node, i) => {
        const left = x + PADDING + frame.placed.x[i]! - anchorOf(node),
          upper = y + HEADER + PADDING + frame.placed.y[i]!;
        scene.call[n] = node.call;
        scene.port[n] = node.port;
        scene.depth[n] = depth;
        scene.flags[n] = (node.frame ? 1 : 0) | (node.port < 0 && this.canOpen(node.call) ? 2 : 0);
        scene.x[n] = left;
        scene.y[n] = upper;
        scene.w[n] = node.width;
        scene.h[n] = node.height;
        n++;
        if (node.frame) todo.push([node.call, left, upper, depth + 1]);
      });
      kept.forEach((edge, i) => {
        scene.edge[e] = edge;
        scene.begin[e++] = p;
        const route = frame.placed.routes[i]!;
        for (let k = 0; k < route.length; k += 2) {
          scene.points[p++] = route[k]! + x + PADDING;
          scene.points[p++] = route[k + 1]! + y + HEADER + PADDING;
        }
      });
    }
    scene.begin[e] = p;
    return scene;
  }
}

/** Where the node is aligned with others: its middle, or the only input of an open frame. */
function anchorOf(node: Node): number {
  const inputs = node.frame?.inputs;
  if (inputs?.size === 1) return inputs.values().next().value!;
  return node.width / 2;
}

/** Where an edge leaves or reaches a node, from its anchor. */
function offset(node: Node, port: number, leaving: boolean): number {
  const inner = node.frame && (leaving ? node.frame.outputs : node.frame.inputs).get(port);
  return inner === undefined || inner === null ? (node.frame ? node.width / 2 - anchorOf(node) : 0) : inner - anchorOf(node);
}

function empty(): Scene {
  return {
    call: new Int32Array(),
    port: new Int32Array(),
    flags: new Uint8Array(),
    depth: new Uint16Array(),
    x: new Float32Array(),
    y: new Float32Array(),
    w: new Float32Array(),
    h: new Float32Array(),
    edge: new Int32Array(),
    begin: new Uint32Array(1),
    points: new Float32Array(),
    width: 0,
    height: 0,
  };
}
