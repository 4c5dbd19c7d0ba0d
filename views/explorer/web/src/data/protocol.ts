// The protocol between a server and this page, version 1. Numbers that may not be finite come as strings.

export type Loose = number | "NaN" | "Infinity" | "-Infinity";

export interface Run {
  /** Its place among the runs of a server or file. */
  id: string;
  /** Of this run alone, whatever runs later at the same address. */
  identity?: string;
  name: string;
  program: string;
  state: "running" | "finished" | "crashed";
  first_step: number;
  step: number;
  started: number;
  modes: string[];
  /** Whether pages may change how often it records. */
  control: boolean;
  paused?: boolean;
  /** Every how many steps it records; 0 for as often as its overhead allows. */
  every?: number;
}

/** A tensor that went through a port; a dimension that varied is null. */
export interface Port {
  dtype: string;
  shape: (number | null)[];
}

export interface Parameter {
  name: string;
  shape: number[];
  dtype: string;
  learnable: boolean;
  series: number;
}

export type PortKind = "input" | "output" | "grad_input" | "grad_output";
export type Kind = PortKind | "parameter" | "parameter_grad" | "attach";

/** One call of a module; the root has id 0, attached tensors have the type "attach". */
export interface Call {
  id: number;
  parent: number | null;
  path: string;
  call: number;
  type: string;
  name: string;
  seen: number;
  inputs: Port[];
  outputs: Port[];
  parameters: Parameter[];
  attributes: string;
  series: Partial<Record<Kind, number[]>>;
}

export interface End {
  call: number;
  port: number;
}

/** Drawn inside of the call `caller`. An end at the caller itself is its input (from) or output (to). */
export interface Edge {
  caller: number;
  from: End;
  to: End;
  kind: "data" | "hidden" | "captured" | "unknown";
  seen: number;
}

export interface Graph {
  version: number;
  mode: string;
  forwards: number;
  calls: Call[];
  edges: Edge[];
}

export interface Last {
  step: number;
  count: number;
  nan: number;
  posinf: number;
  neginf: number;
  zeros: number;
  min: Loose;
  max: Loose;
  mean: Loose;
  std: Loose;
  norm: Loose;
}

export interface Series {
  id: number;
  call: number;
  what: Kind;
  index: number;
  name: string;
  /** The mode of the forwards that it is of; "" for parameters. */
  mode?: string;
  columns: number;
  stride: number;
  last: Last | null;
  first_nan: number | null;
  first_inf: number | null;
  /** By how much the optimizer changed a parameter last, relative to its norm. */
  update_ratio?: Loose | null;
}

export type Scalars = Record<string, [number, Loose][]>;

/** `kind` is the name of a rule, `what` says in which of the call's series it holds. */
export interface Mark {
  call: number;
  kind: string;
  what?: Kind;
  value: Loose;
  since: number;
  sentence: string;
}
export interface FirstBad {
  step: number;
  what: "nan" | "inf";
  call: number;
  series: number;
  producer: boolean;
}
export interface Health {
  first_bad: FirstBad | null;
  marks: Mark[];
}

export interface Difference {
  a: number;
  b: number;
  call: number;
  what: Kind;
  index: number;
  wasserstein: number;
  kl: number;
  first_step: number | null;
}

export interface Notice {
  run: string;
  identity?: string;
  step: number;
  graph: number;
  sequence: number;
  changed: number[] | null;
  state: Run["state"];
}

export interface Control {
  every?: number;
  paused?: boolean;
}

export function toNumber(value: Loose | null | undefined): number {
  return value == null ? NaN : Number(value);
}
