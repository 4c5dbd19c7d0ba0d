// The side bar: search, tree, findings, differences between two runs.

import { batch } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { compareHere } from "../data/compare";
import { found } from "../graph/appearance";
import { formatValue } from "../charts/scale";
import { family } from "../data/model";
import { toNumber, type Difference } from "../data/protocol";
import { isBad, rankOf, titleOf, valueOf } from "../data/rules";
import * as state from "../state";
import { Icon } from "./icons";
import { Tree } from "./tree";

export function Side() {
  const run = state.a.value;
  const marks = run?.health.value.marks.length ?? 0,
    bad = run?.health.value.first_bad;
  const tab = (id: state.SideTab, text: string, count: number, urgent = false) => (
    <button
      role="tab"
      aria-selected={state.sideTab.value === id}
      data-tab={id}
      onClick={() => {
        state.sideTab.value = id;
      }}
    >
      {text}
      {count > 0 && <span class={`count${urgent ? " bad" : ""}`}>{count}</span>}
    </button>
  );
  return (
    <aside class="side" aria-label="Modules">
      <div class="search">
        <Icon name="search" size={14} />
        <input
          id="search"
          type="search"
          placeholder="Search modules"
          aria-label="Search modules by path or type"
          value={state.query.value}
          onInput={e => {
            state.query.value = e.currentTarget.value;
            state.sideTab.value = "modules";
          }}
          onKeyDown={e => {
            if (e.key === "Escape") {
              state.query.value = "";
              e.currentTarget.blur();
            }
            if (e.key === "ArrowDown") {
              document.querySelector<HTMLElement>(".tree")?.focus();
              e.preventDefault();
            }
            if (e.key === "Enter") next(e.shiftKey ? -1 : 1);
          }}
        />
        {found.value ? <span class="soft hits">{found.value.size}</span> : <kbd>/</kbd>}
      </div>
      <div class="tabs" role="tablist">
        {tab("modules", "Modules", 0)}
        {tab("findings", "Findings", marks, !!bad)}
        {state.b.value && tab("differences", "Differences", 0)}
      </div>
      {state.sideTab.value === "modules" && <Tree />}
      {state.sideTab.value === "findings" && <Findings />}
      {state.sideTab.value === "differences" && <Differences />}
    </aside>
  );
}

/** Goes to the next call that the search found. */
function next(by: number): void {
  const model = state.a.value?.model.value;
  if (!model || !found.value?.size) return;
  const ids = [...found.value];
  const at = ids.indexOf(model.byKey.get(state.selected.value)?.id ?? -1);
  state.reveal(ids[(at + by + ids.length) % ids.length] ?? ids[0]!);
}

/** Shows where values first were not finite. */
export function goToFirstBad(): void {
  const run = state.a.value,
    bad = run?.health.value.first_bad;
  if (!run || !bad) return;
  const key = run.model.value?.key(bad.call);
  batch(() => {
    state.setStep(bad.step);
    state.reveal(bad.call);
    if (key) state.pin(key);
  });
}

function Findings() {
  const run = state.a.value,
    model = run?.model.value;
  if (!run || !model) return <div class="list" />;
  const { first_bad: bad, marks } = run.health.value;
  const badCall = bad && model.byId.get(bad.call);
  const kinds = [...new Set(marks.map(m => m.kind))].sort((x, y) => rankOf(x) - rankOf(y) || x.localeCompare(y));
  return (
    <div class="list" role="tabpanel">
      {bad && (
        <button class="finding-first" onClick={goToFirstBad}>
          <span class="kicker">
            <Icon name="warn" size={13} /> First {bad.what === "nan" ? "NaN" : "infinity"} · step {bad.step}
          </span>
          <b>{badCall ? badCall.path.split(".").slice(-2).join(".") || model.label(badCall) : `call ${bad.call}`}</b>
          <span>{badCall?.path || badCall?.type}</span>
          <span class="soft">{bad.producer ? "It made it: all that came in was finite." : "It was seen here first."}</span>
        </button>
      )}
      {kinds.map(kind => {
        const mine = marks.filter(m => m.kind === kind).sort((x, y) => x.since - y.since || x.call - y.call);
        return (
          <section key={kind} class="finding-group">
            <h3>
              <span class={`mark ${isBad(kind) ? "bad" : "warn"}`} />
              {titleOf(kind)}
              <span class="count">{mine.length}</span>
            </h3>
            {valueOf(kind) && <p class="soft">{valueOf(kind)}</p>}
            {mine.slice(0, 200).map(m => {
              const call = model.byId.get(m.call);
              return (
                call && (
                  <button
                    key={m.call}
                    class="finding"
                    title={m.sentence}
                    onClick={() => {
                      state.setStep(Math.max(m.since, state.shownStep.value));
                      state.reveal(m.call);
                    }}
                  >
                    <span class="row-name">
                      {call.path || model.label(call)}
                      {call.call > 0 && <i> · {call.call + 1}</i>}
                    </span>
                    <span class="soft mono">
                      {m.what && m.what !== "output" ? `${m.what.replace("parameter_grad", "∂ parameter").replace("grad_", "∂ ")} · ` : ""}
                      {valueOf(kind) ? formatValue(toNumber(m.value)) : `from ${m.since}`}
                    </span>
                  </button>
                )
              );
            })}
          </section>
        );
      })}
      {!bad && !marks.length && (
        <div class="calm">
          <b>Nothing to report</b>
          <p>No NaN, no infinity, no dead or saturated modules, no vanishing or exploding gradients so far.</p>
        </div>
      )}
    </div>
  );
}

function Differences() {
  const one = state.a.value,
    two = state.b.value,
    model = one?.model.value;
  const step = state.step.value;
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!one || !two) return;
    let stale = false;
    const compare = async () => {
      const found = (await state.source.compare(one.run.id, two.run.id, step)) ?? (await compareHere(state.source, one, two, step));
      if (!stale) {
        state.differences.value = found;
        setDone(true);
      }
    };
    const timer = setTimeout(
      () =>
        void compare().catch(problem => {
          one.error.value = String(problem.message ?? problem);
        }),
      150,
    );
    return () => {
      stale = true;
      clearTimeout(timer);
    };
  }, [one, two, step]);
  if (!one || !two || !model) return <div class="list" />;
  const list = state.differences.value.filter(d => model.byId.has(d.call));
  const most = Math.max(...list.map(d => d.wasserstein).filter(Number.isFinite), 1e-30);
  const show = (d: Difference) =>
    batch(() => {
      state.reveal(d.call);
      state.pin(model.key(d.call));
    });
  return (
    <div class="list" role="tabpanel">
      <p class="soft note">
        What differs most between <b>{one.run.name}</b> and <b>{two.run.name}</b>
        {step === null ? "" : ` at step ${step}`}.
      </p>
      {list.slice(0, 300).map(d => {
        const call = model.byId.get(d.call)!,
          kind = family(d.what);
        return (
          <button key={`${d.a}`} class="difference" data-call={d.call} onClick={() => show(d)}>
            <span class="difference-bar">
              <i class={kind} style={{ width: `${Math.min(100, Math.max(2, (100 * d.wasserstein) / most))}%` }} />
            </span>
            <span class="row-name">{call.path || model.label(call)}</span>
            <span class="soft">
              {one.index.value.byId.get(d.a)?.name || d.what.replace("parameter_grad", "∂ parameter").replace("grad_", "∂ ")}
            </span>
            <span class="mono" title="Wasserstein distance, in standard deviations (the mean of both)">
              {formatValue(d.wasserstein)}
            </span>
          </button>
        );
      })}
      {!list.length && <p class="soft note">{done ? "No module of both has been recorded in both." : "Comparing …"}</p>}
    </div>
  );
}
