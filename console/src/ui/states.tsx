import type { ComponentChildren } from "preact";
import type { ApiError, Problem } from "../api";
import { Button } from "./button";
import { cls, type Tone } from "./types";
import { sentence } from "./words";

/** Nothing is here: what that means, and what one may do. */
export function Empty({ title, children, action }: { title: string; children?: ComponentChildren; action?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children && <div class="empty-says">{children}</div>}
      {action && <div class="empty-action">{action}</div>}
    </div>
  );
}

/** A sentence that stands out. */
export function Notice({ tone = "info", title, children, action }: { tone?: Tone; title?: string; children?: ComponentChildren; action?: ComponentChildren }) {
  return (
    <div class={cls("notice", `notice-${tone}`)} role={tone === "bad" ? "alert" : "status"}>
      <div class="notice-text">
        {title && <strong>{title}</strong>} {children}
      </div>
      {action && <div class="notice-action">{action}</div>}
    </div>
  );
}

/** What is wrong with some services while the rest is shown. */
export function Problems({ problems }: { problems: readonly Problem[] }) {
  if (!problems.length) return null;
  return (
    <section class="problems" aria-label="What is not shown">
      <p class="problems-title">{problems.length === 1 ? "One service is not shown whole" : `${problems.length} services are not shown whole`}; everything else is.</p>
      <ul>
        {problems.map((one) => (
          <li key={`${one.service} ${one.what}`}>
            <strong class="wrap">{one.service}</strong> <span class="problem-what" data-long={one.what.includes("\n") || undefined} tabIndex={one.what.includes("\n") ? 0 : undefined}>{one.what}</span>
            <span>{sentence(one.do)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** The server refused, or did not answer. */
export function Failure({ error, retry }: { error: ApiError; retry?: () => void }) {
  const title = error.status === 401 ? "You are not signed in" : error.status === 403 ? "You may not see this" : error.status === 404 ? "Not here" : error.status === 0 ? "No answer" : "This cannot be shown";
  return (
    <div class="failure" role="alert">
      <p class="empty-title">{title}</p>
      <p class="wrap">{error.message}</p>
      {error.hint && <p class="muted wrap">{error.hint}</p>}
      {error.status === 401 ? (
        <Button kind="main" onClick={() => location.reload()}>
          Sign in
        </Button>
      ) : (
        retry && error.status !== 403 && <Button onClick={retry}>Ask again</Button>
      )}
    </div>
  );
}

/** Where something will be in a moment. */
export function Skeleton({ lines = 6 }: { lines?: number }) {
  return (
    <div class="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, i) => (
        <span key={i} class="skeleton-line" />
      ))}
    </div>
  );
}
