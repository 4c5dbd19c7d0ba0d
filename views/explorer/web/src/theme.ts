// Colours that a canvas needs; those of the document stand in app.css. Three families: values are ember, gradients are
// teal, parameters are violet.

import type { Family } from "./data/model";

export interface Palette {
  dark: boolean;
  back: string;
  dots: string;
  surface: string;
  frames: readonly string[];
  line: string;
  strong: string;
  ink: string;
  soft: string;
  faint: string;
  edge: string;
  accent: string;
  bad: string;
  warn: string;
  shadow: string;
  grid: string;
  family: Record<Family, string>;
  other: string;
}

const LIGHT: Palette = {
  dark: false,
  back: "#f4f3ef",
  dots: "#dedbd3",
  surface: "#ffffff",
  frames: ["#faf9f6", "#f3f1ec", "#faf9f6", "#f0eee8"],
  line: "#d9d6ce",
  strong: "#b9b4a8",
  ink: "#1d1f26",
  soft: "#6d7180",
  faint: "#a3a5ad",
  edge: "#a5a6b0",
  accent: "#dd4f1f",
  bad: "#d3263b",
  warn: "#c77700",
  shadow: "rgba(40,36,28,.10)",
  grid: "rgba(60,56,48,.09)",
  family: { value: "#dd4f1f", gradient: "#078a86", parameter: "#6650d8" },
  other: "#2f6fd6",
};
const DARK: Palette = {
  dark: true,
  back: "#0c0e13",
  dots: "#1c212b",
  surface: "#181c25",
  frames: ["#11141b", "#151922", "#11141b", "#171b25"],
  line: "#2a303d",
  strong: "#454d5f",
  ink: "#e9ebf2",
  soft: "#8d95a8",
  faint: "#59617290",
  edge: "#525b70",
  accent: "#ff7d4a",
  bad: "#ff5066",
  warn: "#ffb13d",
  shadow: "rgba(0,0,0,.45)",
  grid: "rgba(200,210,240,.07)",
  family: { value: "#ff8350", gradient: "#37d3c6", parameter: "#a08dff" },
  other: "#6aa6ff",
};
export function palette(dark: boolean): Palette {
  return dark ? DARK : LIGHT;
}

/** Stops of the heat maps, from nothing to most. */
const RAMPS: Record<Family, { light: readonly string[]; dark: readonly string[] }> = {
  value: {
    light: ["#ffffff", "#fdeadb", "#fbc59c", "#f58b57", "#dc4c25", "#9a1f1f", "#4a0c1f"],
    dark: ["#14171f", "#2a1630", "#5c1a4a", "#a2274a", "#e5533a", "#ff9a45", "#ffe6a3"],
  },
  gradient: {
    light: ["#ffffff", "#def4ee", "#a3dfd4", "#52bdb4", "#158f92", "#0d5f70", "#0a2f4a"],
    dark: ["#14171f", "#10263a", "#0d4256", "#0b6a74", "#17a092", "#5fd9a5", "#e2fbc4"],
  },
  parameter: {
    light: ["#ffffff", "#ece8fc", "#cabff6", "#9d88ec", "#6c51d6", "#46299f", "#210f55"],
    dark: ["#14171f", "#1f1a42", "#36287a", "#5c3fc0", "#8c6cf0", "#bfa6ff", "#f6ecff"],
  },
};

type Rgb = [number, number, number];
export function rgb(hex: string): Rgb {
  return [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16)) as Rgb;
}

const tables = new Map<string, Uint8ClampedArray>();
/** 256 colours, three bytes each. */
export function ramp(family: Family, dark: boolean): Uint8ClampedArray {
  const key = family + dark;
  let table = tables.get(key);
  if (table) return table;
  const stops = RAMPS[family][dark ? "dark" : "light"].map(rgb);
  table = new Uint8ClampedArray(768);
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (stops.length - 1),
      k = Math.min(stops.length - 2, Math.floor(at));
    for (let c = 0; c < 3; c++) table[3 * i + c] = stops[k]![c]! + (stops[k + 1]![c]! - stops[k]![c]!) * (at - k);
  }
  tables.set(key, table);
  return table;
}
export function rampColour(family: Family, dark: boolean, at: number): string {
  const table = ramp(family, dark),
    i = 3 * Math.round(255 * Math.min(1, Math.max(0, at)));
  return `rgb(${table[i]},${table[i + 1]},${table[i + 2]})`;
}

const KINDS: readonly [RegExp, string, string][] = [
  [/attach/i, "#dd4f1f", "#ff8350"],
  [/attention|attn|transformer/i, "#c2378a", "#f078bd"],
  [/conv/i, "#2f6fd6", "#6aa6ff"],
  [/norm/i, "#4d8a5c", "#7fc492"],
  [/relu|gelu|silu|sigmoid|tanh|softmax|elu|swish|activation|act$/i, "#cf8a12", "#f2bd5c"],
  [/linear|dense|mlp|projection|bilinear/i, "#6650d8", "#a08dff"],
  [/pool|upsample|interpolate|unfold/i, "#078a86", "#45cdc2"],
  [/embed/i, "#b0569e", "#df92d2"],
  [/lstm|gru|rnn/i, "#a8552f", "#e09a75"],
  [/dropout|identity|flatten|reshape/i, "#8a8d99", "#878fa3"],
];
const REST: readonly [string, string][] = [
  ["#5b7185", "#93abc2"],
  ["#75685a", "#b8a48e"],
  ["#59717a", "#8fb0ba"],
  ["#6c6480", "#aaa0c4"],
];
const typeColours = new Map<string, string>();

/** A module's type by its colour: the same for related types. */
export function typeColour(type: string, dark: boolean): string {
  const key = type + dark;
  let colour = typeColours.get(key);
  if (colour) return colour;
  const found = KINDS.find(([pattern]) => pattern.test(type));
  let hash = 0;
  for (let i = 0; i < type.length; i++) hash = (hash * 31 + type.charCodeAt(i)) >>> 0;
  const rest = REST[hash % REST.length]!;
  colour = found ? found[dark ? 2 : 1] : rest[dark ? 1 : 0];
  typeColours.set(key, colour);
  return colour;
}

export const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
