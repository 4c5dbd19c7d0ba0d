// A program with explorers (tests/explorer_page of the repository) that serves its page, and does what a test tells it.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { split } from "../server.mjs";

export const PROGRAM = process.env.TORCHTAP_PAGE_SERVER ?? "";
const DATASET = process.env.TORCHTAP_FASHION_MNIST ?? "/usr/share/datasets/fashion-mnist";

export class Program {
  static async start() {
    assert.ok(PROGRAM, "TORCHTAP_PAGE_SERVER names no program; build explorer_page_server");
    const program = new Program();
    program.child = spawn(PROGRAM, [DATASET], { stdio: ["pipe", "pipe", "inherit"] });
    program.lines = createInterface({ input: program.child.stdout })[Symbol.asyncIterator]();
    program.address = await program.line();
    return program;
  }
  async line() {
    const { value, done } = await this.lines.next();
    assert.ok(!done, "the program has ended");
    return value;
  }
  /** "train 3", "stop", "start", "export FILE", "finish". */
  async tell(what) {
    this.child.stdin.write(`${what}\n`);
    const answer = await this.line();
    assert.ok(!answer.startsWith("error"), answer);
    return answer;
  }
  async end() {
    this.child.stdin.end();
    const code = await new Promise(done => (this.child.exitCode !== null ? done(this.child.exitCode) : this.child.once("exit", done)));
    assert.equal(code, 0, "the program ended well");
  }
  url(fragment = "") {
    return this.address + fragment;
  }

  async get(path) {
    const { origin, hash } = new URL(this.address);
    const response = await fetch(`${origin}/api/v1/${path}`, { headers: { Authorization: `Bearer ${hash.slice("#token=".length)}` } });
    assert.equal(response.status, 200, path);
    return response;
  }
  async json(path) {
    return (await this.get(path)).json();
  }
  /** Columns of a series, as bytes. */
  async columns(run, series) {
    return split(Buffer.from(await (await this.get(`runs/${run}/columns?ids=${series}`)).arrayBuffer())).get(series);
  }
}
