// A server as the source of data: requests with a token, notices over a WebSocket, else by asking once a second.

import { decode, type Update } from "./decode";
import {
  toNumber,
  type Control,
  type Difference,
  type Graph,
  type Health,
  type Notice,
  type Run,
  type Scalars,
  type Series,
} from "./protocol";
import { NeedsToken, Unanswered, type ColumnQuery, type Connection, type Source } from "./source";

const WRONG_TOKEN = 4403;
const POLL_MS = 1000;

export class HttpSource implements Source {
  readonly live = true;
  private readonly identities = new Map<string, string>();
  constructor(
    private readonly base: string,
    private readonly token: string,
  ) {}

  private async get(path: string, init: RequestInit = {}): Promise<Response> {
    const response = await fetch(this.base + path, {
      ...init,
      headers: { Authorization: `Bearer ${this.token}`, ...init.headers },
      credentials: "omit",
    }).catch(problem => {
      throw new Unanswered(String(problem.message));
    });
    if (response.status === 401 || response.status === 403) throw new NeedsToken("the server wants another token");
    if (!response.ok) throw new Unanswered(`${path.split("?")[0]}: the server answered ${response.status} ${response.statusText}`);
    return response;
  }
  private async json<T>(path: string): Promise<T> {
    return (await this.get(path)).json() as Promise<T>;
  }
  /** Asked for by identity: another program at the same address has no such run. */
  private name(id: string): string {
    return encodeURIComponent(this.identities.get(id) ?? id);
  }
  private run(id: string): string {
    return `runs/${this.name(id)}`;
  }

  async runs(): Promise<Run[]> {
    const runs = await this.json<Run[]>("runs");
    for (const { id, identity } of runs) this.identities.set(id, identity ?? id);
    return runs;
  }
  graph(run: string, mode: string): Promise<Graph> {
    return this.json(`${this.run(run)}/graph?mode=${encodeURIComponent(mode)}`);
  }
  series(run: string): Promise<Series[]> {
    return this.json(`${this.run(run)}/series`);
  }
  scalars(run: string, since: number): Promise<Scalars> {
    return this.json(`${this.run(run)}/scalars?since=${since}`);
  }
  health(run: string): Promise<Health> {
    return this.json(`${this.run(run)}/health`);
  }

  async columns(run: string, ids: readonly number[], query: ColumnQuery): Promise<Update[]> {
    let path = `${this.run(run)}/columns?ids=${ids.join()}`;
    for (const [name, value] of Object.entries(query)) if (value !== undefined) path += `&${name}=${value}`;
    return decode(await (await this.get(path)).arrayBuffer());
  }

  async compare(a: string, b: string, step: number | null): Promise<Difference[]> {
    const at = step === null ? "" : `&step=${step}`;
    const list: Difference[] = await this.json(`compare?a=${this.name(a)}&b=${this.name(b)}${at}`);
    return list.map(d => ({ ...d, wasserstein: toNumber(d.wasserstein), kl: toNumber(d.kl) }));
  }

  async control(run: string, change: Control): Promise<void> {
    await this.get(`${this.run(run)}/control`, {
      method: "PUT",
      body: JSON.stringify(change),
      headers: { "Content-Type": "application/json" },
    });
  }

  listen(onNotice: (notice: Notice) => void, onConnection: (state: Connection) => void): () => void {
    return new Listener(this, new URL(this.base + "live", location.href), this.token, onNotice, onConnection).end;
  }
}

/** Keeps a WebSocket open while the page is seen. Without one, asks for the runs until there is one again. */
class Listener {
  private socket: WebSocket | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private poll: ReturnType<typeof setInterval> | undefined;
  private failures = 0;
  private ended = false;

  constructor(
    private readonly source: HttpSource,
    private readonly url: URL,
    private readonly token: string,
    private readonly onNotice: (notice: Notice) => void,
    private readonly onConnection: (state: Connection) => void,
  ) {
    this.url.protocol = this.url.protocol === "https:" ? "wss:" : "ws:";
    document.addEventListener("visibilitychange", this.look);
    this.connect();
  }

  readonly end = (): void => {
    this.ended = true;
    document.removeEventListener("visibilitychange", this.look);
    this.stop();
  };

  /** A hidden page costs the server nothing. */
  private readonly look = (): void => {
    if (document.hidden) this.stop();
    else if (!this.socket) {
      this.failures = 0;
      this.connect();
    }
  };

  private stop(): void {
    clearTimeout(this.timer);
    clearInterval(this.poll);
    this.poll = undefined;
    const socket = this.socket;
    this.socket = null;
    socket?.close();
  }

  private connect(): void {
    if (this.ended || document.hidden) return;
    const socket = (this.socket = new WebSocket(this.url));
    let heard = false;
    socket.onopen = () => socket.send(JSON.stringify({ token: this.token }));
    socket.onmessage = ({ data }) => {
      if (!heard) {
        heard = true;
        this.failures = 0;
        clearInterval(this.poll);
        this.poll = undefined;
        this.onConnection("live");
      }
      this.onNotice(JSON.parse(data as string) as Notice);
    };
    socket.onclose = ({ code }) => {
      if (this.socket !== socket) return;
      this.socket = null;
      if (this.ended) return;
      if (code === WRONG_TOKEN) {
        this.refused();
        return;
      }
      this.failures++;
      this.startPolling();
      this.timer = setTimeout(() => this.connect(), Math.min(8000, 250 * 2 ** this.failures));
    };
  }

  /** Another program has the address now, with another token. */
  private refused(): void {
    this.end();
    this.onConnection("refused");
  }

  private startPolling(): void {
    if (this.poll !== undefined) return;
    const ask = async () => {
      try {
        const runs = await this.source.runs();
        if (this.poll === undefined) return;
        this.onConnection("polling");
        for (const { id, identity, step, state } of runs) {
          this.onNotice({ run: id, identity, step, graph: -1, sequence: -1, changed: null, state });
        }
      } catch (problem) {
        if (problem instanceof NeedsToken) {
          this.refused();
          return;
        }
        if (this.poll !== undefined) this.onConnection("lost");
      }
    };
    this.poll = setInterval(ask, POLL_MS);
    void ask();
  }
}
