// What is under the pointer: shapes, attributes, parameters, findings.

import { Fragment } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { hover } from "../graph/controller";
import { formatCount, formatShare, formatValue } from "../charts/scale";
import { portNumber } from "../layout/nested";
import { portText, shapeText, type Model } from "../data/model";
import { toNumber, type Call, type Edge, type Last, type Port } from "../data/protocol";
import { badgeOf } from "../data/rules";
import * as state from "../state";

const MOST_LISTED = 6;

/** A shape that a narrow box breaks behind a ×, and not inside of a number. */
function Shape({ text }: { text: string }) {
  return (
    <>
      {text.split("×").map((size, i) => (
        <Fragment key={i}>
          {i > 0 && (
            <>
              ×<wbr />
            </>
          )}
          {size}
        </Fragment>
      ))}
    </>
  );
}

function Ports({ title, ports }: { title: string; ports: readonly Port[] }) {
  if (!ports.length) return null;
  return (
    <div class="tip-row">
      <span>{title}</span>
      <span class="mono">
        {ports.slice(0, MOST_LISTED).map((p, i) => (
          <div key={i}>
            <Shape text={portText(p)} /> <i>{p.dtype}</i>
          </div>
        ))}
        {ports.length > MOST_LISTED && <div>and {ports.length - MOST_LISTED} more</div>}
      </span>
    </div>
  );
}

export function LastValues({ last }: { last: Last }) {
  const bad = last.nan + last.posinf + last.neginf;
  return (
    <span class="mono">
      {formatValue(toNumber(last.mean))} ± {formatValue(toNumber(last.std))}
      {last.zeros > 0 && <> · {formatShare(last.zeros, last.count)} zeros</>}
      {bad > 0 && <b class="bad"> · {formatCount(bad)} not finite</b>}
    </span>
  );
}

function CallTip({ call, model }: { call: Call; model: Model }) {
  const run = state.a.value!;
  const marks = run.health.value.marks.filter(m => m.call === call.id && m.since <= state.shownStep.value);
  const output = call.series.output?.find(id => id >= 0);
  const last = output === undefined ? null : run.index.value.byId.get(output)?.last;
  const inside = model.childrenOf(call.id).length;
  const part = call.seen < model.graph.forwards;
  return (
    <>
      <div class="tip-title">
        <b>{model.label(call)}</b>
        <span>{call.type}</span>
      </div>
      {call.path && call.path !== call.name && <div class="tip-path">{call.path}</div>}
      {call.attributes && <div class="tip-attributes">{call.attributes}</div>}
      <div class="tip-table">
        <Ports title="in" ports={call.inputs} />
        <Ports title="out" ports={call.outputs} />
        {call.parameters.length > 0 && (
          <div class="tip-row">
            <span>parameters</span>
            <span class="mono">
              {call.parameters.slice(0, MOST_LISTED).map(p => (
                <div key={p.name}>
                  {p.name} <Shape text={shapeText(p.shape)} />
                  {!p.learnable && <i> frozen</i>}
                </div>
              ))}
              {call.parameters.length > MOST_LISTED && <div>and {call.parameters.length - MOST_LISTED} more</div>}
            </span>
          </div>
        )}
        {inside > 0 && (
          <div class="tip-row">
            <span>inside</span>
            <span>
              {inside} module{inside > 1 ? "s" : ""}
            </span>
          </div>
        )}
        {part && (
          <div class="tip-row">
            <span>ran</span>
            <span>
              in {call.seen} of {model.graph.forwards} forwards
            </span>
          </div>
        )}
        {last && (
          <div class="tip-row">
            <span>newest output</span>
            <LastValues last={last} />
          </div>
        )}
      </div>
      {marks.map(m => (
        <div class="tip-mark" key={m.kind}>
          {badgeOf(m.kind)} since step {m.since}: {m.sentence}
        </div>
      ))}
    </>
  );
}

function end(model: Model, edge: Edge, which: "from" | "to"): string {
  const { call, port } = edge[which];
  const it = model.byId.get(call);
  if (!it) return "?";
  if (call === edge.caller)
    return port < 0 ? `from around ${model.label(it)}` : `${which === "from" ? "input" : "output"} ${port} of ${model.label(it)}`;
  return model.label(it);
}

const MEANS: Record<Edge["kind"], string> = {
  data: "",
  hidden: "a tensor that the call made but did not return",
  captured: "a tensor used inside without being an argument",
  unknown: "nobody was seen making this tensor",
};

function EdgeTip({ edge, model }: { edge: Edge; model: Model }) {
  const from = model.byId.get(edge.from.call);
  const port = edge.from.call === edge.caller ? from?.inputs[edge.from.port] : from?.outputs[edge.from.port];
  return (
    <>
      <div class="tip-title">
        <b>{end(model, edge, "from")}</b> → <b>{end(model, edge, "to")}</b>
      </div>
      <div class="tip-table">
        {port && (
          <div class="tip-row">
            <span>tensor</span>
            <span class="mono">
              <Shape text={portText(port)} /> <i>{port.dtype}</i>
            </span>
          </div>
        )}
        {edge.seen < model.graph.forwards && (
          <div class="tip-row">
            <span>seen</span>
            <span>
              in {edge.seen} of {model.graph.forwards} forwards
            </span>
          </div>
        )}
      </div>
      {MEANS[edge.kind] && <div class="tip-attributes">{MEANS[edge.kind]}</div>}
    </>
  );
}

export function Tooltip() {
  const box = useRef<HTMLDivElement>(null);
  const at = hover.value,
    model = state.a.value?.model.value;
  useLayoutEffect(() => {
    const it = box.current,
      room = it?.parentElement;
    if (!it || !room || !at) return;
    const left = at.x + 18 + it.offsetWidth > room.clientWidth ? Math.max(4, at.x - it.offsetWidth - 14) : at.x + 18;
    it.style.left = `${left}px`;
    it.style.top = `${Math.max(4, Math.min(at.y + 14, room.clientHeight - it.offsetHeight - 8))}px`;
  });
  if (!at || !model || state.dragging.value) return null;
  const call = model.byId.get(at.call),
    edge = model.graph.edges[at.edge];
  if (at.port >= 0 && call) {
    const k = portNumber(at.port),
      port = (at.port % 2 ? call.outputs : call.inputs)[k];
    return (
      <div class="tip" ref={box} role="tooltip">
        <div class="tip-title">
          <b>{k < 0 ? "other tensors" : `${at.port % 2 ? "output" : "input"} ${k}`}</b>
          <span>of {model.label(call)}</span>
        </div>
        {port && (
          <div class="tip-table">
            <Ports title="tensor" ports={[port]} />
          </div>
        )}
      </div>
    );
  }
  if (!call && !edge) return null;
  return (
    <div class="tip" ref={box} role="tooltip">
      {call ? <CallTip call={call} model={model} /> : <EdgeTip edge={edge!} model={model} />}
    </div>
  );
}
