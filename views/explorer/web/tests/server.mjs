// A server for tests and development: speaks the explorer's protocol for folders of tests/make_runs.py and for graphs
// made up in a test. Not a part of the page.
//
// usage: node tests/server.mjs FOLDER…   each a run; prints the address

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { WebSocketServer } from "ws";

const DIST = fileURLToPath(new URL("../dist/", import.meta.url));
const TYPES = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
};
const CSP =
  "default-src 'none'; script-src 'self'; connect-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self' data:; frame-ancestors 'none'";

/** The bytes of each series in a columns file, by column, so that any part can be sent. */
export function split(buffer) {
  const view = new DataView(buffer.buffer, buffer.byteOffset, buffer.byteLength);
  const series = new Map();
  let at = 16;
  const varint = () => {
    while (buffer[at++] & 128);
  };
  for (let n = view.getUint32(12, true); n > 0; n--) {
    const id = view.getUint32(at, true),
      count = view.getUint32(at + 12, true) & 0x7fffffff; // but for the mark of what is whole
    at += 16;
    const columns = [];
    for (let i = 0; i < count; i++) {
      const from = at;
      const first = Number(view.getBigInt64(at, true)),
        last = Number(view.getBigInt64(at + 8, true));
      at += 88;
      const bins = view.getUint32(at, true);
      at += 4;
      for (let k = 0; k < bins; k++) {
        varint();
        varint();
      }
      columns.push({ first, last, bytes: buffer.subarray(from, at), sequence: i + 1 });
    }
    series.set(id, columns);
  }
  return series;
}

export async function readRun(folder, id = basename(folder)) {
  const json = async name => JSON.parse(await readFile(join(folder, `${name}.json`), "utf8"));
  return {
    run: { ...(await json("run")), id },
    graph: await json("graph"),
    series: await json("series"),
    scalars: await json("scalars"),
    health: await json("health"),
    columns: split(await readFile(join(folder, "columns.bin"))),
  };
}

/** `replace` marks series that are sent whole. */
export function pack(list) {
  const parts = [];
  const head = Buffer.alloc(16);
  head.writeUInt32LE(0x434c5054, 0);
  head.writeUInt32LE(1, 4);
  head.writeUInt32LE(3, 8);
  head.writeUInt32LE(list.length, 12);
  parts.push(head);
  for (const { id, sequence, columns, replace } of list) {
    const h = Buffer.alloc(16);
    h.writeUInt32LE(id, 0);
    h.writeBigUInt64LE(BigInt(sequence), 4);
    h.writeUInt32LE((columns.length + (replace ? 0x80000000 : 0)) >>> 0, 12);
    parts.push(h, ...columns.map(c => c.bytes));
  }
  return Buffer.concat(parts);
}

export class Server {
  token = "0123456789abcdef0123456789abcdef";
  requests = [];
  /** Steps after this are not there yet. */
  until = Infinity;
  sockets = new Set();
  refuseSockets = false;
  compare = () => [];
  controls = [];

  constructor(runs) {
    this.runs = new Map(runs.map(r => [r.run.id, r]));
  }

  async start(port = 0) {
    this.http = createServer((request, response) => {
      this.answer(request, response).catch(problem => {
        response.statusCode = 500;
        response.end(String(problem));
      });
    });
    this.ws = new WebSocketServer({ noServer: true });
    this.http.on("upgrade", (request, socket, head) => {
      if (this.refuseSockets || new URL(request.url, "http://x").pathname !== "/api/v1/live") {
        socket.destroy();
        return;
      }
      this.ws.handleUpgrade(request, socket, head, ws => {
        ws.once("message", data => {
          let token = "";
          try {
            ({ token } = JSON.parse(data));
          } catch {
            /* Not JSON: no token. */
          }
          if (token !== this.token) {
            ws.close(4403);
            return;
          }
          this.sockets.add(ws);
          ws.on("close", () => this.sockets.delete(ws));
          this.notify();
        });
      });
    });
    await new Promise((resolve, reject) => this.http.listen(port, "127.0.0.1", resolve).once("error", reject));
    this.port = this.http.address().port;
    return this.url();
  }
  url(fragment = "") {
    return `http://127.0.0.1:${this.port}/#token=${this.token}${fragment}`;
  }

  async stop() {
    for (const ws of this.sockets) ws.terminate();
    this.http.closeAllConnections();
    await new Promise(resolve => this.http.close(resolve));
  }

  stepOf(r) {
    return Math.min(r.run.step, Math.max(0, this.until));
  }
  runOf(r) {
    return { ...r.run, step: this.stepOf(r), state: this.stepOf(r) < r.run.step ? "running" : r.run.state };
  }
  columnsOf(r, id) {
    return (r.columns.get(id) ?? []).filter(c => c.first <= this.until);
  }

  /** Time goes on: later columns appear, and viewers are told. */
  advance(until) {
    this.until = until;
    this.notify();
  }
  notify() {
    for (const r of this.runs.values()) {
      const { step, state } = this.runOf(r);
      const notice = JSON.stringify({
        run: r.run.id,
        identity: r.run.identity,
        step,
        graph: Object.values(r.graph)[0].version,
        sequence: step,
        changed: [...r.columns.keys()],
        state,
      });
      for (const ws of this.sockets) ws.send(notice);
    }
  }

  async answer(request, response) {
    const url = new URL(request.url, "http://x");
    this.requests.push(request.method + " " + url.pathname + url.search);
    response.setHeader("Content-Security-Policy", CSP);
    response.setHeader("X-Content-Type-Options", "nosniff");
    response.setHeader("Referrer-Policy", "no-referrer");
    response.setHeader("Cross-Origin-Resource-Policy", "same-origin");
    const file = url.pathname === "/" ? "index.html" : url.pathname.slice(1);
    if (["index.html", "app.js", "worker.js", "app.css", "favicon.svg"].includes(file)) {
      response.setHeader("Content-Type", TYPES[file.split(".").pop()]);
      response.end(await readFile(join(DIST, file)));
      return;
    }
    if (request.headers.authorization !== `Bearer ${this.token}`) {
      response.statusCode = 403;
      response.end("wrong token");
      return;
    }
    const [, , , what, id, part] = url.pathname.split("/");
    const named = decodeURIComponent(id ?? "");
    const r = this.runs.get(named) ?? [...this.runs.values()].find(x => x.run.identity === named);
    const json = value => {
      response.setHeader("Content-Type", "application/json");
      response.end(JSON.stringify(value));
    };
    if (what === "runs" && id === undefined) json([...this.runs.values()].map(x => this.runOf(x)));
    else if (what === "compare") json(this.compare(url.searchParams));
    else if (!r) {
      response.statusCode = 404;
      response.end();
    } else if (part === "graph") json(r.graph[url.searchParams.get("mode")]);
    else if (part === "series") json(r.series);
    else if (part === "health") {
      const { first_bad, marks } = r.health;
      json({ first_bad: first_bad && first_bad.step <= this.until ? first_bad : null, marks: marks.filter(m => m.since <= this.until) });
    } else if (part === "scalars") {
      const since = +(url.searchParams.get("since") ?? -1);
      json(
        Object.fromEntries(Object.entries(r.scalars).map(([name, points]) => [name, points.filter(([s]) => s > since && s <= this.until)])),
      );
    } else if (part === "control" && request.method === "PUT") {
      let body = "";
      for await (const chunk of request) body += chunk;
      this.controls.push(JSON.parse(body));
      json({});
    } else if (part === "columns") {
      const number = (name, fallback) => (url.searchParams.has(name) ? +url.searchParams.get(name) : fallback);
      const since = number("since", 0),
        from = number("from", -Infinity),
        to = number("to", Infinity);
      response.setHeader("Content-Type", "application/octet-stream");
      response.end(
        pack(
          url.searchParams
            .get("ids")
            .split(",")
            .map(Number)
            .map(series => {
              const all = this.columnsOf(r, series);
              return { id: series, sequence: all.length, columns: all.filter(c => c.sequence > since && c.last >= from && c.first <= to) };
            }),
        ),
      );
    } else {
      response.statusCode = 404;
      response.end();
    }
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const runs = await Promise.all(process.argv.slice(2).map(folder => readRun(folder)));
  console.log(await new Server(runs).start(8123));
}
