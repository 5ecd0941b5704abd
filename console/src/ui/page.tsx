import type { ComponentChildren } from "preact";
import type { Data } from "../api";

/** A page: its title, one sentence that says what one sees, what is wrong, and the rest. */
export function Page({ title, says, data, children }: { title: string; says: string; data?: Data<unknown>; children?: ComponentChildren }) {
  return (
    <article>
      <h1>{title}</h1>
      <p>{says}</p>
      {data?.error && <p role="alert">{data.error.message} {data.error.hint}</p>}
      {data?.problems.map((one) => <p key={one.service + one.what}>{one.service}: {one.what} {one.do}</p>)}
      {children}
    </article>
  );
}
