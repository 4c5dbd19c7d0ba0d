// Panels: the distributions of pinned calls.

import { useEffect, useRef, useState } from "preact/hooks";
import { type Slot } from "../data/model";
import type { Call } from "../data/protocol";
import * as state from "../state";
import { typeColour } from "../theme";
import { Icon } from "./icons";
import { SeriesView } from "./series";

const FIRST = new Set(["output0", "grad_output0", "attach0", "parameter0"]);
const NAMES: Record<state.View, string> = { heat: "Heat map", ridge: "Ridges", bands: "Percentiles", single: "Step" };

function slotKey(key: string, slot: Slot): string {
  return `${key}|${slot.what}|${slot.index}`;
}
function isShown(key: string, slot: Slot): boolean {
  const id = slotKey(key, slot);
  return FIRST.has(slot.what + slot.index) ? !state.hidden.value.has(id) : state.shown.value.has(id);
}
function toggle(key: string, slot: Slot): void {
  const id = slotKey(key, slot),
    set = FIRST.has(slot.what + slot.index) ? state.hidden : state.shown;
  const next = new Set(set.value);
  if (!next.delete(id)) next.add(id);
  set.value = next;
}

function slotsOf(run: NonNullable<typeof state.a.value>, key: string): { call: Call; slots: Slot[] } | null {
  const model = run.model.value,
    call = model?.byKey.get(key);
  return model && call ? { call, slots: run.index.value.slots(model, call) } : null;
}

export function Panels() {
  const run = state.a.value,
    other = state.b.value;
  const list = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(420);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => {
      if (entry!.contentRect.width > 60) setWidth(Math.floor(entry!.contentRect.width));
    });
    watch.observe(list.current!);
    return () => watch.disconnect();
  }, []);
  const wanted = (r: typeof run) =>
    r
      ? state.pinned.value.flatMap(
          key =>
            slotsOf(r, key)
              ?.slots.filter(s => isShown(key, s))
              .map(s => s.id) ?? [],
        )
      : [];
  const mine = wanted(run),
    theirs = wanted(other);
  useEffect(() => {
    run?.want("panels", mine);
  }, [run, mine.join()]);
  useEffect(() => {
    other?.want("panels", theirs);
  }, [other, theirs.join()]);
  const count = useRef(state.pinned.value.length);
  useEffect(() => {
    // A new panel comes into view.
    if (state.pinned.value.length > count.current) list.current?.lastElementChild?.scrollIntoView({ block: "nearest", behavior: "smooth" });
    count.current = state.pinned.value.length;
  }, [state.pinned.value.length]);
  return (
    <section class={`panels${state.dragging.value ? " target" : ""}`} data-drop aria-label="Panels">
      <div class="panels-head">
        <div class="segments" role="radiogroup" aria-label="View">
          {state.VIEWS.map(v => (
            <button
              key={v}
              role="radio"
              aria-checked={state.view.value === v}
              data-view={v}
              onClick={() => {
                state.view.value = v;
              }}
            >
              {NAMES[v]}
            </button>
          ))}
        </div>
        <select
          title="Axis of values"
          aria-label="Axis of values"
          value={state.scale.value}
          onChange={e => {
            state.scale.value = e.currentTarget.value as state.Scale;
          }}
        >
          <option value="auto">auto</option>
          <option value="linear">linear</option>
          <option value="symlog">symlog</option>
        </select>
      </div>
      <div class="panel-list" ref={list}>
        {state.pinned.value.map(key => (
          <Panel key={key} id={key} width={width} />
        ))}
        {!state.pinned.value.length && <Empty />}
      </div>
    </section>
  );
}

function Panel({ id, width }: { id: string; width: number }) {
  const run = state.a.value,
    other = state.b.value;
  if (!run) return null;
  const found = slotsOf(run, id);
  const theirs = other ? slotsOf(other, id) : null;
  const close = (
    <button class="quiet" title="Close this panel" onClick={() => state.unpin(id)}>
      <Icon name="close" size={14} />
    </button>
  );
  if (!found)
    return (
      <article class="panel">
        <header class="panel-head">
          <span class="panel-name soft">{id} is not in this graph</span>
          {close}
        </header>
      </article>
    );
  const { call, slots } = found;
  const visible = slots.filter(slot => isShown(id, slot));
  return (
    <article class={`panel${state.selected.value === id ? " selected" : ""}`} data-panel={id}>
      <header class="panel-head">
        <span class="swatch" style={{ background: typeColour(call.type, state.dark.value) }} />
        <button class="panel-name" title={`${call.path || call.name}: show in the graph`} onClick={() => state.reveal(call.id)}>
          {call.path ? <Path text={call.path} /> : <b>{run.model.value!.label(call)}</b>}
          {call.call > 0 && <span class="soft"> · call {call.call + 1}</span>}
        </button>
        <span class="panel-type">{call.type}</span>
        {close}
      </header>
      {slots.length > 1 && (
        <div class="chips">
          {slots.map(slot => (
            <button key={slot.what + slot.index} class="chip" aria-pressed={isShown(id, slot)} onClick={() => toggle(id, slot)}>
              {slot.title}
            </button>
          ))}
        </div>
      )}
      {visible.map(slot => {
        const twin = theirs?.slots.find(s => s.what === slot.what && s.index === slot.index);
        return (
          <SeriesView
            key={slot.what + slot.index}
            slot={slot}
            mine={{ run, id: slot.id }}
            width={width - 26}
            other={other && twin ? { run: other, id: twin.id } : null}
          />
        );
      })}
      {!slots.length && <p class="soft note">{whyNothing(run)}</p>}
    </article>
  );
}

/** Why a call that was seen has no values. */
function whyNothing({ run }: NonNullable<typeof state.a.value>): string {
  const every = state.runs.value.find(r => r.id === run.id)?.every ?? run.every ?? 0;
  return (
    "No value of this call was recorded yet. " +
    (every > 1
      ? `One step in ${every} is recorded, and it ran in none of them so far.`
      : "It ran only in steps that were not recorded, or the program does not record its values.")
  );
}

function Path({ text }: { text: string }) {
  const at = text.lastIndexOf(".");
  return (
    <>
      {at >= 0 && <span class="soft">{text.slice(0, at + 1)}</span>}
      <b>{text.slice(at + 1)}</b>
    </>
  );
}

function Empty() {
  return (
    <div class="empty">
      <svg viewBox="0 0 120 72" width="150" aria-hidden="true">
        <path class="empty-c" d="M4 60C24 60 30 22 44 22s20 38 40 38h32" />
        <path class="empty-b" d="M4 60C30 60 40 10 56 10s26 50 60 50" />
        <path class="empty-a" d="M4 60c36 0 50-34 66-34s20 34 46 34" />
        <path class="empty-line" d="M2 60h116" />
      </svg>
      <b>Drag a module here</b>
      <p>
        or double-click it, or select it and press <kbd>P</kbd>. Its distributions over time appear in a panel.
      </p>
    </div>
  );
}
