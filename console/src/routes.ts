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
  { path: "/", title: "Home", nav: "Flow", key: "h", load: () => import("./pages/home") },
  { path: "/catalogue", title: "Catalogue", nav: "Know", key: "k", load: () => import("./pages/catalogue") },
  { path: "/catalogue/{subject}", title: "Event", load: () => import("./pages/schema") },
  { path: "/consumers", title: "Consumers", nav: "Running", key: "c", load: () => import("./pages/consumers") },
  { path: "/events", title: "Event search", nav: "Flow", key: "e", load: () => import("./pages/events") },
  { path: "/events/{id}", title: "Event", load: () => import("./pages/event") },
  { path: "/grants", title: "Grants", nav: "Trouble", key: "a", load: () => import("./pages/grants") },
  { path: "/health", title: "Health", nav: "Know", key: "w", load: () => import("./pages/health") },
  { path: "/held", title: "Held", nav: "Trouble", key: "d", load: () => import("./pages/held") },
  { path: "/held/{service}/{id}", title: "Held event", load: () => import("./pages/held-event") },
  { path: "/jobs", title: "Jobs", nav: "Trouble", key: "j", load: () => import("./pages/jobs") },
  { path: "/jobs/{service}/{id}", title: "Job", load: () => import("./pages/job") },
  { path: "/keys", title: "Key", load: () => import("./pages/key") },
  { path: "/log", title: "Operators' log", nav: "Know", key: "l", load: () => import("./pages/log") },
  { path: "/map", title: "Map", nav: "Flow", key: "m", load: () => import("./pages/map") },
  { path: "/outbox", title: "Outbox", nav: "Trouble", key: "o", load: () => import("./pages/outbox") },
  { path: "/processes", title: "Processes", nav: "Running", key: "p", load: () => import("./pages/processes") },
  { path: "/projections", title: "Projections", nav: "Running", load: () => import("./pages/projections") },
  { path: "/relays", title: "Relays", nav: "Running", key: "r", load: () => import("./pages/relays") },
  { path: "/runbooks", title: "Runbooks", nav: "Know", key: "b", load: () => import("./pages/runbooks") },
  { path: "/runbooks/{page}", title: "Runbook", load: () => import("./pages/runbooks") },
  { path: "/sagas", title: "Sagas", nav: "Trouble", key: "s", load: () => import("./pages/sagas") },
  { path: "/sagas/{service}/{saga}/{id}", title: "Saga", load: () => import("./pages/saga") },
  { path: "/schedules", title: "Schedules", nav: "Running", load: () => import("./pages/schedules") },
  { path: "/services", title: "Services", nav: "Know", load: () => import("./pages/services") },
  ...(DEVELOPMENT ? [{ path: "/style", title: "Style", load: () => import("./pages/style") }] : []),
  { path: "/tenants", title: "Tenants", nav: "Know", key: "n", load: () => import("./pages/tenants") },
  { path: "/timers", title: "Timers", nav: "Running", key: "t", load: () => import("./pages/timers") },
];
