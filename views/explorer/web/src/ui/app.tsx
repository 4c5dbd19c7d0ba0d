// The page: bars, panes, and what lies over them.

import { useEffect, useRef } from "preact/hooks";
import * as state from "../state";
import { controller, GraphPane } from "./graph";
import { Icon, type IconName } from "./icons";
import { Panels } from "./panels";
import { Scrubber } from "./scrubber";
import { Side } from "./side";
import { Top } from "./top";

export function App() {
  useEffect(() => {
    document.addEventListener("keydown", shortcut);
    return () => document.removeEventListener("keydown", shortcut);
  }, []);
  useEffect(() => {
    document.documentElement.dataset.theme = state.dark.value ? "dark" : "light";
  });
  const { value: run } = state.a;
  if (state.needsToken.value)
    return (
      <Message
        title="This page needs a token"
        text="Open the address that the program printed; the token stands behind #token= in it. A program that was started again has another one."
      />
    );
  if (state.fatal.value) return <Message title="There is nothing to show" text={state.fatal.value} />;
  return (
    <div
      class={`app pane-${state.pane.value}`}
      style={{ "--side": `${state.sideWidth.value}px`, "--panels": `${state.panelWidth.value}px` }}
    >
      <Top />
      <Side />
      <Divider of={state.sideWidth} from="left" least={180} most={480} />
      <main>
        {run ? (
          <GraphPane />
        ) : (
          <div class="waiting">{state.runs.value.some(r => r.modes.length) ? "Loading …" : "Waiting for the first forward …"}</div>
        )}
      </main>
      <Divider of={state.panelWidth} from="right" least={300} most={1000} />
      <Panels />
      <Scrubber />
      <nav class="panes">
        {PANES.map(([id, icon, text]) => (
          <button
            key={id}
            aria-pressed={state.pane.value === id}
            onClick={() => {
              state.pane.value = id;
            }}
          >
            <Icon name={icon} />
            {text}
            {id === "panels" && state.pinned.value.length > 0 && <span class="count">{state.pinned.value.length}</span>}
          </button>
        ))}
      </nav>
      <Ghost />
      {run?.error.value && (
        <div class="toast" role="alert">
          {run.error.value}
        </div>
      )}
      {state.help.value && <Help />}
    </div>
  );
}

const PANES: [state.Pane, IconName, string][] = [
  ["side", "tree", "Modules"],
  ["graph", "graph", "Graph"],
  ["panels", "panels", "Panels"],
];

function Message({ title, text }: { title: string; text: string }) {
  return (
    <main>
      <div class="message" role="alert">
        <b>{title}</b>
        <p>{text}</p>
      </div>
    </main>
  );
}

function Divider({ of, from, least, most }: { of: { value: number }; from: "left" | "right"; least: number; most: number }) {
  const drag = (e: PointerEvent) => {
    if (!(e.buttons & 1)) return;
    const at = from === "left" ? e.clientX : innerWidth - e.clientX;
    of.value = Math.max(least, Math.min(most, innerWidth - 380, at));
  };
  return (
    <div
      class={`divider ${from}`}
      role="separator"
      aria-orientation="vertical"
      onPointerMove={drag}
      onPointerDown={e => {
        e.currentTarget.setPointerCapture(e.pointerId);
        e.preventDefault();
      }}
    />
  );
}

/** What is being dragged follows the pointer. */
function Ghost() {
  const { value: drag } = state.dragging;
  const call = drag && state.a.value?.model.value?.byKey.get(drag.key);
  return call ? (
    <div class="ghost" style={{ transform: `translate(${drag.x + 10}px, ${drag.y + 8}px)` }}>
      {call.path || call.name}
    </div>
  ) : null;
}

const KEYS: [string, string][] = [
  ["/", "search"],
  ["↑ ↓ ← →", "walk over modules"],
  ["Enter", "open, close"],
  ["P", "make or close a panel"],
  ["E  C", "open, close all modules"],
  ["+  −  0", "zoom, show all"],
  ["1 2 3 4", "heat map, ridgeline, percentiles, one step"],
  ["[  ]  ,  .", "a step back, forward"],
  ["N", "go to the first NaN or infinity"],
  ["F", "follow the newest step"],
  ["D", "light, dark"],
  ["Esc", "deselect"],
];

function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  // Modal: the focus stays inside, and goes back to where it was.
  useEffect(() => dialog.current!.showModal(), []);
  const close = () => dialog.current!.close();
  return (
    <dialog
      ref={dialog}
      class="help"
      aria-label="Keys"
      onClose={() => {
        state.help.value = false;
      }}
      onClick={e => {
        if (e.target === dialog.current) close();
      }}
    >
      <div>
        <header>
          <b>Keys</b>
          <button class="quiet" title="Close" onClick={close}>
            <Icon name="close" />
          </button>
        </header>
        <dl>
          {KEYS.map(([key, text]) => (
            <div key={key}>
              <dt>
                {key
                  .split(" ")
                  .filter(Boolean)
                  .map(k => (
                    <kbd key={k}>{k}</kbd>
                  ))}
              </dt>
              <dd>{text}</dd>
            </div>
          ))}
        </dl>
        <p class="soft">Drag a module to the panels; drag in a panel to zoom into steps; double click shows all again.</p>
      </div>
    </dialog>
  );
}

function shortcut(e: KeyboardEvent): void {
  const { target } = e;
  if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return;
  if (state.help.value || target instanceof HTMLInputElement || target instanceof HTMLSelectElement) return;
  const key = e.key.toLowerCase(); // also with Caps Lock
  const view = state.VIEWS[+key - 1];
  const big = Math.max(1, Math.round((state.shownRange.value[1] - state.shownRange.value[0]) / 120));
  if (key === "/") document.getElementById("search")?.focus();
  else if (key === "?") state.help.value = true;
  else if (view) state.view.value = view;
  else if (key === "e") state.expandAll();
  else if (key === "c") state.collapseAll();
  else if (key === "f") state.setStep(null);
  else if (key === "n") document.getElementById("first-bad")?.click();
  else if (key === "d") state.theme.value = state.dark.value ? "light" : "dark";
  else if (key === "[" || key === ",") state.setStep(state.shownStep.value - big);
  else if (key === "]" || key === ".") state.setStep(state.shownStep.value + big);
  else if (keeps(target, e.key) || !controller?.key(e.key)) return;
  e.preventDefault();
}

/** Whether what has the focus does something of its own with a key: a button with Enter, a list that scrolls with arrows. */
function keeps(target: EventTarget | null, key: string): boolean {
  if (!(target instanceof Element)) return false;
  return key === "Enter" ? !!target.closest("button, a") : key.startsWith("Arrow") && !!target.closest(".list, .panel-list");
}
