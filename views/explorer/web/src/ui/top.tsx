// The bar at the top: runs, state, findings, theme.

import { useState } from "preact/hooks";
import type { Run } from "../data/protocol";
import * as state from "../state";
import { goToFirstBad } from "./side";
import { Icon, Logo } from "./icons";

const CONNECTION: Record<string, string> = {
  connecting: "connecting",
  live: "live",
  polling: "live, by asking",
  lost: "no connection",
  file: "file",
};

export function Top() {
  const run = state.a.value;
  void run?.changed.value;
  const bad = run?.health.value.first_bad;
  const now = run ? (state.runs.value.find(r => r.id === run.run.id) ?? run.run) : null;
  const choose = (a: string, b: string | null) =>
    void state.choose(a, b).catch(problem => {
      state.fatal.value = String(problem.message ?? problem);
    });
  return (
    <header class="top">
      <span class="brand">
        <Logo />
        <h1 class="brand-name">{now?.program || "torchtap"}</h1>
      </span>
      {run && (
        <div class="runs">
          <select
            id="run"
            title="Run"
            aria-label="Run"
            value={run.run.id}
            onChange={e => choose(e.currentTarget.value, state.b.value?.run.id ?? null)}
          >
            {state.runs.value.map(r => (
              <option key={r.id} value={r.id}>
                {r.name || r.id}
              </option>
            ))}
          </select>
          {state.runs.value.length > 1 && (
            <select
              id="versus"
              class={state.b.value ? "" : "unset"}
              title="Compare with another run"
              aria-label="Compare with another run"
              value={state.b.value?.run.id ?? ""}
              onChange={e => {
                const to = e.currentTarget.value || null;
                choose(run.run.id, to);
                if (to) state.sideTab.value = "differences";
              }}
            >
              <option value="">compare with …</option>
              {state.runs.value
                .filter(r => r.id !== run.run.id)
                .map(r => (
                  <option key={r.id} value={r.id}>
                    vs {r.name || r.id}
                  </option>
                ))}
            </select>
          )}
          {run.run.modes.length > 1 && (
            <div class="segments small" role="radiogroup" aria-label="Mode">
              {run.run.modes.map(m => (
                <button
                  key={m}
                  role="radio"
                  aria-checked={state.mode.value === m}
                  onClick={() => {
                    state.mode.value = m;
                    choose(run.run.id, state.b.value?.run.id ?? null);
                  }}
                >
                  {m}
                </button>
              ))}
            </div>
          )}
        </div>
      )}
      <span class="spring" />
      {bad && (
        <button id="first-bad" class="alarm" onClick={goToFirstBad} title="Go to the module that made it">
          <Icon name="warn" size={14} />
          <span>
            first {bad.what === "nan" ? "NaN" : "Inf"} at step {bad.step}
          </span>
        </button>
      )}
      {now?.control && <Control key={now.id} now={now} />}
      {now && (
        <span
          class={`state ${now.state} ${state.connection.value}`}
          title={`The program is ${now.state}; the page is ${CONNECTION[state.connection.value]}`}
        >
          <i />
          <span class="state-word">
            {state.connection.value === "lost"
              ? "reconnecting"
              : state.connection.value === "file"
                ? "saved"
                : now.state === "running"
                  ? "live"
                  : now.state}
          </span>
          <b id="step-now">step {now.step.toLocaleString("en-US").replace(/,/g, " ")}</b>
        </span>
      )}
      <button
        class="quiet"
        id="theme"
        title={`Colours: ${state.theme.value}`}
        onClick={() => {
          state.theme.value = state.dark.value ? "light" : "dark";
        }}
      >
        <Icon name={state.dark.value ? "sun" : "moon"} />
      </button>
      <button
        class="quiet"
        id="keys"
        title="Keys (?)"
        onClick={() => {
          state.help.value = true;
        }}
      >
        <Icon name="help" />
      </button>
    </header>
  );
}

/** Logging can be made rarer or paused where the program allows it. */
function Control({ now }: { now: Run }) {
  const [paused, setPaused] = useState(now.paused ?? false);
  const send = (change: { every?: number; paused?: boolean }) =>
    void state.source.control(state.a.value!.run.id, change).catch(problem => {
      state.a.value!.error.value = String(problem.message);
    });
  return (
    <span class="control">
      <label title="Log every so many steps; empty: as often as the overhead allows">
        every{" "}
        <input
          type="number"
          min="1"
          step="1"
          placeholder="auto"
          defaultValue={now.every ? String(now.every) : ""}
          onChange={e => {
            const n = Math.round(+e.currentTarget.value);
            if (n >= 0) send({ every: n });
          }}
        />
      </label>
      <button
        class="quiet"
        title={paused ? "Log again" : "Pause logging"}
        onClick={() => {
          send({ paused: !paused });
          setPaused(!paused);
        }}
      >
        <Icon name={paused ? "play" : "pause"} size={14} />
      </button>
    </span>
  );
}
