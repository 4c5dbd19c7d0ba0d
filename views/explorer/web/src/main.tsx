// Starts the page: finds its data, restores the view in the address, listens for what is new.

import { batch } from "@preact/signals";
import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./app.css";
import { everything, readAddress, takeToken, writeAddress } from "./address";
import { EmbeddedSource } from "./data/embedded";
import { HttpSource } from "./data/http";
import { NeedsToken, Unanswered, type Source } from "./data/source";
import type { Notice } from "./data/protocol";
import * as state from "./state";
import { App } from "./ui/app";

function findSource(): Source {
  const embedded = document.getElementById("torchtap-data");
  if (embedded) return new EmbeddedSource(JSON.parse(embedded.textContent ?? ""));
  return new HttpSource("api/v1/", takeToken());
}

function complain(problem: unknown): void {
  if (problem instanceof NeedsToken) state.needsToken.value = true;
  else state.fatal.value = problem instanceof Error ? problem.message : String(problem);
}

/** Runs may begin while the page is open, and a program that was started again has others. */
async function refreshRuns(): Promise<void> {
  const runs = await state.source.runs();
  state.runs.value = runs;
  const gone = [state.a.value, state.b.value].some(
    data => data && !runs.some(r => r.id === data.run.id && r.identity === data.run.identity),
  );
  if (gone) {
    batch(() => {
      state.a.value = state.b.value = null;
      state.step.value = null;
      state.range.value = null;
    });
  }
  // Before its first forward a run has no mode and no graph.
  if (!state.a.value && runs.some(r => r.modes.length)) await state.choose(wanted.run ?? "", wanted.vs);
}

let wanted: ReturnType<typeof readAddress> = { run: null, vs: null };
let asking = false;

function heard(notice: Notice): void {
  const known = state.runs.value.find(r => r.id === notice.run && r.identity === notice.identity);
  if ((!known || !state.a.value) && !asking) {
    asking = true;
    // What is away for now is asked for again by the next notice.
    void refreshRuns()
      .catch(problem => {
        if (!(problem instanceof Unanswered)) complain(problem);
      })
      .finally(() => {
        asking = false;
      });
    return;
  }
  if (known && (known.step !== notice.step || known.state !== notice.state)) {
    state.runs.value = state.runs.value.map(r => (r === known ? { ...r, step: notice.step, state: notice.state } : r));
  }
  for (const run of [state.a.value, state.b.value])
    if (run?.run.id === notice.run && run.run.identity === notice.identity) run.notice(notice);
}

async function start(): Promise<void> {
  render(<App />, document.getElementById("app")!);
  state.useSource(findSource());
  wanted = readAddress();
  try {
    await refreshRuns();
  } catch (problem) {
    // A server that is away for a moment is asked again by what listens; a wrong token will not get better.
    if (!(problem instanceof Unanswered) || !state.source.live) {
      complain(problem);
      return;
    }
    state.connection.value = "lost";
  }
  if (everything) state.expandAll();
  else if (!location.hash.includes("open=")) state.openSome();
  writeAddress();
  state.source.listen(heard, connection => {
    state.connection.value = connection;
    if (connection === "refused") state.needsToken.value = true;
  });
}

// Another address of this page was opened in the same tab: of a program that was started again, or a saved view.
addEventListener("hashchange", () => location.reload());
start().catch(complain);
