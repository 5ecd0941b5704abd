// A payload: asked for once, since each look is kept; masked until somebody asks to see it whole.
import { useEffect, useState } from "preact/hooks";
import { type ApiError, ask, query } from "../api";
import { Button, Code, Failure, Notice, Skeleton } from "../ui";

export interface Shown {
  text: string | null;
  form: "json" | "text" | "bytes";
  size: number;
  cut: boolean;
  masked: string[];
  unmaskable: boolean;
  withheld: string;
}

export interface Looked {
  payload: Shown;
  headers?: Record<string, string> | null;
  envelope?: string;
  unreadable?: string | null;
}

/** What is at a path of payloads, masked first. */
export function useLook(path: string | null) {
  const [unmask, setUnmask] = useState(false);
  const [looked, set] = useState<Looked>();
  const [error, fail] = useState<ApiError>();
  useEffect(() => {
    set(undefined);
    setUnmask(false);
  }, [path]);
  useEffect(() => {
    if (path === null) return;
    const stop = new AbortController();
    fail(undefined);
    ask<Looked>(query(path, { unmask }), stop.signal).then(
      (answer) => set(answer.data),
      (told: ApiError) => stop.signal.aborted || fail(told),
    );
    return () => stop.abort();
  }, [path, unmask]);
  return { looked, error, unmasked: unmask, unmask: () => setUnmask(true) };
}

export type Look = ReturnType<typeof useLook>;

export function Payload({ look }: { look: Look }) {
  const { looked, error, unmasked, unmask } = look;
  if (error) return <Failure error={error} />;
  if (!looked) return <Skeleton lines={4} />;
  const shown = looked.payload;
  return (
    <>
      {looked.unreadable && (
        <Notice tone="bad" title="These bytes are not an event.">
          {looked.unreadable}
        </Notice>
      )}
      {shown.withheld ? (
        <Notice tone="info" title={`${shown.size.toLocaleString("en")} bytes are not shown.`} action={shown.unmaskable && <Button small onClick={unmask}>Unmask</Button>}>
          {shown.withheld}
        </Notice>
      ) : (
        shown.unmaskable &&
        !unmasked && (
          <Notice tone="info" title="Personal fields are hidden." action={<Button small onClick={unmask}>Unmask</Button>}>
            {shown.masked.join(", ")}. Unmasking is kept in the operators' log, with your name.
          </Notice>
        )
      )}
      {shown.text !== null && <Code text={shown.text} label="Payload" kind={shown.form === "json" ? "json" : "text"} />}
      {shown.cut && <p class="muted">It is longer: {shown.size.toLocaleString("en")} bytes. `posthouse held export` writes all of it.</p>}
      {shown.form === "bytes" && <p class="muted">No text: bytes that are none are written as \xNN.</p>}
    </>
  );
}
