// One series of a panel, in the view that is chosen for all.

import { effect } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { drawRidge, drawSingle } from "../charts/hills";
import { fitScale, formatCount, formatShare, formatValue, type ValueScale } from "../charts/scale";
import { TimeChart } from "../charts/time_chart";
import { finite, mean, std, type Column } from "../data/column";
import { family, type Family, type Slot } from "../data/model";
import type { RunData } from "../data/run_data";
import * as state from "../state";
import { palette } from "../theme";

interface Pair {
  run: RunData;
  id: number;
}

function columnsOf({ run, id }: Pair, range: readonly [number, number]): readonly Column[] {
  return run.columns(id, range[0], range[1]);
}

/** `other` is the same series in the run that is compared. */
export function SeriesView({ slot, mine, other, width }: { slot: Slot; mine: Pair; other: Pair | null; width: number }) {
  void mine.run.changed.value;
  void other?.run.changed.value;
  const range = state.shownRange.value,
    kind = family(slot.what),
    shown = state.view.value;
  const version = [mine, other].map(p => (p ? p.run.version(p.id) : "")).join();
  const columns = useMemo(() => columnsOf(mine, range), [version, range[0], range[1], mine.run]);
  const others = useMemo(() => (other ? columnsOf(other, range) : []), [version, range[0], range[1], other?.run]);
  const scale = useMemo(() => fitScale([...columns, ...others], state.scale.value), [columns, others, state.scale.value]);
  const common = { scale, kind, width };
  return (
    <div class="series" data-series={mine.id} data-what={slot.what}>
      <div class="series-head">
        <span class={`dot ${kind}`} />
        <span class="series-title">{slot.title}</span>
        <Numbers mine={mine} />
      </div>
      {shown === "heat" && (
        <TimePlot
          columns={columns}
          version={version + "a"}
          height={other ? 66 : 116}
          {...common}
          steps={!other}
          name={other ? mine.run.run.name : ""}
        />
      )}
      {shown === "heat" && other && <TimePlot columns={others} version={version + "b"} height={86} {...common} name={other.run.run.name} />}
      {other && (shown === "bands" || shown === "single") && (
        <div class="versus">
          <i class={kind} />
          {mine.run.run.name}
          <i class="line" />
          {other.run.run.name}
        </div>
      )}
      {shown === "bands" && <TimePlot columns={columns} others={others} bands version={version} height={132} {...common} />}
      {shown === "ridge" && <Hills columns={columns} ridge height={other ? 170 : 210} {...common} name={other ? mine.run.run.name : ""} />}
      {shown === "ridge" && other && <Hills columns={others} ridge height={170} {...common} name={other.run.run.name} />}
      {shown === "single" && <Hills columns={columns} others={others} height={132} {...common} />}
    </div>
  );
}

function Numbers({ mine }: { mine: Pair }) {
  void mine.run.changed.value;
  const column = mine.run.at(mine.id, state.shownStep.value);
  if (!column) return <span class="numbers">…</span>;
  const broken = column.nan + column.posinf + column.neginf;
  const parts = [
    finite(column) > 0 && (
      <span>
        {formatValue(mean(column))} <i>±</i> {formatValue(std(column))}
      </span>
    ),
    column.zeros > 0 && <span>{formatShare(column.zeros, column.count)} zero</span>,
    column.nan > 0 && <b class="bad">{formatShare(column.nan, column.count)} NaN</b>,
    broken > column.nan && <b class="bad">{formatShare(broken - column.nan, column.count)} Inf</b>,
  ].filter(Boolean);
  return (
    <span
      class="numbers"
      title={
        `${formatCount(column.count)} elements, ${formatValue(column.min)} to ${formatValue(column.max)}, ` +
        (column.last > column.first ? `steps ${column.first} to ${column.last}` : `step ${column.first}`)
      }
    >
      {parts.map((part, i) => (
        <>
          {i > 0 && " · "}
          {part}
        </>
      ))}
    </span>
  );
}

interface PlotProps {
  columns: readonly Column[];
  others?: readonly Column[];
  bands?: boolean;
  version: string;
  height: number;
  width: number;
  scale: ValueScale;
  kind: Family;
  name?: string;
  steps?: boolean;
}

function TimePlot({ columns, others = [], bands = false, version, height, width, scale, kind, name = "", steps = true }: PlotProps) {
  const host = useRef<HTMLDivElement>(null),
    chart = useRef<TimeChart | null>(null);
  useEffect(() => {
    const made = (chart.current = new TimeChart(host.current!, width, height, steps));
    const stop = effect(() => {
      const step = state.shownStep.value;
      void state.shownRange.value;
      made.mark(step);
    });
    return () => {
      stop();
      made.end();
      chart.current = null;
    };
  }, []);
  const [from, to] = state.shownRange.value,
    dark = state.dark.value;
  useEffect(() => {
    chart.current?.resize(width, height);
    chart.current?.show({ columns, version, scale, kind, palette: palette(dark), span: { from, to }, bands, other: others });
    chart.current?.mark(state.shownStep.value);
  }, [columns, others, version, scale, kind, from, to, dark, bands, width, height]);
  return (
    <div class="plot" ref={host}>
      {name && <span class="plot-name">{name}</span>}
    </div>
  );
}

function Hills({
  columns,
  others,
  ridge = false,
  height,
  width,
  scale,
  kind,
  name = "",
}: Omit<PlotProps, "version"> & { ridge?: boolean }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const rows = useRef<{ y: number; step: number }[]>([]);
  const step = state.shownStep.value,
    dark = state.dark.value;
  useEffect(() => {
    const to = canvas.current!,
      ratio = devicePixelRatio,
      c = to.getContext("2d")!;
    to.width = Math.round(width * ratio);
    to.height = Math.round(height * ratio);
    to.style.width = `${width}px`;
    to.style.height = `${height}px`;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    const frame = { c, width, height, palette: palette(dark), scale, kind };
    const at = (list: readonly Column[]) => list.findLast(column => column.first <= step) ?? list[0] ?? null;
    if (ridge) rows.current = drawRidge(frame, columns, step);
    else drawSingle(frame, at(columns), others?.length ? at(others) : null);
  }, [columns, others, scale, kind, dark, width, height, step, ridge]);
  const click = (e: MouseEvent) => {
    const found = rows.current.find(row => row.y >= e.offsetY);
    if (ridge && found) state.setStep(found.step);
  };
  return (
    <div class="plot">
      {name && <span class="plot-name">{name}</span>}
      <canvas class="hills" ref={canvas} onClick={click} />
    </div>
  );
}
