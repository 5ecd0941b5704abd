// The pages: one line each, sorted by path. `nav` puts it into the rail, `key` is its shortcut after `g`.
import type { ComponentType } from "preact";

export interface PageProps {
  params: Record<string, string>;
  query: URLSearchParams;
}

export type Group = "Flow" | "Trouble" | "Running" | "Know";

export interface Route {
  path: string;
  title: string;
  nav?: Group;
  key?: string;
  load: () => Promise<{ default: ComponentType<PageProps> }>;
}

export const routes: readonly Route[] = [
  { path: "/services", title: "Services", nav: "Know", load: () => import("./pages/services") },
  { path: "/style", title: "Style", load: () => import("./pages/style") },
];
