import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import type { Data } from "../api";
import { Link } from "./link";
import { Failure, Notice, Problems, Skeleton } from "./states";

interface Props {
  title: string;
  /** One sentence: what one sees here. */
  says?: ComponentChildren;
  /** What the page shows. Until it is there a placeholder stands for the children; what is wrong is said. */
  data?: Data<unknown>;
  /** What can be pressed, at the right of the title. */
  actions?: ComponentChildren;
  /** The way here: [["Held", "/held"]]. */
  path?: readonly (readonly [string, string])[];
  /** What stands beside the title: a state. */
  badge?: ComponentChildren;
  children?: ComponentChildren;
}

/** A page: its title, one sentence that says what one sees, what is wrong, and the rest. */
export function Page({ title, says, data, actions, path, badge, children }: Props) {
  useEffect(() => {
    document.title = `${title} · Posthouse`;
  }, [title]);
  const known = !data || data.data !== undefined;
  return (
    <article class="page" aria-busy={data?.loading && !known}>
      <header class="page-head">
        {path && (
          <nav class="crumbs" aria-label="The way here">
            {path.map(([name, to]) => (
              <Link key={to} to={to}>
                {name}
              </Link>
            ))}
          </nav>
        )}
        <div class="page-title">
          <h1 tabIndex={-1}>{title}</h1>
          {badge}
          {actions && <div class="page-actions">{actions}</div>}
        </div>
        {says && <p class="says">{says}</p>}
      </header>
      {data && <Problems problems={data.problems} />}
      {data?.error && known && (
        <Notice tone="warn" title="This may be old.">
          {data.error.message} {data.error.hint}
        </Notice>
      )}
      {known ? children : data?.error ? <Failure error={data.error} retry={data.refresh} /> : <Skeleton />}
    </article>
  );
}

/** A part of a page, with a title and what can be pressed. */
export function Section({ title, says, actions, children }: { title?: ComponentChildren; says?: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="section">
      {(title || actions) && (
        <div class="section-head">
          <div>
            {title && <h2>{title}</h2>}
            {says && <p class="muted">{says}</p>}
          </div>
          {actions && <div class="page-actions">{actions}</div>}
        </div>
      )}
      {children}
    </section>
  );
}
