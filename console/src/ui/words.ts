// Figures and lengths of time, in words.

/** A length of time: 42 ms, 2.9 s, 12 s, 3 min, 2 h 5 min, 4 d 3 h. */
export function span(seconds: number): string {
  if (seconds < 0) return `-${span(-seconds)}`;
  if (seconds < 1) return seconds === 0 ? "0 s" : `${Math.max(1, Math.floor(seconds * 1000))} ms`;
  if (seconds < 10) return `${Math.floor(seconds * 10) / 10} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 && hours < 10 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  const days = Math.floor(hours / 24);
  return hours % 24 && days < 5 ? `${days} d ${hours % 24} h` : `${days.toLocaleString("en")} d`;
}

/** A count as people read it. `more` says that there are at least so many: 10,000+. */
export const count = (number: number | null | undefined, more = false): string =>
  number === null || number === undefined ? "–" : number.toLocaleString("en") + (more ? "+" : "");

/** 1 event, 2 events. */
export const counted = (number: number, thing: string, things = `${thing}s`): string => `${count(number)} ${number === 1 ? thing : things}`;

/** A rate per second. */
export function rate(perSecond: number | null | undefined): string {
  if (perSecond === null || perSecond === undefined) return "–";
  if (perSecond === 0) return "0/s";
  if (perSecond < 0.01) return "<0.01/s";
  return `${perSecond < 10 ? perSecond.toFixed(perSecond < 0.1 ? 2 : 1) : Math.round(perSecond).toLocaleString("en")}/s`;
}

/** With commits as people read them: of forty digits the first twelve. */
export const brief = (text: string): string => text.replace(/\b([0-9a-f]{12})[0-9a-f]{28}\b/g, "$1");

/** With a capital and a full stop: messages of the command line have neither. */
export const sentence = (text: string): string =>
  text && text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?`]$/.test(text) || text.includes("\n") ? "" : ".");
