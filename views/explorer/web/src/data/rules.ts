// What the page calls the rules of views/rules/README.md.

/** The gravest first: as a heading, on a badge, and what the value of a finding is. */
const WORDS: Record<string, [title: string, badge: string, value?: string]> = {
  nonfinite: ["NaN or infinities in values", "NaN"],
  exploding_gradient: ["Exploding gradients", "exploding", "root mean square, or how many times the one before"],
  vanishing_gradient: ["Vanishing gradients", "vanishing", "root mean square, or how many times the one before"],
  dead_relu: ["Dead modules", "dead", "share of outputs that are zero"],
  all_zero: ["All values zero", "zero"],
  saturated: ["Saturated modules", "saturated", "share of outputs at the limits"],
  scale_outlier: ["Scales out of line", "scale", "how many times the neighbours"],
  update_ratio: ["Updates out of proportion", "update", "update / weight"],
  unchanged_tensor: ["Parameters that do not change", "unchanged"],
};
const ORDER = Object.keys(WORDS);

export const titleOf = (rule: string): string => WORDS[rule]?.[0] ?? rule.replaceAll("_", " ");
export const badgeOf = (rule: string): string => WORDS[rule]?.[1] ?? rule.replaceAll("_", " ");
export const valueOf = (rule: string): string => WORDS[rule]?.[2] ?? "";
/** The place in the order of gravity; the last for rules that the page does not know. */
export const rankOf = (rule: string): number => (ORDER.indexOf(rule) + ORDER.length + 1) % (ORDER.length + 1);
export const isBad = (rule: string): boolean => rule === "nonfinite";
