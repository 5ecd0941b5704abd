import { Component, type ComponentChildren, type ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { reachable, stranger } from "./api";
import { Help, useKeys } from "./keys";
import { match } from "./matching";
import SignIn from "./pages/signin";
import { Rail } from "./rail";
import { place } from "./router";
import { type PageProps, type Route, routes } from "./routes";
import { Button, Empty, Link, Page, Skeleton, Toasts } from "./ui";

interface Shown {
  route: Route;
  Body: ComponentType<PageProps>;
}

export function App() {
  useKeys();
  return (
    <>
      <a class="skip" href="#main">
        To the page
      </a>
      <div class="shell">
        <Rail />
        <main class="main" id="main" tabIndex={-1}>
          {!reachable.value && (
            <p class="away" role="alert">
              The console does not answer: what is shown may be old. It is asked again by itself.
            </p>
          )}
          {stranger.value || place.value.path === "/signin" ? <SignIn /> : <Current />}
        </main>
      </div>
      <Toasts />
      <Help />
    </>
  );
}

function Current() {
  const { path, query } = place.value;
  const [shown, show] = useState<Shown | null>(null);
  const [broken, setBroken] = useState(false);
  const first = useRef(true);
  const found = routes.map((route) => ({ route, params: match(route.path, path) })).find((one) => one.params);
  useEffect(() => {
    let over = false;
    setBroken(false);
    found?.route.load().then(
      (module) => over || show({ route: found.route, Body: module.default }),
      () => over || setBroken(true),
    );
    return () => void (over = true);
  }, [found?.route]);
  const ready = shown?.route === found?.route;
  useEffect(() => {
    if (!ready) return;
    if (!first.current) document.querySelector<HTMLElement>("main h1")?.focus({ preventScroll: true });
    first.current = false;
  }, [path, ready]);
  if (!found?.params) return <Missing path={path} />;
  if (broken) return <Outdated />;
  if (!shown || !ready) return <Skeleton />;
  return (
    <Boundary key={path}>
      <shown.Body params={found.params} query={query} />
    </Boundary>
  );
}

function Missing({ path }: { path: string }) {
  return (
    <Page title="There is no such page">
      <Empty title={path} action={<Link to="/">To the first page</Link>}>
        The address may be of an older console, or a letter is wrong.
      </Empty>
    </Page>
  );
}

function Outdated() {
  return (
    <Page title="This page could not be loaded">
      <Empty title="The console was renewed, or does not answer." action={<Button onClick={() => location.reload()}>Load it anew</Button>}>
        Nothing is lost: the address stays.
      </Empty>
    </Page>
  );
}

/** A page that fails does not take the others with it. */
class Boundary extends Component<{ children: ComponentChildren }, { failed: string }> {
  override state = { failed: "" };

  override componentDidCatch(error: unknown): void {
    console.error(error);
    this.setState({ failed: error instanceof Error ? error.message : String(error) });
  }

  override render() {
    if (!this.state.failed) return this.props.children;
    return (
      <Page title="This page failed">
        <Empty title={this.state.failed} action={<Button onClick={() => location.reload()}>Load it anew</Button>}>
          It is a mistake of the console, not of your services. The other pages work; the browser's console has the whole story.
        </Empty>
      </Page>
    );
  }
}
