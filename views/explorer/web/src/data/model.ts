// A graph with what is asked of it often: children, keys that survive new versions, series.

import type { Call, Graph, Kind, Port, Series } from "./protocol";

export class Model {
  readonly byId = new Map<number, Call>();
  readonly children = new Map<number, Call[]>();
  readonly byKey = new Map<string, Call>();
  private readonly keys = new Map<number, string>();
  readonly root: Call | undefined;

  constructor(readonly graph: Graph) {
    for (const call of graph.calls) {
      this.byId.set(call.id, call);
      if (call.parent !== null && call.parent >= 0) {
        const list = this.children.get(call.parent);
        if (list) list.push(call);
        else this.children.set(call.parent, [call]);
      } else {
        this.root ??= call;
      }
      // The same path and call may stand in several calls around it, and attached tensors share theirs with a module.
      const plain = `${call.path}#${call.call}${call.type === "attach" ? `!${call.name}` : ""}`;
      let key = plain;
      for (let k = 1; this.byKey.has(key); k++) key = `${plain}~${k}`;
      this.byKey.set(key, call);
      this.keys.set(call.id, key);
    }
  }

  key(id: number): string {
    return this.keys.get(id) ?? "";
  }
  childrenOf(id: number): readonly Call[] {
    return this.children.get(id) ?? [];
  }
  canOpen(id: number): boolean {
    return this.children.has(id);
  }

  /** The path of a call below the call around it: lists of modules between them are no calls of their own. */
  private below(call: Call): string {
    const around = call.parent === null ? undefined : this.byId.get(call.parent)?.path;
    if (around === "") return call.path;
    return around !== undefined && call.path.startsWith(`${around}.`) ? call.path.slice(around.length + 1) : "";
  }

  /** The lists in which a call lies, below the call around it: "blocks" of blocks.0. Empty for none. */
  lists(call: Call): string {
    const path = this.below(call);
    return path.slice(0, Math.max(0, path.lastIndexOf(".")));
  }

  /** How a call is named on a node, and which call it is if there are several. */
  label(call: Call): string {
    const name = this.below(call) || call.name || call.path.split(".").pop() || call.type;
    return call.call > 0 ? `${name} · ${call.call + 1}` : name;
  }

  /** From the root's child to the call that holds this one. */
  ancestors(id: number): Call[] {
    const result: Call[] = [];
    let at = this.byId.get(id);
    while (at && at.parent !== null && at.parent >= 0) {
      at = this.byId.get(at.parent);
      if (at && at !== this.root) result.unshift(at);
    }
    return result;
  }

  depth(id: number): number {
    return id === this.root?.id ? 0 : this.ancestors(id).length + 1;
  }
}

export function shapeText(shape: readonly (number | null)[]): string {
  return shape.length ? shape.map(n => n ?? "–").join("×") : "scalar";
}

/** "32×7×112", or "undefined" for a port at which nothing was given. */
export function portText({ dtype, shape }: Port): string {
  return dtype ? shapeText(shape) : "undefined";
}

/** A series of a call, as it is offered in a panel. */
export interface Slot {
  id: number;
  what: Kind;
  index: number;
  title: string;
}

const ORDER: Kind[] = ["output", "grad_output", "input", "grad_input", "attach", "parameter", "parameter_grad"];

/** All series of all calls, by call. */
export class Index {
  readonly byId = new Map<number, Series>();
  private readonly byCall = new Map<number, Series[]>();
  constructor(readonly list: readonly Series[] = []) {
    for (const s of list) {
      this.byId.set(s.id, s);
      const mine = this.byCall.get(s.call);
      if (mine) mine.push(s);
      else this.byCall.set(s.call, [s]);
    }
  }

  slots(model: Model, call: Call): Slot[] {
    const found = new Map<string, Slot>();
    const add = (id: number, what: Kind, index: number, name: string) => {
      if (id < 0 || found.has(`${what}${index}`)) return;
      found.set(`${what}${index}`, { id, what, index, title: title(what, index, name, portCount(call, what)) });
    };
    for (const what of ["output", "grad_output", "input", "grad_input", "attach"] as const) {
      call.series[what]?.forEach((id, k) => add(id, what, k, ""));
    }
    call.parameters.forEach((p, k) => add(p.series, "parameter", k, p.name));
    for (const s of this.byCall.get(call.id) ?? []) {
      if (!s.mode || s.mode === model.graph.mode) add(s.id, s.what, s.index, s.name || call.parameters[s.index]?.name || "");
    }
    if (call.parameters.length) this.borrow(model, call, add);
    return [...found.values()].sort((a, b) => ORDER.indexOf(a.what) - ORDER.indexOf(b.what) || a.index - b.index);
  }

  /** Parameters of a module called several times belong to one of its calls. */
  private borrow(model: Model, call: Call, add: (id: number, what: Kind, index: number, name: string) => void): void {
    for (let other = 0; other < 64; other++) {
      const twin = model.byKey.get(`${call.path}#${other}`);
      if (!twin) return;
      for (const s of this.byCall.get(twin.id) ?? []) {
        if (s.what === "parameter" || s.what === "parameter_grad") {
          add(s.id, s.what, s.index, s.name || call.parameters[s.index]?.name || "");
        }
      }
    }
  }
}

function portCount(call: Call, what: Kind): number {
  return what === "input" || what === "grad_input"
    ? call.inputs.length
    : what === "output" || what === "grad_output"
      ? call.outputs.length
      : 0;
}

function title(what: Kind, index: number, name: string, ports: number): string {
  const number = ports > 1 ? ` ${index}` : "";
  switch (what) {
    case "input":
      return `input${number}`;
    case "output":
      return `output${number}`;
    case "grad_input":
      return `∂ input${number}`;
    case "grad_output":
      return `∂ output${number}`;
    case "parameter":
      return name;
    case "parameter_grad":
      return `∂ ${name}`;
    case "attach":
      return name || "tensor";
  }
}

/** Three families share colours: values, gradients, parameters. */
export type Family = "value" | "gradient" | "parameter";
export function family(what: Kind): Family {
  return what === "parameter" ? "parameter" : what.includes("grad") ? "gradient" : "value";
}
