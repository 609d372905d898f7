// Asks the server, again and again while a view is there; a laptop that slept asks when it wakes.

import type { Failure } from "./data";

export type Link = "live" | "lost";

/** Called when the server answers, or no longer does. */
export const onLink: ((link: Link) => void)[] = [];

export class AnswerError extends Error {
  constructor(readonly failure: Failure) {
    super(failure.message);
  }
}

/** Return what the server answers. Raises AnswerError for what it reports, TypeError without an answer. */
export async function ask<Answer>(path: string, query: Record<string, string>, signal?: AbortSignal): Promise<Answer> {
  return (await answer<Answer>(path, query, signal)).content;
}

async function answer<Answer>(
  path: string,
  query: Record<string, string>,
  signal?: AbortSignal,
): Promise<{ tag: string; content: Answer }> {
  try {
    const response = await fetch(`${path}?${new URLSearchParams(query)}`, { cache: "no-cache", signal });
    const content = await response.json();
    onLink.forEach((listener) => listener("live"));
    if (!response.ok) throw new AnswerError(content);
    return { tag: response.headers.get("ETag") ?? "", content };
  } catch (error) {
    if (!(error instanceof AnswerError) && !signal?.aborted) onLink.forEach((listener) => listener("lost"));
    throw error;
  }
}

/** Asks now and every `seconds` until it is ended; `draw` is called when the answer is another one. */
export class Poll<Answer> {
  private readonly ended = new AbortController();
  private timer = 0;
  private turn = 0;
  private tag = "";

  constructor(
    private readonly path: string,
    private query: Record<string, string>,
    private readonly seconds: number,
    private readonly draw: (answer: Answer) => void,
    private readonly fail: (failure: Failure) => void,
  ) {
    document.addEventListener("visibilitychange", () => document.hidden || this.now(), { signal: this.ended.signal });
    this.now();
  }

  /** Ask at once, and something else if that is given. */
  now(query = this.query): void {
    if (query !== this.query) this.tag = "";
    this.query = query;
    clearTimeout(this.timer);
    void this.run(++this.turn);
  }

  end(): void {
    clearTimeout(this.timer);
    this.ended.abort();
  }

  private async run(turn: number): Promise<void> {
    let wait = this.seconds;
    try {
      const { tag, content } = await answer<Answer>(this.path, this.query, this.ended.signal);
      if (turn !== this.turn) return;
      if (tag !== this.tag) this.draw(content);
      this.tag = tag;
      if ((content as { pending?: boolean }).pending) wait = 0.3;
    } catch (error) {
      if (this.ended.signal.aborted || turn !== this.turn) return;
      if (error instanceof AnswerError) {
        this.tag = "";
        this.fail(error.failure);
      } else if (!(error instanceof TypeError)) throw error; // without an answer it asks again
    }
    // What is not seen is not asked for; it is when the page is seen again.
    if (!document.hidden) this.timer = window.setTimeout(() => this.run(++this.turn), wait * 1000);
  }
}
