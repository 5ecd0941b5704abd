import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { match, place } from "./router";
import { type PageProps, type Route, routes } from "./routes";

interface Shown {
  route: Route;
  Body: ComponentType<PageProps>;
}

export function App() {
  const { path, query } = place.value;
  const [shown, show] = useState<Shown | null>(null);
  const found = routes.map((route) => ({ route, params: match(route.path, path) })).find((one) => one.params);
  useEffect(() => {
    let over = false;
    found?.route.load().then((module) => over || show({ route: found.route, Body: module.default }));
    return () => void (over = true);
  }, [found?.route]);
  if (!found?.params) return <p>There is no page at {path}.</p>;
  if (shown?.route !== found.route) return null;
  return <shown.Body key={path} params={found.params} query={query} />;
}
