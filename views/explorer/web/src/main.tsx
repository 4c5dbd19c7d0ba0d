// Starts the page: finds its data, restores the view in the address, listens for what is new.

import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./app.css";
import { everything, readAddress, takeToken, writeAddress } from "./address";
import { EmbeddedSource } from "./data/embedded";
import { HttpSource } from "./data/http";
import { NeedsToken, type Source } from "./data/source";
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

/** Runs may begin while the page is open. */
async function refreshRuns(): Promise<void> {
  state.runs.value = await state.source.runs();
  // Before its first forward a run has no mode and no graph.
  if (!state.a.value && state.runs.value.some(r => r.modes.length)) await state.choose(wanted.run ?? "", wanted.vs);
}

let wanted: ReturnType<typeof readAddress> = { run: null, vs: null };
let asking = false;

function heard(notice: Notice): void {
  const known = state.runs.value.find(r => r.id === notice.run);
  if ((!known || !state.a.value) && !asking) {
    asking = true;
    void refreshRuns().catch(() => {}).finally(() => { asking = false; });
    return;
  }
  if (known && (known.step !== notice.step || known.state !== notice.state)) {
    state.runs.value = state.runs.value.map(r => r === known ? { ...r, step: notice.step, state: notice.state } : r);
  }
  for (const run of [state.a.value, state.b.value]) if (run?.run.id === notice.run) run.notice(notice);
}

async function start(): Promise<void> {
  state.useSource(findSource());
  wanted = readAddress();
  render(<App />, document.getElementById("app")!);
  try {
    await refreshRuns();
  } catch (problem) {
    // A server that is away for a moment is asked again by what listens; a wrong token will not get better.
    if (problem instanceof NeedsToken || !state.source.live) { complain(problem); return; }
    state.connection.value = "lost";
  }
  if (everything) state.expandAll(); else if (!location.hash.includes("open=")) state.openSome();
  writeAddress();
  state.source.listen(heard, connection => { state.connection.value = connection; });
}

start().catch(complain);
