/** What a state is: said by a word, and never by the colour alone. */
export type Tone = "neutral" | "good" | "warn" | "bad" | "info";

export const cls = (...names: (string | false | null | undefined)[]): string => names.filter(Boolean).join(" ");
