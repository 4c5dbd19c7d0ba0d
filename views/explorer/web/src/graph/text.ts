// Text cut to a width, remembered: measuring is what drawing text costs most.

import { FONT } from "../layout/client";

const cut = new Map<string, string>();

export function setFont(context: CanvasRenderingContext2D, size: number, weight = 400): void {
  context.font = `${weight} ${size}px ${FONT}`;
}

/** The text, or its beginning and an ellipsis, no wider than `width`, in the context's font. */
export function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
  const key = `${context.font}|${Math.round(width)}|${text}`;
  const known = cut.get(key);
  if (known !== undefined) return known;
  let result = text.length > 200 ? text.slice(0, 200) + "…" : text;
  if (context.measureText(result).width > width) {
    let lo = 0,
      hi = result.length;
    while (lo < hi) {
      const middle = (lo + hi + 1) >> 1;
      if (context.measureText(text.slice(0, middle) + "…").width <= width) lo = middle;
      else hi = middle - 1;
    }
    // Half of a surrogate pair is no character.
    if (lo > 0 && /[\ud800-\udbff]/.test(text[lo - 1]!)) lo--;
    result = lo > 0 ? text.slice(0, lo) + "…" : "";
  }
  if (cut.size > 20000) cut.clear();
  cut.set(key, result);
  return result;
}
