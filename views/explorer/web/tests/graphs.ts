// Graphs made for tests: any size, any nesting.

import type { Call, Edge, Graph } from "../src/data/protocol";

export function call(id: number, parent: number | null, path: string, type: string, name = path.split(".").pop() ?? ""): Call {
  return {
    id,
    parent,
    path,
    call: 0,
    type,
    name,
    seen: 1,
    inputs: [{ dtype: "float32", shape: [8, 16] }],
    outputs: [{ dtype: "float32", shape: [8, 16] }],
    parameters: [],
    attributes: "",
    series: { input: [-1], output: [-1], grad_input: [-1], grad_output: [-1] },
  };
}

export function edge(caller: number, from: number, to: number, fromPort = 0, toPort = 0): Edge {
  return { caller, from: { call: from, port: fromPort }, to: { call: to, port: toPort }, kind: "data", seen: 1 };
}

/** Stages of residual blocks of layers: `stages` * (1 + `blocks` * 7) + 1 calls, each block with a skip. */
export function residual(stages: number, blocks: number): Graph {
  const calls = [call(0, null, "", "Net", "net")],
    edges: Edge[] = [];
  const layers = ["conv1", "bn1", "relu", "conv2", "bn2", "act"];
  let before = 0;
  for (let s = 0; s < stages; s++) {
    const stage = calls.length;
    calls.push(call(stage, 0, `stage${s}`, "Sequential"));
    edges.push(edge(0, before, stage));
    before = stage;
    let inner = stage;
    for (let b = 0; b < blocks; b++) {
      const block = calls.length;
      calls.push(call(block, stage, `stage${s}.${b}`, "BasicBlock"));
      edges.push(edge(stage, inner, block));
      inner = block;
      let last = block;
      for (const name of layers) {
        const id = calls.length;
        calls.push(
          call(id, block, `stage${s}.${b}.${name}`, name.startsWith("conv") ? "Conv2d" : name.startsWith("bn") ? "BatchNorm2d" : "ReLU"),
        );
        edges.push(edge(block, last, id));
        last = id;
      }
      edges.push(edge(block, block, last), edge(block, last, block));
    }
    edges.push(edge(stage, inner, stage));
  }
  edges.push(edge(0, before, 0));
  return { version: 1, mode: "train", forwards: 1, calls, edges };
}

/** A chain without nesting, in which every seventh node reads one far above, too. */
export function flat(count: number): Graph {
  const calls = [call(0, null, "", "Net", "net")],
    edges: Edge[] = [];
  for (let i = 1; i <= count; i++) {
    calls.push(call(i, 0, `n${i}`, "Op"));
    edges.push(edge(0, i - 1, i));
    if (i % 7 === 0 && i > 40) edges.push(edge(0, i - 3, i), edge(0, i - 33, i));
  }
  edges.push(edge(0, count, 0));
  return { version: 1, mode: "train", forwards: 1, calls, edges };
}

export function items(graph: Graph, width = 120): { id: number; parent: number; width: number }[] {
  return graph.calls.map(c => ({ id: c.id, parent: c.parent ?? -1, width }));
}
