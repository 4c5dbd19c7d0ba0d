// The state of the page in the fragment of its address, so that a view can be sent to somebody. The token is not part
// of it: it moves to the session's storage at once.

import { effect } from "@preact/signals";
import * as state from "./state";

const TOKEN = "torchtap-token";

export function takeToken(): string {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  // Two explorers differ by port, and so do their origins and storages.
  if (given !== null) {
    try {
      sessionStorage.setItem(TOKEN, given);
    } catch {
      /* Storage is switched off: a reload asks for the token again. */
    }
    const rest = new URLSearchParams(location.hash.slice(1));
    rest.delete("token");
    history.replaceState(null, "", `#${rest}`);
    return given;
  }
  try {
    return sessionStorage.getItem(TOKEN) ?? "";
  } catch {
    return "";
  }
}

export interface Wanted {
  run: string | null;
  vs: string | null;
}

function split(text: string | null): string[] {
  return text ? text.split("|").map(decodeURIComponent) : [];
}
function join(keys: Iterable<string>): string {
  return [...keys].map(k => encodeURIComponent(k)).join("|");
}
function oneOf<T extends string>(text: string | null, all: readonly T[], fallback: T): T {
  return all.includes(text as T) ? (text as T) : fallback;
}

export function readAddress(): Wanted {
  const p = new URLSearchParams(location.hash.slice(1));
  const number = (name: string) => {
    const v = p.get(name);
    return v !== null && Number.isFinite(+v) ? +v : null;
  };
  state.mode.value = p.get("mode") ?? "train";
  everything = p.get("open") === "*";
  state.open.value = new Set(everything ? [] : split(p.get("open")));
  state.pinned.value = [...new Set(split(p.get("panels")))];
  state.hidden.value = new Set(split(p.get("hide")));
  state.shown.value = new Set(split(p.get("show")));
  state.selected.value = p.get("at") ?? "";
  state.step.value = number("step");
  const range = p.get("range")?.split("~").map(Number);
  state.range.value = range?.length === 2 && range.every(Number.isFinite) ? [range[0]!, range[1]!] : null;
  state.colour.value = oneOf(p.get("colour"), state.COLOURS, "type");
  state.view.value = oneOf(p.get("view"), state.VIEWS, "heat");
  state.scale.value = oneOf(p.get("scale"), ["auto", "linear", "symlog"], "auto");
  state.theme.value = oneOf(p.get("theme"), ["auto", "light", "dark"], "auto");
  state.sideTab.value = oneOf(p.get("side"), ["modules", "findings", "differences"], "modules");
  return { run: p.get("run"), vs: p.get("vs") };
}

/** The address asked for every module open, however many there are. */
export let everything = false;

export function writeAddress(): void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  effect(() => {
    const p = new URLSearchParams();
    const put = (name: string, value: string, usual: string) => {
      if (value !== usual) p.set(name, value);
    };
    const model = state.a.value?.model.value;
    put("run", state.a.value?.run.id ?? "", "");
    put("vs", state.b.value?.run.id ?? "", "");
    put("mode", state.mode.value, "train");
    const all = model !== null && model !== undefined && state.open.value.size > 40 && state.open.value.size >= model.children.size - 1;
    put("open", all ? "*" : join(state.open.value), "\0");
    put("panels", join(state.pinned.value), "");
    put("hide", join(state.hidden.value), "");
    put("show", join(state.shown.value), "");
    put("at", state.selected.value, "");
    put("step", state.step.value === null ? "" : String(state.step.value), "");
    put("range", state.range.value ? state.range.value.map(v => +v.toFixed(2)).join("~") : "", "");
    put("colour", state.colour.value, "type");
    put("view", state.view.value, "heat");
    put("scale", state.scale.value, "auto");
    put("theme", state.theme.value, "auto");
    put("side", state.sideTab.value, "modules");
    if (!model) return;
    clearTimeout(timer);
    // Browsers allow few changes a second, and scrubbing makes many.
    timer = setTimeout(() => history.replaceState(null, "", `#${p}`), 200);
  });
}
