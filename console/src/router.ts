// Where we are. Paths are those below the base; the address bar has the whole.
import { signal } from "@preact/signals";
import { base } from "./api";

export interface Place {
  path: string;
  query: URLSearchParams;
}

const read = (): Place => {
  const whole = location.pathname;
  const path = whole.startsWith(`${base}/`) ? whole.slice(base.length) : "/";
  return { path: path.length > 1 ? path.replace(/\/+$/, "") || "/" : path, query: new URLSearchParams(location.search) };
};

export const place = signal<Place>(read());

addEventListener("popstate", () => (place.value = read()));

/** The address of a path, for `href`. */
export const href = (path: string): string => base + path;

/** Go to a path of the console. `replace` leaves no step to come back to, as for a filter that was typed. */
export function go(path: string, { replace = false }: { replace?: boolean } = {}): void {
  if (href(path) === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", href(path));
  const before = place.value.path;
  place.value = read();
  if (place.value.path !== before) scrollTo(0, 0);
}

/** Change the questions of this page: null takes one away. */
export function requery(changes: Record<string, string | null>, { replace = true }: { replace?: boolean } = {}): void {
  const query = new URLSearchParams(place.value.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  go(place.value.path + (text ? `?${text}` : ""), { replace });
}
