// The graph with what lies over it: buttons, legend, minimap, tooltip.

import { useEffect, useMemo, useRef } from "preact/hooks";
import { legend, TITLES } from "../graph/appearance";
import { cameraMoved, GraphController } from "../graph/controller";
import { laid } from "../layout/client";
import { formatValue } from "../charts/scale";
import * as state from "../state";
import { palette, rampColour, typeColour } from "../theme";
import { Icon } from "./icons";
import { Tooltip } from "./tooltip";

export let controller: GraphController | null = null;

export function GraphPane() {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const mine = (controller = new GraphController(canvas.current!));
    // Tests and the curious read the layout and what drawing took from here.
    (window as unknown as Record<string, unknown>).torchtapGraph = mine;
    return () => {
      mine.end();
      controller = null;
    };
  }, []);
  return (
    <div class="graph">
      <canvas ref={canvas} tabIndex={0} role="img" aria-label="The model as a graph. Arrows walk, Enter opens, P makes a panel." />
      <div class="graph-buttons">
        <button title="Zoom in (+)" onClick={() => controller?.zoom(1.3)}>
          <Icon name="plus" />
        </button>
        <button title="Zoom out (−)" onClick={() => controller?.zoom(1 / 1.3)}>
          <Icon name="minus" />
        </button>
        <button title="Show all (0)" onClick={() => controller?.fit()}>
          <Icon name="fit" />
        </button>
        <span class="gap" />
        <button id="expand-all" title="Open every module (E)" onClick={state.expandAll}>
          <Icon name="expand" />
        </button>
        <button id="collapse-all" title="Close every module (C)" onClick={state.collapseAll}>
          <Icon name="collapse" />
        </button>
      </div>
      {!laid.value && (
        <div class="waiting" role="status">
          Laying out …
        </div>
      )}
      <LegendBox />
      <Chosen />
      <Minimap />
      <Tooltip />
    </div>
  );
}

/** What a finger has chosen, and what can be done with it. */
function Chosen() {
  const key = state.selected.value,
    model = state.a.value?.model.value,
    call = model?.byKey.get(key);
  if (!call || !model) return null;
  return (
    <div class="chosen">
      <span>
        <b>{model.label(call)}</b> <i>{call.type}</i>
      </span>
      {model.canOpen(call.id) && (
        <button onClick={() => controller?.toggle(call.id)}>{state.open.value.has(key) ? "Close" : "Open"}</button>
      )}
      <button
        onClick={() => {
          state.pin(key);
          state.pane.value = "panels";
        }}
      >
        Panel
      </button>
    </div>
  );
}

const MOST_TYPES = 7;

/** The kinds of modules in sight, most frequent first. */
function Types() {
  const it = laid.value,
    dark = state.dark.value;
  const types = useMemo(() => {
    const count = new Map<string, number>();
    it?.scene.call.forEach((id, i) => {
      const type = it.scene.port[i]! < 0 && !(it.scene.flags[i]! & 1) ? it.model.byId.get(id)?.type : undefined;
      if (type) count.set(type, (count.get(type) ?? 0) + 1);
    });
    return [...count]
      .sort((x, y) => y[1] - x[1])
      .slice(0, MOST_TYPES)
      .map(([type]) => type);
  }, [it]);
  return (
    <div class="types">
      {types.map(type => (
        <span key={type}>
          <i style={{ background: typeColour(type, dark) }} />
          {type}
        </span>
      ))}
    </div>
  );
}

function LegendBox() {
  const it = legend.value,
    dark = state.dark.value;
  return (
    <div class="legend">
      <label>
        <span class="soft">Colour </span>
        <select
          id="colour"
          value={state.colour.value}
          onChange={e => {
            state.colour.value = e.currentTarget.value as state.Colour;
          }}
        >
          {state.COLOURS.map(
            c =>
              (c !== "difference" || state.b.value) && (
                <option key={c} value={c}>
                  {TITLES[c]}
                </option>
              ),
          )}
        </select>
      </label>
      {!it && <Types />}
      {it && (
        <div class="legend-ramp">
          <span>{formatValue(it.from)}</span>
          <span class="ramp">
            {Array.from({ length: 24 }, (_, i) => (
              <i key={i} style={{ background: rampColour(it.family, dark, 0.06 + (0.88 * i) / 23) }} />
            ))}
          </span>
          <span>
            {formatValue(it.to)}
            {it.log ? " log" : ""}
          </span>
        </div>
      )}
    </div>
  );
}

const WIDTH = 148,
  HEIGHT = 104;

/** The whole model at a glance, and which part of it is seen. */
function Minimap() {
  const canvas = useRef<HTMLCanvasElement>(null);
  const picture = useRef<{ of: unknown; dark: boolean; image: HTMLCanvasElement } | null>(null);
  void cameraMoved.value;
  const scene = laid.value?.scene,
    model = laid.value?.model,
    dark = state.dark.value;
  const camera = controller?.camera;
  const scale = scene ? Math.min(WIDTH / scene.width, HEIGHT / scene.height) : 1;
  const needed = scene && camera && (camera.k * scene.width > camera.width * 1.25 || camera.k * scene.height > camera.height * 1.25);
  useEffect(() => {
    const to = canvas.current;
    if (!to || !scene || !model || !camera) return;
    const ratio = devicePixelRatio;
    const left = (WIDTH - scene.width * scale) / 2,
      top = (HEIGHT - scene.height * scale) / 2;
    if (picture.current?.of !== scene || picture.current.dark !== dark) {
      const image = document.createElement("canvas");
      image.width = WIDTH * ratio;
      image.height = HEIGHT * ratio;
      const c = image.getContext("2d")!;
      c.setTransform(ratio, 0, 0, ratio, 0, 0);
      for (let i = 0; i < scene.call.length; i++) {
        if (scene.port[i]! >= 0 || scene.h[i]! * scale < 0.35) continue;
        const opened = scene.flags[i]! & 1;
        c.globalAlpha = opened ? 0.16 : 0.8;
        c.fillStyle = typeColour(model.byId.get(scene.call[i]!)!.type, dark);
        c.fillRect(
          left + scene.x[i]! * scale,
          top + scene.y[i]! * scale,
          Math.max(0.8, scene.w[i]! * scale),
          Math.max(0.8, scene.h[i]! * scale),
        );
      }
      picture.current = { of: scene, dark, image };
    }
    if (to.width !== WIDTH * ratio) {
      to.width = WIDTH * ratio;
      to.height = HEIGHT * ratio;
    }
    const c = to.getContext("2d")!;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, to.width, to.height);
    c.drawImage(picture.current.image, 0, 0);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.strokeStyle = palette(dark).accent;
    c.lineWidth = 1.4;
    const w = (camera.width / camera.k) * scale,
      h = (camera.height / camera.k) * scale;
    const x = Math.max(1, left + camera.x * scale),
      y = Math.max(1, top + camera.y * scale);
    c.strokeRect(
      x,
      y,
      Math.max(3, Math.min(WIDTH - 1, left + camera.x * scale + w) - x),
      Math.max(3, Math.min(HEIGHT - 1, top + camera.y * scale + h) - y),
    );
  });
  const go = (e: PointerEvent) => {
    if (!e.buttons || !scene || !camera) return;
    const left = (WIDTH - scene.width * scale) / 2,
      top = (HEIGHT - scene.height * scale) / 2;
    const x = (e.offsetX - left) / scale,
      y = (e.offsetY - top) / scale;
    camera.go([x - camera.width / 2 / camera.k, y - camera.height / 2 / camera.k, camera.k], false);
    controller?.redraw();
  };
  return <canvas class={`minimap${needed ? "" : " unneeded"}`} ref={canvas} aria-hidden="true" onPointerDown={go} onPointerMove={go} />;
}
