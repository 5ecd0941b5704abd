// Addresses, made of parts that may hold anything.

/** `/held` and its questions, without those that are empty: query("/held", {state: "dead", after: null}). */
export function query(path: string, asked: Record<string, string | number | boolean | null | undefined>): string {
  const given = Object.entries(asked).filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  const text = new URLSearchParams(given.map(([name, value]) => [name, value === true ? "1" : String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

/** A path whose parts may hold anything: at`/held/${service}/${id}`. */
export const at = (texts: TemplateStringsArray, ...parts: (string | number)[]): string =>
  texts.reduce((path, text, i) => path + text + (i < parts.length ? encodeURIComponent(String(parts[i])) : ""), "");
