import { useEffect, useState } from "preact/hooks";
import { help } from "./keys";
import { type Connection, connection } from "./live";
import { place } from "./router";
import { type Group, routes } from "./routes";
import { session, signOut } from "./session";
import { choose, theme } from "./theme";
import { Button, Link, Menu } from "./ui";

const GROUPS: readonly Group[] = ["Flow", "Trouble", "Running", "Know"];
const ORDER = ["Home", "Map", "Event search", "Held", "Outbox", "Sagas", "Jobs", "Grants", "Consumers", "Relays", "Processes", "Timers", "Schedules", "Projections", "Catalogue", "Tenants", "Operators' log", "Health", "Runbooks", "Services"];

const rank = (title: string): number => (ORDER.indexOf(title) + 1 || ORDER.length + 1) - 1;
const within = (path: string, here: string): boolean => here === path || (path !== "/" && here.startsWith(`${path}/`));
const THEMES = { system: "System", light: "Light", dark: "Dark" } as const;

export function Rail() {
  const here = place.value.path;
  const [open, set] = useState(false);
  useEffect(() => set(false), [here]);
  return (
    <header class="rail" data-open={open || undefined} onKeyDown={(event) => event.key === "Escape" && set(false)}>
      <div class="rail-top">
        <Link to="/" class="brand">
          <Mark /> Posthouse
        </Link>
        <Button small class="rail-open" aria-expanded={open} aria-controls="rail-groups" onClick={() => set(!open)}>
          Pages
        </Button>
      </div>
      <nav class="rail-groups" id="rail-groups" aria-label="Pages">
        {GROUPS.map((group) => {
          const pages = routes.filter((one) => one.nav === group).sort((a, b) => rank(a.title) - rank(b.title));
          return (
            pages.length > 0 && (
              <section class="rail-group" key={group}>
                <h2>{group}</h2>
                <ul>
                  {pages.map((one) => (
                    <li key={one.path}>
                      <Link class="rail-link" to={one.path} current={within(one.path, here)}>
                        {one.title}
                      </Link>
                    </li>
                  ))}
                </ul>
              </section>
            )
          );
        })}
      </nav>
      <div class="rail-foot">
        <Pulse />
        <Someone />
        <Menu up label="Theme" items={(["system", "light", "dark"] as const).map((one) => ({ label: THEMES[one], on: theme.value === one, onPick: () => choose(one) }))}>
          <span>Theme: {THEMES[theme.value].toLowerCase()}</span>
        </Menu>
        <Button kind="quiet" small onClick={help}>
          Keys <kbd>?</kbd>
        </Button>
      </div>
    </header>
  );
}

const SAID: Record<Connection, string> = { live: "Live", reconnecting: "Reconnecting…", asking: "Asks every 5 s" };
const MEANS: Record<Connection, string> = {
  live: "Pages show changes as they happen: one connection for all tabs of this browser.",
  reconnecting: "The connection was lost. It comes back by itself, and nothing that changed meanwhile is passed over.",
  asking: "There is no live connection: pages that are open ask again every few seconds.",
};

/** Whether changes are told. */
function Pulse() {
  const now = connection.value;
  return (
    <p class="rail-live" role="status" data-state={now} title={MEANS[now]}>
      {SAID[now]}
    </p>
  );
}

/** Who is signed in, what they may, and the way out. */
function Someone() {
  const who = session.value?.who;
  if (!who) return null;
  const may = [...who.roles, ...(who.payloads ? ["payloads"] : []), ...(who.tenants ? [`of ${who.tenants.join(", ")}`] : [])].join(", ");
  const way = session.value?.way;
  return (
    <div class="rail-who">
      <span>
        <strong>{who.name}</strong>: {may}
      </span>
      {(way === "token" || way === "oidc") && (
        <Button kind="quiet" small onClick={() => void signOut()}>
          Sign out
        </Button>
      )}
    </div>
  );
}

/** A post horn's bell and its tube, which is a way that comes back. */
function Mark() {
  return (
    <svg viewBox="0 0 24 24" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round">
      <circle cx="10" cy="14" r="6" />
      <path d="M2.5 8H14M10 8h5l6-4v10l-5-3" />
    </svg>
  );
}
