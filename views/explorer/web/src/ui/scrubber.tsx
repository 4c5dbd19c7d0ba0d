// Time: scalars as a ruler, and a head that says which step graph and panels show.

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { formatValue } from "../charts/scale";
import { FONT } from "../layout/client";
import { toNumber, type Loose } from "../data/protocol";
import * as state from "../state";
import { palette, type Palette } from "../theme";
import { Icon } from "./icons";

/** What the explorer itself measures: shown last, and drawn only if one asks for it. */
const OWN = ["time per step", "explorer overhead"];
const inUnits = (name: string, value: number) =>
  !Number.isFinite(value) || !OWN.includes(name)
    ? formatValue(value)
    : name === OWN[0]
      ? `${formatValue(value * 1000)} ms`
      : `${formatValue(value * 100)} %`;
const hiddenScalars = signal<ReadonlySet<string>>(new Set(OWN));
const playing = signal(false);
const FLOOR = 17,
  HUES = ["value", "gradient", "parameter"] as const;

function hue(p: Palette, i: number): string {
  return i < HUES.length ? p.family[HUES[i]!] : p.other;
}

/** The value at the last step that has one. */
function valueAt(points: readonly [number, Loose][], step: number): number {
  let lo = 0,
    hi = points.length;
  while (lo < hi) {
    const middle = (lo + hi) >> 1;
    if (points[middle]![0] <= step) lo = middle + 1;
    else hi = middle;
  }
  return lo ? toNumber(points[lo - 1]![1]) : NaN;
}

export function Scrubber() {
  const box = useRef<HTMLDivElement>(null),
    canvas = useRef<HTMLCanvasElement>(null);
  const [size, setSize] = useState({ width: 600, height: 74 });
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setSize({ width: entry!.contentRect.width, height: entry!.contentRect.height }));
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  const run = state.a.value,
    other = state.b.value;
  const [from, to] = state.shownRange.value,
    step = state.shownStep.value,
    dark = state.dark.value;
  const names = Object.keys(run?.scalars.value ?? {}).sort((x, y) => OWN.indexOf(x) - OWN.indexOf(y));
  const colours = palette(dark);
  useEffect(() => {
    const it = canvas.current!,
      ratio = devicePixelRatio,
      c = it.getContext("2d")!;
    it.width = Math.round(size.width * ratio);
    it.height = Math.round(size.height * ratio);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    const x = (s: number) => ((s - from) / (to - from)) * size.width;
    ruler(c, colours, from, to, size, x);
    names.forEach((name, i) => {
      if (hiddenScalars.value.has(name)) return;
      const mine = run!.scalars.value[name]!,
        theirs = other?.scalars.value[name];
      curve(c, mine, theirs ?? [], [from, to], size, x, hue(colours, i), i === 0, dark);
    });
    const bad = run?.health.value.first_bad;
    if (bad && bad.step >= from && bad.step <= to) {
      c.fillStyle = colours.bad;
      c.fillRect(x(bad.step) - 0.75, 0, 1.5, size.height - FLOOR);
      c.beginPath();
      c.moveTo(x(bad.step) - 5, 0);
      c.lineTo(x(bad.step) + 5, 0);
      c.lineTo(x(bad.step), 7);
      c.fill();
    }
  });
  const drag = useRef<{ from: number; select: boolean; to: number } | null>(null);
  const [, again] = useState(0);
  const stepAt = (e: PointerEvent | WheelEvent) =>
    from + ((e.clientX - box.current!.getBoundingClientRect().left) / size.width) * (to - from);
  const down = (e: PointerEvent) => {
    if (e.button !== 0) return;
    playing.value = false;
    box.current!.setPointerCapture(e.pointerId);
    drag.current = { from: stepAt(e), select: e.shiftKey, to: stepAt(e) };
    if (!e.shiftKey) follow(stepAt(e));
  };
  const move = (e: PointerEvent) => {
    if (!drag.current) return;
    if (drag.current.select) {
      drag.current.to = stepAt(e);
      again(n => n + 1);
    } else follow(stepAt(e));
  };
  /** At the right end of a run the head sticks to what is newest. */
  const follow = (at: number) => state.setStep(at >= state.lastStep.value ? null : at);
  const up = () => {
    const { current } = drag;
    drag.current = null;
    if (current?.select) {
      if (Math.abs(current.to - current.from) > (to - from) * 0.005) state.setRange([current.from, current.to]);
      again(n => n + 1);
    }
  };
  const wheel = (e: WheelEvent) => {
    e.preventDefault();
    const at = stepAt(e),
      factor = Math.exp(e.deltaY * 0.002);
    state.setRange([at - (at - from) * factor, at + (to - at) * factor]);
  };
  const key = (e: KeyboardEvent) => {
    const by = Math.max(1, Math.round((to - from) / (e.shiftKey ? 10 : 120)));
    if (e.key === "ArrowLeft") state.setStep(step - by);
    else if (e.key === "ArrowRight") follow(step + by);
    else if (e.key === "Home") state.setStep(state.firstStep.value);
    else if (e.key === "End") state.setStep(null);
    else return;
    e.preventDefault();
  };
  const place = ((step - from) / (to - from)) * 100;
  return (
    <section class="time" aria-label="Time">
      <div class="scalars">
        {names.map((name, i) => (
          <button
            key={name}
            class="scalar"
            aria-pressed={!hiddenScalars.value.has(name)}
            title={`${name}: show or hide`}
            onClick={() => {
              const next = new Set(hiddenScalars.value);
              if (!next.delete(name)) next.add(name);
              hiddenScalars.value = next;
            }}
          >
            <i style={{ background: hue(colours, i) }} />
            <span>{name}</span>
            <b>{inUnits(name, valueAt(run!.scalars.value[name]!, step))}</b>
          </button>
        ))}
        {!names.length && <span class="soft">no scalars</span>}
      </div>
      <div
        class="ruler"
        ref={box}
        tabIndex={0}
        role="slider"
        aria-label="Step"
        aria-valuemin={state.firstStep.value}
        aria-valuemax={state.lastStep.value}
        aria-valuenow={step}
        onPointerDown={down}
        onPointerMove={move}
        onPointerUp={up}
        onPointerCancel={up}
        onWheel={wheel}
        onKeyDown={key}
        onDblClick={() => state.setRange(null)}
        title="Drag: show another step. Shift and drag, or wheel: zoom. Double click: all."
      >
        <canvas ref={canvas} />
        {place >= -0.1 && place <= 100.1 && (
          <div class="head" style={{ left: `${place}%` }}>
            <span>{step}</span>
          </div>
        )}
        {drag.current?.select && (
          <div
            class="selecting"
            style={{
              left: `${((Math.min(drag.current.from, drag.current.to) - from) / (to - from)) * 100}%`,
              width: `${(Math.abs(drag.current.to - drag.current.from) / (to - from)) * 100}%`,
            }}
          />
        )}
      </div>
      <div class="time-buttons">
        <button class="quiet" id="play" title={playing.value ? "Stop" : "Play through the steps"} onClick={() => play(!playing.value)}>
          <Icon name={playing.value ? "pause" : "play"} size={14} />
        </button>
        {state.range.value && (
          <button class="quiet" title="Show all steps" onClick={() => state.setRange(null)}>
            <Icon name="fit" size={14} />
          </button>
        )}
        <button
          class={`follow${state.step.value === null ? " on" : ""}`}
          title="Stay at the newest step"
          onClick={() => state.setStep(null)}
        >
          newest
        </button>
      </div>
    </section>
  );
}

/** Runs through what is shown in about ten seconds. */
function play(on: boolean): void {
  playing.value = on;
  if (!on) return;
  let before = performance.now();
  let at = state.shownStep.value >= state.shownRange.value[1] ? state.shownRange.value[0] : state.shownStep.value;
  const tick = (now: number) => {
    if (!playing.value) return;
    const [from, to] = state.shownRange.value;
    at += ((to - from) * (now - before)) / 10000;
    before = now;
    if (at >= to) {
      playing.value = false;
      state.setStep(to >= state.lastStep.value ? null : to);
      return;
    }
    state.setStep(at);
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}

interface Size {
  width: number;
  height: number;
}

function ruler(c: CanvasRenderingContext2D, p: Palette, from: number, to: number, size: Size, x: (s: number) => number): void {
  const floor = size.height - FLOOR;
  const raw = (to - from) / Math.max(2, size.width / 90),
    power = 10 ** Math.floor(Math.log10(raw));
  const step = Math.max(1, power * ([1, 2, 5, 10].find(k => k * power >= raw) ?? 10));
  c.font = `10.5px ${FONT}`;
  c.textBaseline = "alphabetic";
  c.textAlign = "center";
  for (let s = Math.ceil(from / step) * step; s <= to; s += step) {
    c.fillStyle = p.grid;
    c.fillRect(x(s), 4, 1, floor - 4);
    c.fillStyle = p.soft;
    if (x(s) > 12 && x(s) < size.width - 14) c.fillText(String(s).replace(/\B(?=(\d{3})+$)/g, " "), x(s), size.height - 4);
  }
  c.textAlign = "left";
  c.fillStyle = p.line;
  c.fillRect(0, floor, size.width, 1);
}

/** Each scalar fills the height, cut at its 1st and 99th percentile; at most two points a pixel. */
function curve(
  c: CanvasRenderingContext2D,
  points: readonly [number, Loose][],
  other: readonly [number, Loose][],
  [from, to]: readonly [number, number],
  size: Size,
  x: (s: number) => number,
  colour: string,
  area: boolean,
  dark: boolean,
): void {
  const pick = (list: readonly [number, Loose][]) => list.filter(([s, v]) => s >= from && s <= to && Number.isFinite(toNumber(v)));
  const mine = pick(points),
    theirs = pick(other);
  const values = [...mine, ...theirs].map(([, v]) => v as number).sort((a, b) => a - b);
  if (!values.length) return;
  const low = values[Math.floor(values.length * 0.01)]!,
    high = values[Math.min(values.length - 1, Math.ceil(values.length * 0.99))]!;
  const floor = size.height - FLOOR,
    y = (v: number) => Math.max(3, Math.min(floor - 1, floor - 3 - ((v - low) / (high - low || 1)) * (floor - 9)));
  const draw = (list: readonly [number, Loose][]) => {
    const thinned = thin(list, Math.max(50, size.width));
    c.beginPath();
    thinned.forEach(([s, v], i) => {
      if (i) c.lineTo(x(s), y(v));
      else c.moveTo(x(s), y(v));
    });
    return thinned;
  };
  c.lineJoin = "round";
  c.strokeStyle = colour;
  if (theirs.length) {
    draw(theirs);
    c.setLineDash([4, 3]);
    c.globalAlpha = 0.75;
    c.lineWidth = 1.2;
    c.stroke();
    c.setLineDash([]);
  }
  const drawn = draw(mine);
  c.globalAlpha = 1;
  c.lineWidth = 1.5;
  c.stroke();
  if (area && drawn.length > 1) {
    c.lineTo(x(drawn[drawn.length - 1]![0]), floor);
    c.lineTo(x(drawn[0]![0]), floor);
    const fill = c.createLinearGradient(0, 0, 0, floor);
    fill.addColorStop(0, colour + (dark ? "40" : "30"));
    fill.addColorStop(1, colour + "00");
    c.fillStyle = fill;
    c.fill();
  }
}

function thin(list: readonly [number, Loose][], most: number): [number, number][] {
  if (list.length <= most) return list as [number, number][];
  const result: [number, number][] = [],
    stride = (list.length / most) * 2;
  for (let i = 0; i < list.length; i += stride) {
    const part = list.slice(Math.floor(i), Math.floor(i + stride)) as [number, number][];
    let lo = part[0]!,
      hi = part[0]!;
    for (const p of part) {
      if (p[1] < lo[1]) lo = p;
      if (p[1] > hi[1]) hi = p;
    }
    result.push(...(lo[0] <= hi[0] ? (lo === hi ? [lo] : [lo, hi]) : [hi, lo]));
  }
  return result;
}
