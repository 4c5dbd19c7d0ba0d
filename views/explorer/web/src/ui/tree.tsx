// The modules as a tree, or what a search found as a list; only the rows in sight exist. The tree and the graph open the
// same modules.

import { useEffect, useRef, useState } from "preact/hooks";
import { found } from "../graph/appearance";
import { type Model } from "../data/model";
import type { Call } from "../data/protocol";
import { isBad } from "../data/rules";
import * as state from "../state";
import { typeColour } from "../theme";
import { Icon } from "./icons";

const ROW = 27,
  SPARE = 8;
/** A call, or the lists around the calls that follow. */
interface Row {
  call: Call | null;
  depth: number;
  name: string;
}

/** The calls inside of one; those of one list of modules, which is no call, stand below its name. */
function inside(model: Model, id: number, depth: number): Row[] {
  const rows: Row[] = [];
  const calls = model.childrenOf(id).filter(call => call.type !== "operation"), // which is no module
    lists = calls.map(call => model.lists(call));
  calls.forEach((call, i) => {
    const list = lists[i]!,
      name = model.label(call);
    if (!list || (list !== lists[i - 1] && list !== lists[i + 1])) return rows.push({ call, depth, name });
    if (list !== lists[i - 1]) rows.push({ call: null, depth, name: list });
    return rows.push({ call, depth: depth + 1, name: name.slice(list.length + 1) });
  });
  return rows;
}

function rowsOf(model: Model): Row[] {
  const search = found.value;
  if (search)
    return model.graph.calls.filter(call => search.has(call.id)).map(call => ({ call, depth: 0, name: call.path || model.label(call) }));
  const rows: Row[] = [];
  const todo: Row[] = model.root ? inside(model, model.root.id, 0).reverse() : [];
  while (todo.length) {
    const row = todo.pop()!;
    rows.push(row);
    if (row.call && state.open.value.has(model.key(row.call.id))) todo.push(...inside(model, row.call.id, row.depth + 1).reverse());
  }
  return rows;
}

export function Tree() {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setHeight(entry!.contentRect.height));
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  const model = state.a.value?.model.value;
  const rows = model ? rowsOf(model) : [];
  const at = rows.findIndex(({ call }) => call && model!.key(call.id) === state.selected.value);
  useEffect(() => {
    const it = box.current;
    if (!it || at < 0) return;
    if (at * ROW < it.scrollTop) it.scrollTop = at * ROW;
    else if ((at + 1) * ROW > it.scrollTop + it.clientHeight) it.scrollTop = (at + 1) * ROW - it.clientHeight;
  }, [at]);
  if (!model) return <div class="tree" ref={box} />;
  const marks = new Map<number, string>();
  for (const mark of state.a.value!.health.value.marks) {
    if (mark.since > state.shownStep.value) continue;
    const bad = isBad(mark.kind);
    for (const id of [mark.call, ...model.ancestors(mark.call).map(c => c.id)])
      if (bad || !marks.has(id)) marks.set(id, bad ? "bad" : "warn");
  }
  const first = Math.max(0, Math.floor(top / ROW) - SPARE),
    last = Math.min(rows.length, Math.ceil((top + height) / ROW) + SPARE);
  /** The next row that is a call, from `i` on. */
  const select = (i: number, by: 1 | -1) => {
    while (rows[i] && !rows[i]!.call) i += by;
    const call = rows[i]?.call;
    if (call) state.reveal(call.id);
  };
  const key = (e: KeyboardEvent) => {
    const call = rows[at]?.call,
      id = call ? model.key(call.id) : "";
    const opened = call && !found.value && state.open.value.has(id);
    if (e.key === "ArrowDown") select(at + 1, 1);
    else if (e.key === "ArrowUp") select(at < 0 ? 0 : at - 1, at < 0 ? 1 : -1);
    else if (e.key === "Home") select(0, 1);
    else if (e.key === "End") select(rows.length - 1, -1);
    else if (e.key === "ArrowRight" && call) {
      if (model.canOpen(call.id) && !opened) state.toggleOpen(id);
      else select(at + 1, 1);
    } else if (e.key === "ArrowLeft" && call) {
      if (opened) state.toggleOpen(id);
      else if (call.parent !== null && call.parent !== model.root?.id) state.reveal(call.parent);
    } else if (e.key === "Enter" && call) {
      if (model.canOpen(call.id)) state.toggleOpen(id);
      else state.pin(id);
    } else if ((e.key === "p" || e.key === " ") && call) state.togglePin(id);
    else return;
    e.preventDefault();
  };
  return (
    <div
      class="tree"
      ref={box}
      tabIndex={0}
      role="tree"
      aria-label="Modules"
      onKeyDown={key}
      onScroll={e => setTop(e.currentTarget.scrollTop)}
      aria-activedescendant={at >= 0 ? `row-${rows[at]!.call!.id}` : undefined}
    >
      {!rows.length && <p class="soft note">{found.value ? "No module has these words in its path or type." : "No module has run yet."}</p>}
      <div class="tree-room" style={{ height: `${rows.length * ROW}px` }}>
        {rows.slice(first, last).map(({ call, depth, name }, i) =>
          call ? (
            <TreeRow
              key={call.id}
              call={call}
              depth={depth}
              name={name}
              model={model}
              y={(first + i) * ROW}
              mark={marks.get(call.id)}
              index={first + i}
              of={rows.length}
            />
          ) : (
            <div
              key={`list-${first + i}`}
              class="list-name"
              aria-hidden="true"
              style={{ transform: `translateY(${(first + i) * ROW}px)`, paddingLeft: indent(depth) }}
            >
              <span class="row-name">{name}</span>
            </div>
          ),
        )}
      </div>
    </div>
  );
}

const indent = (depth: number) => `${8 + Math.min(depth, 12) * 13}px`;

function TreeRow({
  call,
  depth,
  name,
  model,
  y,
  mark,
  index,
  of,
}: {
  call: Call;
  depth: number;
  name: string;
  model: Model;
  y: number;
  mark: string | undefined;
  index: number;
  of: number;
}) {
  const key = model.key(call.id),
    group = model.canOpen(call.id) && !found.value,
    opened = group && state.open.value.has(key);
  const pinned = state.pinned.value.includes(key);
  return (
    <div
      id={`row-${call.id}`}
      class={`row${state.selected.value === key ? " selected" : ""}`}
      role="treeitem"
      aria-level={depth + 1}
      aria-selected={state.selected.value === key}
      aria-expanded={group ? opened : undefined}
      aria-posinset={index + 1}
      aria-setsize={of}
      style={{ transform: `translateY(${y}px)`, paddingLeft: indent(depth) }}
      data-key={key}
      onClick={() => state.reveal(call.id)}
      onDblClick={() => {
        if (group) state.toggleOpen(key);
        else state.pin(key);
      }}
    >
      <button
        class={`twist${group ? "" : " none"}${opened ? " open" : ""}`}
        tabIndex={-1}
        aria-hidden="true"
        onClick={e => {
          e.stopPropagation();
          state.toggleOpen(key);
        }}
      >
        <Icon name="chevron" size={12} />
      </button>
      <span class="swatch small" style={{ background: typeColour(call.type, state.dark.value) }} />
      <span class="row-name" title={call.path}>
        {name}
      </span>
      <span class="row-type">{call.type}</span>
      {mark && <span class={`mark ${mark}`} title="There are findings" />}
      <button
        class={`row-pin${pinned ? " on" : ""}`}
        tabIndex={-1}
        title={pinned ? "Close its panel" : "Make a panel (P)"}
        onClick={e => {
          e.stopPropagation();
          state.togglePin(key);
        }}
      >
        <Icon name="panels" size={13} />
      </button>
    </div>
  );
}
