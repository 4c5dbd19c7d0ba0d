// A chart over steps: uPlot gives axes and cursors, heat maps and bands are drawn into its area. All charts share the
// cursor, the range and the line at the shown step.

import uPlot from "uplot";
import type { Column } from "../data/column";
import type { Family } from "../data/model";
import { FONT } from "../layout/client";
import * as state from "../state";
import type { Palette } from "../theme";
import { drawBands } from "./bands";
import { heatImage, type Span } from "./heat";
import { formatValue, type ValueScale } from "./scale";

const AXIS = 50;

export interface Drawing {
  columns: readonly Column[];
  version: string;
  scale: ValueScale;
  kind: Family;
  palette: Palette;
  span: Span;
  bands: boolean;
  /** Columns of another run, as lines over the bands. */
  other: readonly Column[];
}

export class TimeChart {
  private readonly plot: uPlot;
  private readonly line = document.createElement("div");
  private drawing: Drawing | null = null;
  private image: { key: string; canvas: HTMLCanvasElement } | null = null;
  private dragged = false;
  private ticks: number[] = [];

  /** `steps`: whether the axis of steps is written out. */
  constructor(
    private readonly host: HTMLElement,
    width: number,
    height: number,
    steps: boolean,
  ) {
    this.plot = new uPlot(
      {
        width,
        height,
        padding: [4, 8, 0, 0],
        legend: { show: false },
        scales: { x: { time: false, range: () => this.span() }, y: { range: [0, 1] } },
        axes: [steps ? this.xAxis() : { ...this.xAxis(), size: 2, ticks: { show: false }, values: () => [] }, this.yAxis()],
        series: [{}, { show: false }],
        cursor: {
          y: false,
          points: { show: false },
          drag: { x: true, y: false, setScale: false, dist: 4 },
          sync: { key: "steps", scales: ["x", null], setSeries: false },
          bind: {
            dblclick: () => () => {
              state.setRange(null);
              return null;
            },
          },
        },
        hooks: { draw: [() => this.draw()], setSelect: [u => this.select(u)] },
      },
      [
        [0, 1],
        [null, null],
      ],
      host,
    );
    this.line.className = "playhead";
    this.plot.over.append(this.line);
    this.plot.over.addEventListener("pointerdown", () => {
      this.dragged = false;
    });
    this.plot.over.addEventListener("click", e => {
      if (!this.dragged) state.setStep(Math.floor(this.plot.posToVal(e.offsetX, "x")));
    });
  }

  /** A step is drawn up to the next one, the newest too. */
  private span(): [number, number] {
    const s = this.drawing?.span;
    return s ? [s.from, s.to] : [0, 1];
  }
  private colour(key: "soft" | "grid"): string {
    return this.drawing?.palette[key] ?? "#888";
  }

  private xAxis(): uPlot.Axis {
    return {
      size: 22,
      gap: 3,
      font: `10.5px ${FONT}`,
      stroke: () => this.colour("soft"),
      grid: { show: false },
      space: 64,
      ticks: { stroke: () => this.colour("grid"), size: 3, width: 1 },
      values: (_, splits) => splits.map(v => (Number.isInteger(v) ? v.toLocaleString("en-US").replace(/,/g, " ") : "")),
    };
  }
  private yAxis(): uPlot.Axis {
    return {
      size: AXIS,
      gap: 4,
      font: `10.5px ${FONT}`,
      stroke: () => this.colour("soft"),
      grid: { show: false },
      ticks: { stroke: () => this.colour("grid"), size: 3, width: 1 },
      splits: u => {
        this.ticks = this.drawing?.scale.ticks(Math.max(2, Math.floor(u.over.clientHeight / 26))) ?? [];
        return this.ticks.map(v => this.drawing!.scale.at(v));
      },
      values: (_, splits) => splits.map((_split, i) => formatValue(this.ticks[i] ?? NaN)),
    };
  }

  private select(u: uPlot): void {
    if (u.select.width < 4) return;
    this.dragged = true;
    state.setRange([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]);
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  }

  resize(width: number, height: number): void {
    if (width !== this.plot.width || height !== this.plot.height) this.plot.setSize({ width, height });
  }

  show(drawing: Drawing): void {
    this.drawing = drawing = { ...drawing, span: { from: drawing.span.from, to: drawing.span.to + 1 } };
    const { scale } = drawing;
    // For tests, which compare pixels with values.
    this.host.dataset.axis = [scale.from, scale.to, scale.unit].join();
    this.plot.setData(
      [
        [drawing.span.from, drawing.span.to],
        [null, null],
      ],
      true,
    );
    // The axis of values runs from 0 to 1 for uPlot, which therefore does not see that its ticks have changed.
    this.plot.redraw(false, true);
  }

  /** The line at the shown step; cheap, for it moves while one scrubs. */
  mark(step: number): void {
    const [from, to] = this.span();
    const at = (step - from) / (to - from);
    this.line.style.display = at < -0.001 || at > 1.001 ? "none" : "";
    // A share of the width, which uPlot may not have laid out yet.
    this.line.style.left = `calc(${100 * at}% - .75px)`;
  }

  private draw(): void {
    const { drawing, plot } = this;
    if (!drawing) return;
    const { left, top, width, height } = plot.bbox;
    const c = plot.ctx;
    if (drawing.bands) {
      c.save();
      c.fillStyle = drawing.palette.grid;
      for (const tick of drawing.scale.ticks(Math.max(2, Math.floor(height / devicePixelRatio / 26)))) {
        c.fillRect(left, top + Math.round((1 - drawing.scale.at(tick)) * height), width, devicePixelRatio);
      }
      c.restore();
      drawBands(c, drawing.columns, drawing.span, drawing.scale, plot.bbox, drawing.palette.family[drawing.kind], false);
      if (drawing.other.length) drawBands(c, drawing.other, drawing.span, drawing.scale, plot.bbox, drawing.palette.ink, true);
      return;
    }
    const key = [
      drawing.version,
      drawing.span.from,
      drawing.span.to,
      drawing.scale.low,
      drawing.scale.high,
      drawing.scale.unit,
      width,
      height,
      drawing.palette.dark,
    ].join();
    if (this.image?.key !== key) {
      const canvas = document.createElement("canvas");
      canvas.width = Math.max(1, Math.round(width));
      canvas.height = Math.max(1, Math.round(height));
      canvas
        .getContext("2d")!
        .putImageData(
          heatImage(
            drawing.columns,
            drawing.span,
            drawing.scale,
            drawing.kind,
            drawing.palette.dark,
            canvas.width,
            canvas.height,
            drawing.palette.bad,
          ),
          0,
          0,
        );
      this.image = { key, canvas };
    }
    c.save();
    c.beginPath();
    c.roundRect(left, top, width, height, 4 * devicePixelRatio);
    c.clip();
    c.drawImage(this.image.canvas, left, top);
    c.restore();
  }

  end(): void {
    this.plot.destroy();
  }
}
